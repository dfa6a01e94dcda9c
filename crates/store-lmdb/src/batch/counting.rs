//! Ages, counters and capacity stages.

use kukuri_domain::{
    TopicId,
    capacity::{Stage, Usage},
    retention::RetentionClass,
    subscription::IngestPolicy,
};
use kukuri_store::counters::Counters;

use super::{Batch, StoredRow};
use crate::{
    error::Result,
    key::{self, EventNo, TopicNo},
    lookup::topics,
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

    /// Applies a change to the counters of the node and of these topics.
    pub(super) fn count(&mut self, topics: &[TopicNo], change: impl Fn(&mut Counters)) -> Result<()> {
        change(&mut self.node.counters);
        for topic in topics {
            change(&mut self.topic(*topic)?.record.counters);
            self.changed_topics.push(*topic);
        }
        Ok(())
    }

    pub(crate) fn policy(&self, topic: &TopicId) -> IngestPolicy {
        self.ctx.subscriptions.policy(topic)
    }

    /// Topics at their last stage, in the order of their ids.
    pub(crate) fn purging_topics(&self) -> Result<Vec<TopicNo>> {
        let mut purging = Vec::new();
        for (_, stored) in topics(&self.ctx.tables, &self.txn)? {
            let now = self.topics.get(&stored.no).map_or(stored, |topic| topic.record);
            if now.counters.stage == Stage::Purging {
                purging.push(stored.no);
            }
        }
        Ok(purging)
    }

    /// Marks a topic whose policy changed, so that its stage is recomputed.
    pub(crate) fn touch(&mut self, topic: &TopicId) -> Result<()> {
        let no = self.known_topic_no(topic)?;
        self.changed_topics.extend(no);
        Ok(())
    }

    /// Marks every topic after a change of configuration, so that its stage is recomputed.
    pub(crate) fn touch_all(&mut self) {
        self.changed_topics.extend((1..=self.node.last_topic.0).map(TopicNo));
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
