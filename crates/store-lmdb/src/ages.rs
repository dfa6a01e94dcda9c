//! Rows by topic, retention class and age: the order in which a purge scans them.

use std::{cmp::Reverse, collections::BinaryHeap};

use kukuri_domain::retention::RetentionClass;

use crate::{
    error::{Result, damaged},
    key::{self, EventNo, TopicNo},
    tables::{Table, View},
};

/// Key prefix in `Ages`: a topic and a retention class.
pub(crate) type AgePrefix = [u8; 5];

pub(crate) fn class_of(prefix: &AgePrefix) -> Result<RetentionClass> {
    let class = RetentionClass::ALL.get(usize::from(prefix[4])).copied();
    class.ok_or_else(|| damaged("an age is of no class"))
}

pub(crate) fn topic_of([a, b, c, d, _]: AgePrefix) -> TopicNo {
    TopicNo(u32::from_be_bytes([a, b, c, d]))
}

/// The next topic and class that has any row; topics without rows cost nothing.
pub(crate) fn prefix_after(view: View<'_>, prefix: Option<AgePrefix>) -> Result<Option<AgePrefix>> {
    let end = prefix.map_or_else(Vec::new, |prefix| [&prefix[..], &[u8::MAX; 8]].concat());
    let next = view.after(Table::Ages, &end)?.next().transpose()?;
    Ok(next.and_then(|(key, _)| key.first_chunk().copied()))
}

/// Rows of some topics that may be evicted, oldest first. A row with several topics appears once for each.
pub(crate) struct Oldest {
    heads: BinaryHeap<Reverse<(EventNo, Vec<u8>)>>,
}

impl Oldest {
    /// For one topic, or for all topics that have rows.
    pub(crate) fn of(view: View<'_>, topic: Option<TopicNo>) -> Result<Self> {
        let mut oldest = Self { heads: BinaryHeap::new() };
        let mut next = match topic {
            Some(topic) => Some(key::ages(topic, RetentionClass::ALL[0])),
            None => prefix_after(view, None)?,
        };
        while let Some(prefix) = next.filter(|prefix| topic.is_none_or(|topic| topic == topic_of(*prefix))) {
            if class_of(&prefix)?.gives_way() {
                oldest.push_after(view, &prefix, &[])?;
            }
            next = prefix_after(view, Some(prefix))?;
        }
        Ok(oldest)
    }

    fn push_after(&mut self, view: View<'_>, prefix: &[u8], after: &[u8]) -> Result<()> {
        if let Some(key) = view.keys_after(Table::Ages, prefix, after, 1)?.pop() {
            let no = EventNo::of_key(&key)?;
            self.heads.push(Reverse((no, key)));
        }
        Ok(())
    }

    pub(crate) fn next(&mut self, view: View<'_>) -> Result<Option<EventNo>> {
        let Some(Reverse((no, key))) = self.heads.pop() else { return Ok(None) };
        self.push_after(view, &key[..size_of::<AgePrefix>()], &key)?;
        Ok(Some(no))
    }
}
