//! Scans of newest-first tables: several ranges merged into one order, in steps.
//!
//! A scan holds no transaction between steps, only its position, so a slow or large query never keeps LMDB from reusing
//! pages. Rows that arrived after the scan began have a higher row number and are skipped.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    ops::{Bound, RangeInclusive},
};

use kukuri_domain::Timestamp;

use crate::{
    error::{Result, damaged},
    key::{EventNo, Order},
    record::Cover,
    tables::{Table, View},
};

/// Rows that a range reads at a time: at first, and at most.
const FIRST_BLOCK: usize = 16;
const LAST_BLOCK: usize = 512;

/// A row of a newest-first table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) order: Order,
    pub(crate) cover: Cover,
}

/// One prefix of one table, within a time window.
struct Range {
    table: Table,
    /// The next key to read, then the last.
    from: Bound<Vec<u8>>,
    to: Vec<u8>,
    block: VecDeque<Candidate>,
    block_size: usize,
    is_read: bool,
}

/// Several ranges in one order. A row that is in several of them appears once.
pub(crate) struct Scan {
    ranges: Vec<Range>,
    heads: BinaryHeap<Reverse<(Order, usize)>>,
    started: bool,
    newest: EventNo,
    last: Option<Order>,
}

impl Scan {
    /// A scan that skips rows above `newest`.
    pub(crate) fn new(newest: EventNo) -> Self {
        Self { ranges: Vec::new(), heads: BinaryHeap::new(), started: false, newest, last: None }
    }

    /// Adds a range. Call it before the scan starts.
    pub(crate) fn add(&mut self, table: Table, prefix: Vec<u8>, window: &RangeInclusive<Timestamp>) {
        // Rows hold times below 2^53; a window may name any time.
        if *window.start() > Timestamp::MAX_IN_EVENT {
            return;
        }
        let within = |time: Timestamp| time.min(Timestamp::MAX_IN_EVENT);
        self.add_between(table, prefix, Order::at(within(*window.end())), Order::end_of(within(*window.start())));
    }

    /// Adds the range between two positions.
    pub(crate) fn add_between(&mut self, table: Table, prefix: Vec<u8>, first: Order, last: Order) {
        self.ranges.push(Range {
            table,
            from: Bound::Included([&prefix[..], first.as_bytes()].concat()),
            to: [&prefix[..], last.as_bytes()].concat(),
            block: VecDeque::new(),
            block_size: FIRST_BLOCK,
            is_read: false,
        });
    }

    /// The next row; reads the next block if needed.
    pub(crate) fn next(&mut self, view: View<'_>) -> Result<Option<Candidate>> {
        if !self.started {
            self.started = true;
            for index in 0..self.ranges.len() {
                self.push_head(index, view)?;
            }
        }
        loop {
            let Some(Reverse((order, index))) = self.heads.pop() else { return Ok(None) };
            let candidate = self.ranges[index].block.pop_front();
            self.push_head(index, view)?;
            let candidate = candidate.ok_or_else(|| damaged("a scan lost its place"))?;
            let is_repeat = self.last.replace(order) == Some(order);
            if !is_repeat && order.no() <= self.newest {
                return Ok(Some(candidate));
            }
        }
    }

    fn push_head(&mut self, index: usize, view: View<'_>) -> Result<()> {
        let range = &mut self.ranges[index];
        if range.block.is_empty() && !range.is_read {
            range.read_on(view)?;
        }
        if let Some(candidate) = range.block.front() {
            self.heads.push(Reverse((candidate.order, index)));
        }
        Ok(())
    }
}

impl Range {
    fn read_on(&mut self, view: View<'_>) -> Result<()> {
        let mut last_key = None;
        let entries = view.range(self.table, self.from.as_ref().map(Vec::as_slice), Bound::Included(&self.to))?;
        for entry in entries.take(self.block_size) {
            let (key, cover) = entry?;
            let order =
                Order::of_key(key).ok_or_else(|| damaged(format!("a key of {} is too short", self.table.name())))?;
            self.block.push_back(Candidate { order, cover: Cover::unpack(cover)? });
            last_key = Some(key);
        }
        self.is_read = self.block.len() < self.block_size;
        self.block_size = (2 * self.block_size).min(LAST_BLOCK);
        if let Some(key) = last_key {
            self.from = Bound::Excluded(key.to_vec());
        }
        Ok(())
    }
}

/// Distinct values of the `len` bytes after `prefix`, in order: one lookup each, however many rows they have.
pub(crate) fn distinct(view: View<'_>, table: Table, prefix: &[u8], len: usize) -> Result<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    loop {
        let after = found.last().map_or(prefix.to_vec(), |last| [&last[..], &[u8::MAX; Order::LEN]].concat());
        let next = view.after(table, &after)?.next().transpose()?;
        match next {
            Some((key, _)) if key.starts_with(prefix) && key.len() >= prefix.len() + len => {
                found.push(key[..prefix.len() + len].to_vec());
            }
            _ => return Ok(found),
        }
    }
}
