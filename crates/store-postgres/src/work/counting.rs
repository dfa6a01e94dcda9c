//! Counters and stages: how much is stored where, and whether that is too much.

use kukuri_domain::{
    EventId, TopicId,
    capacity::{Load, Usage},
};
use kukuri_store::counters::Counters;

use super::{Row, TopicNo, Work};
use crate::{
    codes::Class,
    error::{Result, damaged},
    months,
};

/// What the node is called among the parts of a partition.
pub(crate) const NODE: TopicNo = 0;

impl Work {
    /// Counts a row in (1) or out (-1), as it is: on the node, in its topics and in its partition.
    pub(super) fn count(&mut self, row: &Row, sign: i64) -> Result<()> {
        let class = row.class();
        let is_effective = row.is_effective();
        let month = months::begin_of(row.place.ingested_at);
        for topic in std::iter::once(NODE).chain(row.topics.iter().copied()) {
            let counters = if topic == NODE { &mut self.node.counters } else { &mut self.topic(topic)?.counters };
            add(counters, class as usize, row.bytes, is_effective, sign)
                .ok_or_else(|| damaged(format!("the counters of topic {topic} hold less than there is")))?;
            let part = self.parts.entry((row.place.class, month, topic, class)).or_default();
            part.effective += sign * i64::from(is_effective);
            part.events += sign;
            part.bytes += sign * row.bytes as i64;
        }
        self.touched.extend_from_slice(&row.topics);
        Ok(())
    }

    /// Counts out what a partition held of a topic, or of the node, all at once. Its own counters go with it.
    pub(crate) fn lose(&mut self, topic: TopicNo, class: usize, effective: u64, lost: Usage) -> Result<()> {
        let counters = if topic == NODE { &mut self.node.counters } else { &mut self.topic(topic)?.counters };
        let usage = &mut counters.by_class[class];
        let left = (|| {
            counters.effective = counters.effective.checked_sub(effective)?;
            usage.events = usage.events.checked_sub(lost.events)?;
            usage.bytes = usage.bytes.checked_sub(lost.bytes)?;
            Some(())
        })();
        left.ok_or_else(|| damaged(format!("the counters of topic {topic} hold less than there is")))?;
        if topic != NODE {
            self.touched.push(topic);
        }
        Ok(())
    }

    /// A row changes to another list of partitions.
    pub(crate) fn change_class(&mut self, id: &EventId, class: Class) -> Result<()> {
        let Some(mut row) = self.row(id).cloned() else { return Ok(()) };
        self.count(&row, -1)?;
        row.place.class = class;
        self.count(&row, 1)?;
        let known = self.ids.get_mut(id).and_then(|cell| cell.now.as_mut());
        known.ok_or_else(|| damaged(format!("row {id} has no id record")))?.place = Some(row.place);
        self.rows.insert(*id, row);
        Ok(())
    }

    /// How loaded the node is.
    pub(crate) fn node_load(&self) -> Load {
        self.node.counters.load(self.rules.capacity)
    }

    /// How loaded a topic is. One that nothing was ever bound to is empty.
    pub(crate) fn topic_load(&self, id: &TopicId) -> Load {
        let capacity = self.subscriptions.policy(id).capacity();
        let topic = self.topic_nos.get(id).and_then(|no| self.topics.get(no)?.now.as_ref());
        topic.map(|topic| topic.counters).unwrap_or_default().load(capacity)
    }

    /// Brings the stages of the node and of every topic that changed up to date (P-6).
    pub(crate) fn update_stages(&mut self) -> Result<()> {
        let (capacity, thresholds) = (self.rules.capacity, self.rules.thresholds);
        self.stages.extend(self.node.counters.update_stage(None, capacity, &thresholds));
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for no in touched {
            let id = self.topic_id(no)?;
            let capacity = self.subscriptions.policy(&id).capacity();
            let change = self.topic(no)?.counters.update_stage(Some(&id), capacity, &thresholds);
            self.stages.extend(change);
        }
        Ok(())
    }

    /// Every topic that was read gets a new look at its stage.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.topics.keys());
    }
}

/// `None`: there would be less than nothing.
fn add(counters: &mut Counters, class: usize, bytes: u64, is_effective: bool, sign: i64) -> Option<()> {
    counters.effective = counters.effective.checked_add_signed(sign * i64::from(is_effective))?;
    let usage = &mut counters.by_class[class];
    usage.events = usage.events.checked_add_signed(sign)?;
    usage.bytes = usage.bytes.checked_add_signed(sign * bytes as i64)?;
    Some(())
}
