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
    grant::Grant,
    key::{EventNo, Order},
    record::Cover,
    tables::{Table, View},
};

/// Rows that a range reads at a time: at first, and at most.
const FIRST_BLOCK: usize = 16;
const LAST_BLOCK: usize = 512;
/// Rows that all ranges together read before the first is returned; each reads at least one.
const MAX_PREFETCHED: usize = 256;

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

/// A range for every distinct value of the `len` bytes after a prefix. Finding one takes a seek, which also reads the newest
/// row of the value.
struct Family {
    table: Table,
    prefix: Vec<u8>,
    len: usize,
    /// The time window.
    first: Order,
    last: Order,
    /// The last value that was found, as the whole prefix.
    found: Option<Vec<u8>>,
}

/// Several ranges in one order. A row that is in several of them appears once.
pub(crate) struct Scan {
    ranges: Vec<Range>,
    /// Families whose ranges are not all found.
    families: Vec<Family>,
    /// Maximum ranges found for families.
    max_ranges: usize,
    /// How many of the ranges have their first row among the heads.
    opened: usize,
    heads: BinaryHeap<Reverse<(Order, usize)>>,
    /// Rows that were read, and counted, before they are returned.
    prefetched: usize,
    newest: EventNo,
    last: Option<Order>,
}

/// A step of a scan.
pub(crate) enum Next {
    Row(Candidate),
    /// All rows were returned.
    End,
    /// The grant is used up, or there are more ranges than it or the scan allows.
    Paused,
}

impl Scan {
    /// A scan that skips rows above `newest`.
    pub(crate) fn new(newest: EventNo) -> Self {
        Self {
            ranges: Vec::new(),
            families: Vec::new(),
            max_ranges: usize::MAX,
            opened: 0,
            heads: BinaryHeap::new(),
            prefetched: 0,
            newest,
            last: None,
        }
    }

    /// Number of ranges known so far.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds a range. Call it before the scan starts.
    pub(crate) fn add(&mut self, table: Table, prefix: Vec<u8>, window: &RangeInclusive<Timestamp>) {
        if let Some((first, last)) = orders(window) {
            self.add_between(table, prefix, first, last);
        }
    }

    /// Adds a range for every distinct value of the `len` bytes after `prefix`. Call it before the scan starts.
    pub(crate) fn add_family(&mut self, table: Table, prefix: Vec<u8>, len: usize, window: &RangeInclusive<Timestamp>) {
        if let Some((first, last)) = orders(window) {
            self.families.push(Family { table, prefix, len, first, last, found: None });
        }
    }

    /// Bounds the ranges found for families. See [`Self::has_too_many_ranges`].
    pub(crate) fn bound_ranges(&mut self, max: usize) {
        self.max_ranges = max;
    }

    /// Whether there are more ranges than [`Self::bound_ranges`] allows. Such a scan returns no rows.
    pub(crate) fn has_too_many_ranges(&self) -> bool {
        self.ranges.len() > self.max_ranges
    }

    /// Adds the range between two positions.
    pub(crate) fn add_between(&mut self, table: Table, prefix: Vec<u8>, first: Order, last: Order) {
        self.ranges.push(Range::unread(table, &prefix, first, last));
    }

    /// The last row that was returned or skipped.
    pub(crate) fn reached(&self) -> Order {
        self.last.unwrap_or(Order::FIRST)
    }

    /// The next row; reads the next block if needed.
    pub(crate) fn next(&mut self, grant: &mut Grant, view: View<'_>) -> Result<Next> {
        let is_open = self.opened == self.ranges.len() && self.families.is_empty();
        if !is_open && !self.open(grant, view)? {
            return Ok(Next::Paused);
        }
        while !grant.is_used_up() {
            let Some(Reverse((order, index))) = self.heads.pop() else { return Ok(Next::End) };
            let candidate = self.ranges[index].block.pop_front();
            self.push_head(index, view)?;
            let candidate = candidate.ok_or_else(|| damaged("a scan lost its place"))?;
            match self.prefetched.checked_sub(1) {
                Some(left) => self.prefetched = left,
                None => grant.take(1),
            }
            let is_repeat = self.last.replace(order) == Some(order);
            if !is_repeat && order.no() <= self.newest {
                return Ok(Next::Row(candidate));
            }
        }
        Ok(Next::Paused)
    }

    /// Finds the ranges of the families, then reads the first rows of every range. Goes on where the last call stopped.
    /// Returns whether all of that is done.
    fn open(&mut self, grant: &mut Grant, view: View<'_>) -> Result<bool> {
        let max_ranges = self.max_ranges.min(grant.max_ranges());
        while let Some(family) = self.families.last_mut() {
            if self.ranges.len() > max_ranges || grant.is_used_up() {
                return Ok(false);
            }
            grant.take(1);
            match family.next_range(view)? {
                Some(range) if range.is_empty() => {}
                Some(range) => self.ranges.push(range),
                None => drop(self.families.pop()),
            }
        }
        if self.ranges.len() > max_ranges {
            return Ok(false);
        }
        let first_block = (MAX_PREFETCHED / self.ranges.len().max(1)).clamp(1, FIRST_BLOCK);
        while let Some(range) = self.ranges.get_mut(self.opened) {
            if grant.is_used_up() {
                return Ok(false);
            }
            if range.block.is_empty() {
                grant.take(1);
                range.block_size = first_block;
            }
            let index = self.opened;
            self.opened += 1;
            self.push_head(index, view)?;
            let read = self.ranges[index].block.len();
            grant.take(read);
            self.prefetched += read;
        }
        Ok(true)
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

/// The first and the last position of a time window. `None`: no row can be in it.
fn orders(window: &RangeInclusive<Timestamp>) -> Option<(Order, Order)> {
    // Rows hold times below 2^53; a window may name any time.
    let within = |time: Timestamp| time.min(Timestamp::MAX_IN_EVENT);
    let is_possible = *window.start() <= Timestamp::MAX_IN_EVENT;
    is_possible.then(|| (Order::at(within(*window.end())), Order::end_of(within(*window.start()))))
}

impl Family {
    /// The range of the next value. It is empty if all rows of the value are older than the time window.
    fn next_range(&mut self, view: View<'_>) -> Result<Option<Range>> {
        let next = next_distinct(view, self.table, &self.prefix, self.found.as_deref(), self.len)?;
        let Some(DistinctValue { prefix, key, record }) = next else { return Ok(None) };
        let newest = Candidate { order: order_of(self.table, key)?, cover: Cover::unpack(record)? };
        let mut range = Range::unread(self.table, prefix, self.first, self.last);
        if newest.order > self.last {
            range.is_read = true;
        } else if newest.order >= self.first {
            range.block.push_back(newest);
            range.from = Bound::Excluded(key.to_vec());
        }
        self.found = Some(prefix.to_vec());
        Ok(Some(range))
    }
}

impl Range {
    fn unread(table: Table, prefix: &[u8], first: Order, last: Order) -> Self {
        Self {
            table,
            from: Bound::Included([prefix, first.as_bytes()].concat()),
            to: [prefix, last.as_bytes()].concat(),
            block: VecDeque::new(),
            block_size: FIRST_BLOCK,
            is_read: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.is_read && self.block.is_empty()
    }

    fn read_on(&mut self, view: View<'_>) -> Result<()> {
        let mut last_key = None;
        let entries = view.range(self.table, self.from.as_ref().map(Vec::as_slice), Bound::Included(&self.to))?;
        for entry in entries.take(self.block_size) {
            let (key, cover) = entry?;
            self.block.push_back(Candidate { order: order_of(self.table, key)?, cover: Cover::unpack(cover)? });
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

fn order_of(table: Table, key: &[u8]) -> Result<Order> {
    Order::of_key(key).ok_or_else(|| damaged(format!("a key of {} is too short", table.name())))
}

/// A distinct value of the bytes after a prefix.
pub(crate) struct DistinctValue<'t> {
    /// The value as the whole prefix of its rows.
    pub(crate) prefix: &'t [u8],
    /// Key and record of the first of these rows.
    key: &'t [u8],
    record: &'t [u8],
}

/// The next distinct value of the `len` bytes after `prefix`, after the value `last`. One seek, however many rows a value has.
pub(crate) fn next_distinct<'t>(
    view: View<'t>,
    table: Table,
    prefix: &[u8],
    last: Option<&[u8]>,
    len: usize,
) -> Result<Option<DistinctValue<'t>>> {
    let after = last.map_or(prefix.to_vec(), |last| [last, &[u8::MAX; Order::LEN]].concat());
    let next = view.after(table, &after)?.next().transpose()?;
    let next = next.filter(|(key, _)| key.starts_with(prefix));
    Ok(next.and_then(|(key, record)| Some(DistinctValue { prefix: key.get(..prefix.len() + len)?, key, record })))
}
