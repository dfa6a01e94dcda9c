//! Where an answer goes on, as a text that callers hand back and need not understand.

use kukuri_domain::{EventId, Timestamp};
use kukuri_store::{Seq, SnapshotCursor};

use crate::{error::Problem, parameters::invalid};

/// So many hits can be paged through: an index works for all that it passes over.
const MOST_SKIPPED: usize = 10_000;
/// So many hits of one sort are remembered.
const MOST_SHOWN: usize = 200;

/// How an id begins: enough to know it again.
type Prefix = [u8; 8];

/// Where a search goes on. The index changes meanwhile; what was shown is remembered as far as it may come up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SearchCursor {
    /// The time of the first page: what is recent stays so on all of them.
    pub(crate) now: Timestamp,
    /// Hits of the index that were looked at.
    pub(crate) skip: usize,
    /// Shown before the index had them, on any page: they will stand somewhere in it.
    new: Vec<Prefix>,
    /// The last hits that were shown, a page of them or as many as were new: by so much they may have moved down.
    last: Vec<Prefix>,
}

impl SearchCursor {
    /// The beginning.
    pub(crate) fn first(now: Timestamp) -> Self {
        Self { now, skip: 0, new: Vec::new(), last: Vec::new() }
    }

    pub(crate) fn has_shown(&self, id: &EventId) -> bool {
        self.new.contains(&id.prefix()) || self.last.contains(&id.prefix())
    }

    /// The cursor of the page after one with these ids; `None`: this is as far as it goes.
    pub(crate) fn next(
        mut self,
        skip: usize,
        new: impl Iterator<Item = EventId>,
        indexed: impl Iterator<Item = EventId>,
    ) -> Option<Self> {
        self.skip = skip;
        self.new.extend(new.map(|id| id.prefix()));
        let page: Vec<Prefix> = indexed.map(|id| id.prefix()).collect();
        let kept = page.len().max(self.new.len());
        self.last.extend(page);
        self.last.drain(..self.last.len().saturating_sub(kept));
        self.is_within_bounds().then_some(self)
    }

    fn is_within_bounds(&self) -> bool {
        self.now <= Timestamp::MAX_IN_EVENT
            && self.skip <= MOST_SKIPPED
            && self.new.len() <= MOST_SHOWN
            && self.last.len() <= MOST_SHOWN
    }

    pub(crate) fn to_text(&self) -> String {
        let text = |prefixes: &[Prefix]| -> String {
            prefixes.iter().map(|prefix| format!("{:016x}", u64::from_be_bytes(*prefix))).collect()
        };
        format!("{}.{}.{}.{}", self.now, self.skip, text(&self.new), text(&self.last))
    }

    pub(crate) fn read(text: &str) -> Result<Self, Problem> {
        Self::parse(text).ok_or_else(bad)
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        let [now, skip, new, last] = parts[..] else { return None };
        let cursor = Self {
            now: Timestamp(decimal(now)?),
            skip: usize::try_from(decimal(skip)?).ok()?,
            new: prefixes(new)?,
            last: prefixes(last)?,
        };
        cursor.is_within_bounds().then_some(cursor)
    }
}

fn prefixes(text: &str) -> Option<Vec<Prefix>> {
    let prefix = |digits: &[u8]| {
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        Some(u64::from_str_radix(digits, 16).ok()?.to_be_bytes())
    };
    text.as_bytes().chunks(16).map(prefix).collect()
}

/// The cursor of a snapshot as a text.
pub(crate) fn snapshot_to_text(cursor: SnapshotCursor) -> String {
    format!("{}.{}", cursor.seq.unwrap_or_default(), cursor.after)
}

/// And back.
pub(crate) fn read_snapshot(text: &str) -> Result<SnapshotCursor, Problem> {
    let (seq, after) = text.split_once('.').ok_or_else(bad)?;
    let cursor = SnapshotCursor { seq: decimal(seq).map(Seq), after: decimal(after).ok_or_else(bad)? };
    if cursor.seq.is_some() { Ok(cursor) } else { Err(bad()) }
}

/// Digits only, and no more than every store can count to.
fn decimal(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_plain && i64::try_from(*number).is_ok())
}

fn bad() -> Problem {
    invalid("`cursor` is not one that this node gave out; begin without it")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was() {
        let first = SearchCursor::first(Timestamp(1_700_000_000));
        let ids = |bytes: [u8; 2]| bytes.into_iter().map(|byte| EventId::from_bytes([byte; 32]));
        let next = first.clone().next(20, ids([1, 255]), ids([2, 3])).unwrap();
        assert!(ids([1, 2]).all(|id| next.has_shown(&id)) && !ids([4, 5]).any(|id| next.has_shown(&id)));
        for cursor in [first, next] {
            assert_eq!(SearchCursor::read(&cursor.to_text()).unwrap(), cursor);
        }
        let cursor = SnapshotCursor { seq: Some(Seq(7)), after: 12 };
        assert_eq!(read_snapshot(&snapshot_to_text(cursor)).unwrap(), cursor);
    }

    #[test]
    fn what_is_no_cursor_is_refused_and_none_asks_for_too_much() {
        let too_many = format!("1.2.{}", "0".repeat(16 * (MOST_SHOWN + 1)));
        for text in
            ["", ".", "..", "1.2", "a.2.", "1.-2.", "1.+2.", "1.10001.", "1.2.00", "1.2.é000000000000000", &too_many]
        {
            assert!(SearchCursor::read(text).is_err(), "{text}");
        }
        for text in ["", ".", "1", ".1", "1.", "-1.2", "1.99999999999999999999"] {
            assert!(read_snapshot(text).is_err(), "{text}");
        }
        assert_eq!(SearchCursor::first(Timestamp(1)).next(MOST_SKIPPED + 1, [].into_iter(), [].into_iter()), None);
    }
}
