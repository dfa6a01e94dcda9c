//! Cursors: texts that a caller hands back to get the next page, and need not understand.
//!
//! A cursor names the last row of a page (keyset) wherever the source has an order of its own. It implements `Display`
//! for answers and `TryFrom<String>` for parameters.

use std::fmt;

use data_encoding::HEXLOWER;
use kukuri_domain::{EventId, Timestamp, TopicId, topic::claims_to_be_topic};
use kukuri_store::{Epoch, SnapshotCursor};
use serde::Deserialize;

use crate::{error::Error, position::Position};

/// The most hits that pages can pass over: an index works for all of them again on each page.
const MAX_SKIPPED_HITS: usize = 10_000;
/// The most ids in each list of a search cursor.
const MAX_SHOWN_IDS: usize = 200;

/// The length of the longest text of a search cursor: its numbers, then hex digits of ids.
pub(crate) const MAX_SEARCH_CURSOR_LEN: usize = 64 + 2 * MAX_SHOWN_IDS * 16;

/// The first bytes of an event id: enough to recognise it.
type IdPrefix = [u8; 8];

/// The next page of a search. The index changes between pages, so the cursor lists hits that may come up again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct SearchCursor {
    /// The time of the first page: all pages rank recency by it.
    pub(crate) now: Timestamp,
    /// Hits of the index on the pages before.
    pub(crate) skip: usize,
    /// Shown on any page before the index had them: the index will return them later.
    unindexed: Vec<IdPrefix>,
    /// The last hits shown. New documents move hits down, by no more than the length of this list.
    last: Vec<IdPrefix>,
}

impl SearchCursor {
    /// Of the first page.
    pub(crate) fn first(now: Timestamp) -> Self {
        Self { now, skip: 0, unindexed: Vec::new(), last: Vec::new() }
    }

    pub(crate) fn has_shown(&self, id: &EventId) -> bool {
        self.unindexed.contains(&id.prefix()) || self.last.contains(&id.prefix())
    }

    /// The cursor after a page with these ids. `None`: it would pass its bounds, and the page is the last.
    pub(crate) fn next(
        mut self,
        skip: usize,
        unindexed: impl Iterator<Item = EventId>,
        indexed: impl Iterator<Item = EventId>,
    ) -> Option<Self> {
        self.skip = skip;
        self.unindexed.extend(unindexed.map(|id| id.prefix()));
        let page: Vec<IdPrefix> = indexed.map(|id| id.prefix()).collect();
        let kept = page.len().max(self.unindexed.len());
        self.last.extend(page);
        self.last.drain(..self.last.len().saturating_sub(kept));
        self.is_within_bounds().then_some(self)
    }

    fn is_within_bounds(&self) -> bool {
        self.now <= Timestamp::MAX_IN_EVENT
            && self.skip <= MAX_SKIPPED_HITS
            && self.unindexed.len() <= MAX_SHOWN_IDS
            && self.last.len() <= MAX_SHOWN_IDS
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split('.').collect();
        let [now, skip, unindexed, last] = fields[..] else { return None };
        let cursor = Self {
            now: Timestamp(decimal(now)?),
            skip: usize::try_from(decimal(skip)?).ok()?,
            unindexed: prefixes(unindexed)?,
            last: prefixes(last)?,
        };
        cursor.is_within_bounds().then_some(cursor)
    }
}

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |prefixes: &[IdPrefix]| -> String {
            prefixes.iter().map(|prefix| format!("{:016x}", u64::from_be_bytes(*prefix))).collect()
        };
        write!(f, "{}.{}.{}.{}", self.now, self.skip, hex(&self.unindexed), hex(&self.last))
    }
}

impl TryFrom<String> for SearchCursor {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        // Only in the spelling of this node.
        Self::parse(&text).filter(|cursor| cursor.to_string() == text).ok_or_else(unknown)
    }
}

fn prefixes(text: &str) -> Option<Vec<IdPrefix>> {
    let prefix = |digits: &[u8]| {
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.len() == 16)?;
        Some(u64::from_str_radix(digits, 16).ok()?.to_be_bytes())
    };
    text.as_bytes().chunks(16).map(prefix).collect()
}

/// The next page of a snapshot: the position it was taken at, and the last row of the page before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct SnapshotPlace {
    pub(crate) epoch: Epoch,
    pub(crate) cursor: SnapshotCursor,
}

impl fmt::Display for SnapshotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.epoch, self.cursor.seq.unwrap_or_default(), self.cursor.after)
    }
}

impl TryFrom<String> for SnapshotPlace {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let place = text.rsplit_once('.').and_then(|(position, after)| {
            let Position { epoch, seq } = Position::parse(position)?;
            Some(Self { epoch, cursor: SnapshotCursor { seq: Some(seq), after: decimal(after)? } })
        });
        // Only in the spelling of this node.
        place.filter(|place| place.to_string() == text).ok_or_else(unknown)
    }
}

/// The next page of requests for topics: time and id of the last one of the page before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct RequestPlace {
    pub(crate) created_at: Timestamp,
    pub(crate) id: String,
}

impl fmt::Display for RequestPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at, self.id)
    }
}

impl TryFrom<String> for RequestPlace {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let place = text
            .split_once('.')
            .filter(|(_, id)| is_uuid(id))
            .and_then(|(created_at, id)| Some(Self { created_at: Timestamp(decimal(created_at)?), id: id.to_owned() }));
        // Only in the spelling of this node.
        place.filter(|place| place.to_string() == text).ok_or_else(unknown)
    }
}

/// The next page of topics: folded name and id of the last one of the page before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct TopicPlace {
    pub(crate) folded_name: String,
    pub(crate) topic: String,
}

impl fmt::Display for TopicPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", HEXLOWER.encode(self.folded_name.as_bytes()), self.topic)
    }
}

impl TryFrom<String> for TopicPlace {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let place = text.split_once('.').and_then(|(name, topic)| {
            let name = HEXLOWER.decode(name.as_bytes()).ok()?;
            let folded_name = String::from_utf8(name).ok().filter(|name| !name.contains('\0'))?;
            let is_id = topic.len() <= TopicId::MAX_LEN && claims_to_be_topic(topic) && !topic.contains('\0');
            is_id.then(|| Self { folded_name, topic: topic.to_owned() })
        });
        place.ok_or_else(unknown)
    }
}

/// Whether a text is written as a UUID of this node.
pub(crate) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// Digits only, and no more than an `i64` holds: Postgres has no larger integer.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_plain && i64::try_from(*number).is_ok())
}

pub(crate) fn unknown() -> Error {
    Error::invalid("not a cursor of this node; begin without one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_survive_the_round_trip_through_text() {
        let first = SearchCursor::first(Timestamp(1_700_000_000));
        let ids = |bytes: [u8; 2]| bytes.into_iter().map(|byte| EventId::from_bytes([byte; 32]));
        let next = first.clone().next(20, ids([1, 255]), ids([2, 3])).unwrap();
        assert!(ids([1, 2]).all(|id| next.has_shown(&id)) && !ids([4, 5]).any(|id| next.has_shown(&id)));
        for cursor in [first, next] {
            assert_eq!(SearchCursor::try_from(cursor.to_string()).unwrap(), cursor);
        }
        let cursor =
            SnapshotPlace { epoch: Epoch(9), cursor: SnapshotCursor { seq: Some(kukuri_store::Seq(7)), after: 12 } };
        assert_eq!(SnapshotPlace::try_from(cursor.to_string()).unwrap(), cursor);
        let id = "0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e".to_owned();
        let cursor = RequestPlace { created_at: Timestamp(1_700_000_000), id };
        assert_eq!(RequestPlace::try_from(cursor.to_string()).unwrap(), cursor);
        let cursor = TopicPlace { folded_name: "お茶 & more".to_owned(), topic: "kukuri:global".to_owned() };
        assert_eq!(TopicPlace::try_from(cursor.to_string()).unwrap(), cursor);
    }

    #[test]
    fn malformed_and_oversized_cursors_are_refused() {
        let too_many = format!("1.2.{}", "0".repeat(16 * (MAX_SHOWN_IDS + 1)));
        for text in
            ["", ".", "..", "1.2", "a.2.", "1.-2.", "1.+2.", "1.10001.", "1.2.00", "1.2.é000000000000000", &too_many]
        {
            assert!(SearchCursor::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["1.2.+000000000000001.", "1.2.000000000000000A.", "01.2.."] {
            assert!(SearchCursor::try_from(text.to_owned()).is_err(), "{text}: this node writes it otherwise");
        }
        for text in [
            "",
            ".",
            "1",
            ".1",
            "1.2",
            "1.2.3",
            "0000000000000001.2",
            "0000000000000001.2.-3",
            "0000000000000001..3",
            "0000000000000001.02.3",
        ] {
            assert!(SnapshotPlace::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in [
            "",
            ".",
            "1",
            "1.2",
            "01.0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e",
            "1.0B0F6C1E-6a53-4a53-9d0a-0a8f6f8c6c1e",
            "1.0b0f6c1e06a53-4a53-9d0a-0a8f6f8c6c1e",
        ] {
            assert!(RequestPlace::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["", ".", "00.kukuri:global", "ff.kukuri:global", "AA.kukuri:global", "61.tea", "61"] {
            assert!(TopicPlace::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert_eq!(SearchCursor::first(Timestamp(1)).next(MAX_SKIPPED_HITS + 1, [].into_iter(), [].into_iter()), None);
    }
}
