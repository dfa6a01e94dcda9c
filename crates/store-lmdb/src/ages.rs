//! Rows by topic, retention class and age: the order in which a purge scans them.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap},
};

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

/// Rows of a topic that may be evicted, oldest first.
pub(crate) struct Oldest {
    heads: BinaryHeap<Reverse<(EventNo, Vec<u8>)>>,
}

impl Oldest {
    pub(crate) fn of(view: View<'_>, topic: TopicNo) -> Result<Self> {
        let mut oldest = Self { heads: BinaryHeap::new() };
        for class in RetentionClass::ALL.into_iter().filter(|class| class.gives_way()) {
            oldest.push_after(view, &key::ages(topic, class), &[])?;
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

/// A search, in steps, for the oldest rows of all topics that may be evicted. Holds the place in `Ages` that it has
/// reached and the oldest rows so far, but nothing per topic.
pub(crate) struct OldestSearch {
    /// The last topic and class that was looked at. `None` before the first.
    reached: Option<AgePrefix>,
    found: BTreeSet<EventNo>,
}

impl OldestSearch {
    /// After every topic and class.
    const END: AgePrefix = [u8::MAX; 5];

    /// A search that is done and has found these rows.
    pub(crate) fn done(found: BTreeSet<EventNo>) -> Self {
        Self { reached: Some(Self::END), found }
    }

    /// Reads a position of [`Self::pack`]; an empty one begins a search.
    pub(crate) fn unpack(position: &[u8]) -> Result<Self> {
        let Some((reached, numbers)) = position.split_first_chunk() else {
            return Ok(Self { reached: None, found: BTreeSet::new() });
        };
        let found = numbers.chunks(size_of::<EventNo>()).map(EventNo::of_key).collect::<Result<_>>()?;
        Ok(Self { reached: Some(*reached), found })
    }

    pub(crate) fn pack(&self) -> Vec<u8> {
        let reached = self.reached.iter().flatten().copied();
        reached.chain(self.found.iter().flat_map(|no| no.key())).collect()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.reached == Some(Self::END)
    }

    pub(crate) fn into_found(self) -> BTreeSet<EventNo> {
        self.found
    }

    /// Looks at the next topic and class; keeps the `max` oldest rows. Returns how many places and rows it looked at.
    pub(crate) fn look_at_next(&mut self, view: View<'_>, max: usize) -> Result<usize> {
        let Some(prefix) = prefix_after(view, self.reached)? else {
            self.reached = Some(Self::END);
            return Ok(1);
        };
        self.reached = Some(prefix);
        if !class_of(&prefix)?.gives_way() {
            return Ok(1);
        }
        let mut looked_at = 1;
        for entry in view.prefix_iter(Table::Ages, &prefix)? {
            let no = EventNo::of_key(entry?.0)?;
            looked_at += 1;
            if self.found.len() >= max && !self.found.contains(&no) {
                if self.found.last().is_some_and(|newest| *newest <= no) {
                    break;
                }
                self.found.pop_last();
            }
            self.found.insert(no);
        }
        Ok(looked_at)
    }
}
