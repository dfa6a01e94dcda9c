//! Rows by topic, retention class and age: the order in which a purge scans them.

use std::{cmp::Reverse, collections::BinaryHeap};

use heed::RoTxn;
use kukuri_domain::retention::RetentionClass;

use crate::{
    error::{Result, damaged},
    key::{self, EventNo, TopicNo},
    tables::{Table, Tables},
};

/// Key prefix in `Ages`: a topic and a retention class.
pub(crate) type AgePlace = [u8; 5];

pub(crate) fn class_of(place: &AgePlace) -> Result<RetentionClass> {
    let class = RetentionClass::ALL.get(usize::from(place[4])).copied();
    class.ok_or_else(|| damaged("an age is of no class"))
}

pub(crate) fn topic_of(place: &AgePlace) -> TopicNo {
    TopicNo(u32::from_be_bytes([place[0], place[1], place[2], place[3]]))
}

/// A key greater than all keys with this prefix.
pub(crate) fn end_of(place: &AgePlace) -> Vec<u8> {
    [&place[..], &[u8::MAX; 8]].concat()
}

/// The next topic and class that has any row; topics without rows cost nothing.
pub(crate) fn place_after(tables: &Tables, txn: &RoTxn<'_>, place: Option<&AgePlace>) -> Result<Option<AgePlace>> {
    let end = place.map_or_else(Vec::new, end_of);
    let next = tables.keys_after(txn, Table::Ages, &[], &end, 1)?.pop();
    Ok(next.as_deref().and_then(<[u8]>::first_chunk).copied())
}

/// Rows of some topics that may be evicted, oldest first. A row with several topics appears once for each.
pub(crate) struct Oldest {
    heads: BinaryHeap<Reverse<(EventNo, Vec<u8>)>>,
}

impl Oldest {
    /// For one topic, or for all topics that have rows.
    pub(crate) fn of(tables: &Tables, txn: &RoTxn<'_>, topic: Option<TopicNo>) -> Result<Self> {
        let mut oldest = Self { heads: BinaryHeap::new() };
        match topic {
            Some(topic) => {
                for class in RetentionClass::ALL.into_iter().filter(|class| class.gives_way()) {
                    oldest.advance(tables, txn, &key::ages(topic, class), &[])?;
                }
            }
            None => {
                let mut next = place_after(tables, txn, None)?;
                while let Some(place) = next {
                    if class_of(&place)?.gives_way() {
                        oldest.advance(tables, txn, &place, &[])?;
                    }
                    next = place_after(tables, txn, Some(&place))?;
                }
            }
        }
        Ok(oldest)
    }

    fn advance(&mut self, tables: &Tables, txn: &RoTxn<'_>, prefix: &[u8], after: &[u8]) -> Result<()> {
        if let Some(key) = tables.keys_after(txn, Table::Ages, prefix, after, 1)?.pop() {
            let no = EventNo::of_key(&key)?;
            self.heads.push(Reverse((no, key)));
        }
        Ok(())
    }

    /// The next row and its class.
    pub(crate) fn next(&mut self, tables: &Tables, txn: &RoTxn<'_>) -> Result<Option<(EventNo, RetentionClass)>> {
        let Some(Reverse((no, key))) = self.heads.pop() else { return Ok(None) };
        let place = key.first_chunk().ok_or_else(|| damaged("an age is too short"))?;
        self.advance(tables, txn, place, &key)?;
        Ok(Some((no, class_of(place)?)))
    }
}
