//! Ages, counters and stages: what is stored where, how much of it, and whether that is too much.

use kukuri_domain::{
    TopicId,
    capacity::{Load, Stage, Usage},
    retention::RetentionClass,
    subscription::IngestPolicy,
};
use kukuri_store::counters::Counters;

use super::{Batch, StoredRow};
use crate::{
    error::Result,
    key::{self, EventNo, TopicNo},
    reading::topics,
    tables::Table,
};

impl Batch<'_> {
    pub(super) fn age(&mut self, no: EventNo, topics: &[TopicNo], class: RetentionClass) -> Result<()> {
        topics.iter().try_for_each(|topic| self.put(Table::Ages, &key::age(*topic, class, no), &[]))
    }

    pub(super) fn uncount(&mut self, row: &StoredRow) -> Result<()> {
        for topic in &row.topics {
            self.delete(Table::Ages, &key::age(*topic, row.class(), row.no))?;
        }
        self.count(&row.topics, |counters| {
            counters.effective -= u64::from(row.is_effective());
            take(&mut counters.by_class[row.class() as usize], row.json.len());
        })
    }

    /// Changes the counters of the node and of these topics alike.
    pub(super) fn count(&mut self, topics: &[TopicNo], change: impl Fn(&mut Counters)) -> Result<()> {
        change(&mut self.node.counters);
        for topic in topics {
            change(&mut self.topic(*topic)?.record.counters);
            self.touched.push(*topic);
        }
        Ok(())
    }

    pub(crate) fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.around.subscriptions.policy(topic)
    }

    /// How loaded the node is.
    pub(crate) fn node_load(&self) -> Load {
        self.node.counters.load(self.around.rules.capacity)
    }

    /// How loaded a topic is. One that nothing was ever bound to is empty.
    pub(crate) fn topic_load(&mut self, id: &TopicId) -> Result<Load> {
        let capacity = self.policy(id).capacity();
        if !self.topic_nos.contains_key(id) && self.get(Table::Topics, id.as_str().as_bytes())?.is_none() {
            return Ok(Counters::default().load(capacity));
        }
        let no = self.topic_no(id)?;
        Ok(self.topic(no)?.record.counters.load(capacity))
    }

    pub(crate) fn counters(&mut self, topic: TopicNo) -> Result<Counters> {
        Ok(self.topic(topic)?.record.counters)
    }

    /// The topics at their last stage, in the order of their ids.
    pub(crate) fn purging_topics(&self) -> Result<Vec<TopicNo>> {
        let mut purging = Vec::new();
        for (_, stored) in topics(&self.around.tables, &self.txn)? {
            let now = self.topics.get(&stored.no).map_or(stored, |topic| topic.record);
            if now.counters.stage == Stage::Purging {
                purging.push(stored.no);
            }
        }
        Ok(purging)
    }

    /// Brings the stages of the node and of every topic that changed up to date (P-6).
    pub(crate) fn update_stages(&mut self) -> Result<()> {
        let (capacity, thresholds) = (self.around.rules.capacity, self.around.rules.thresholds);
        self.stages.extend(self.node.counters.update_stage(None, capacity, &thresholds));
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for no in touched {
            let id = self.topic_id(no)?;
            let capacity = self.policy(&id).capacity();
            let change = self.topic(no)?.record.counters.update_stage(Some(&id), capacity, &thresholds);
            self.stages.extend(change);
        }
        Ok(())
    }

    /// A topic whose policy changed gets a new look at its stage.
    pub(crate) fn touch(&mut self, topic: &TopicId) -> Result<()> {
        if self.get(Table::Topics, topic.as_str().as_bytes())?.is_some() {
            let no = self.topic_no(topic)?;
            self.touched.push(no);
        }
        Ok(())
    }

    /// The configuration changed: every topic gets a new look at its stage.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend((1..=self.node.last_topic.0).map(TopicNo));
    }
}

pub(super) fn add(usage: &mut Usage, bytes: usize) {
    usage.events += 1;
    usage.bytes += bytes as u64;
}

fn take(usage: &mut Usage, bytes: usize) {
    usage.events -= 1;
    usage.bytes -= bytes as u64;
}
