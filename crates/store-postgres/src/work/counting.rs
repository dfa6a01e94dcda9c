//! Counters and capacity stages.

use kukuri_domain::{EventId, capacity::Usage};
use kukuri_store::counters::Counters;

use super::{Row, TopicNo, Work};
use crate::{
    codes::Class,
    error::{Result, damaged},
    months,
};

/// Topic number that stands for the node in partition counters.
pub(crate) const NODE: TopicNo = 0;

impl Work {
    /// Adds (1) or subtracts (-1) a row, in its current state, from the counters of the node, its topics and its
    /// partition.
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
        self.changed_topics.extend_from_slice(&row.topics);
        Ok(())
    }

    /// Subtracts all that a partition held of a topic, or of the node, at once. The partition's own counters are
    /// deleted.
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
            self.changed_topics.push(topic);
        }
        Ok(())
    }

    /// Moves a row to another partition class.
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

    /// Marks every topic that was read, so that its stage is recomputed.
    pub(crate) fn touch_all(&mut self) {
        self.changed_topics.extend(self.topics.keys());
    }
}

/// `None`: a counter would fall below zero.
fn add(counters: &mut Counters, class: usize, bytes: u64, is_effective: bool, sign: i64) -> Option<()> {
    counters.effective = counters.effective.checked_add_signed(sign * i64::from(is_effective))?;
    let usage = &mut counters.by_class[class];
    usage.events = usage.events.checked_add_signed(sign)?;
    usage.bytes = usage.bytes.checked_add_signed(sign * bytes as i64)?;
    Some(())
}
