//! Events that the index has not reached yet, and their tokens. All requests share the tokens, so that an event is read and
//! tokenised once, however many searches come before it is indexed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use kukuri_domain::{EventId, Kind, Timestamp, TopicId};
use kukuri_store::{Epoch, Op, OutboxRow, Seq};

use crate::{index::Search, query::SearchQuery};

/// An event that the index has not reached, as its outbox rows describe it.
pub(crate) struct UnindexedEvent {
    /// Of its newest row.
    pub(crate) seq: Seq,
    pub(crate) id: EventId,
    kind: Kind,
    created_at: Timestamp,
    /// The topics that the index lacks.
    topics: Vec<TopicId>,
    /// `None`: no search of this request has needed them.
    pub(crate) tokens: Option<Arc<EventTokens>>,
}

impl UnindexedEvent {
    /// The events of these rows whose kinds are indexed, the newest first, each once.
    pub(crate) fn of_rows(rows: Vec<OutboxRow>, indexed_kinds: &BTreeSet<Kind>) -> Vec<Self> {
        let mut events: Vec<Self> = Vec::new();
        let mut places = HashMap::new();
        let is_upsert = |row: &OutboxRow| row.op == Op::Upsert && indexed_kinds.contains(&row.kind);
        for row in rows.into_iter().rev().filter(is_upsert) {
            let OutboxRow { seq, event_id: id, kind, created_at, topic, .. } = row;
            let place = *places.entry(id).or_insert_with(|| {
                events.push(Self { seq, id, kind, created_at, topics: Vec::new(), tokens: None });
                events.len() - 1
            });
            events[place].topics.push(topic);
        }
        events
    }

    /// Whether the event meets the restrictions of a search, as far as its rows tell.
    pub(crate) fn may_meet(&self, search: &Search) -> bool {
        search.topics.as_ref().is_none_or(|topics| topics.iter().any(|topic| self.topics.contains(topic)))
            && search.kinds.as_ref().is_none_or(|kinds| kinds.contains(&self.kind))
            && search.since.is_none_or(|since| self.created_at >= since)
            && search.until.is_none_or(|until| self.created_at <= until)
    }
}

/// Hashes of the distinct tokens of one event, ascending. The hash is keyed at random, so that nobody can make texts collide.
pub(crate) struct EventTokens {
    id: EventId,
    /// Bytes of the event's JSON.
    pub(crate) bytes: usize,
    hashes: Box<[u64]>,
}

/// The tokens of the newest events of one epoch, by the outbox row that announced them.
pub(crate) struct UnindexedTokens {
    hasher: RandomState,
    max_bytes: usize,
    bytes: usize,
    epoch: Epoch,
    events: BTreeMap<Seq, Arc<EventTokens>>,
}

impl UnindexedTokens {
    /// `max_bytes`: of the events' JSON; the oldest give way.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { hasher: RandomState::new(), max_bytes, bytes: 0, epoch: Epoch::default(), events: BTreeMap::new() }
    }

    /// Forgets the events up to this row, which are in the index, and those of another epoch: once the store has gone back, their
    /// rows may be higher than all that follow (Y-5).
    pub(crate) fn forget_until(&mut self, epoch: Epoch, reached: Seq) {
        if self.epoch != epoch {
            self.events.clear();
            (self.epoch, self.bytes) = (epoch, 0);
        }
        while self.events.first_key_value().is_some_and(|(seq, _)| *seq <= reached) {
            self.remove_oldest();
        }
    }

    /// The tokens of the event that this row announced, if they are known.
    pub(crate) fn get(&self, seq: Seq, id: EventId) -> Option<Arc<EventTokens>> {
        self.events.get(&seq).filter(|tokens| tokens.id == id).cloned()
    }

    /// The tokens of an event, which are kept if this is still its epoch. `words`: of one that is not to be found, none.
    pub(crate) fn insert<'t>(
        &mut self,
        epoch: Epoch,
        event: &UnindexedEvent,
        bytes: usize,
        words: impl Iterator<Item = &'t str>,
    ) -> Arc<EventTokens> {
        let mut hashes: Vec<u64> = words.map(|word| self.hasher.hash_one(word)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        let tokens = Arc::new(EventTokens { id: event.id, bytes, hashes: hashes.into() });
        if epoch == self.epoch {
            self.bytes += bytes;
            if let Some(former) = self.events.insert(event.seq, Arc::clone(&tokens)) {
                self.bytes -= former.bytes;
            }
            while self.bytes > self.max_bytes && self.events.len() > 1 {
                self.remove_oldest();
            }
        }
        tokens
    }

    fn remove_oldest(&mut self) {
        if let Some((_, tokens)) = self.events.pop_first() {
            self.bytes -= tokens.bytes;
        }
    }

    /// The hashes that an event must have to match a query.
    pub(crate) fn hashes_of(&self, query: &SearchQuery) -> Vec<u64> {
        query.tokens().iter().map(|token| self.hasher.hash_one(token.as_str())).collect()
    }
}

impl EventTokens {
    /// Whether the event has all of these tokens.
    pub(crate) fn has_all(&self, hashes: &[u64]) -> bool {
        hashes.iter().all(|hash| self.hashes.binary_search(hash).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::Millis;

    use super::*;

    const EPOCH: Epoch = Epoch(1);

    fn id(number: u8) -> EventId {
        EventId::from_bytes([number; 32])
    }

    fn topic(number: u8) -> TopicId {
        TopicId::new_unchecked(&format!("kukuri:{}", format!("{number:02x}").repeat(32)))
    }

    fn row(seq: u64, number: u8, in_topic: u8) -> OutboxRow {
        OutboxRow {
            seq: Seq(seq),
            op: Op::Upsert,
            event_id: id(number),
            topic: topic(in_topic),
            kind: Kind(1),
            created_at: Timestamp(100),
            ingested_at: Millis(0),
            effective_key: None,
            written_at: Millis(0),
        }
    }

    fn event(seq: u64, number: u8) -> UnindexedEvent {
        UnindexedEvent::of_rows(vec![row(seq, number, 0)], &BTreeSet::from([Kind(1)])).remove(0)
    }

    fn known(tokens: &UnindexedTokens) -> Vec<u8> {
        (1..=9).filter(|number| tokens.get(Seq((*number).into()), id(*number)).is_some()).collect()
    }

    #[test]
    fn tokens_are_known_until_the_index_has_them_or_newer_ones_need_the_room() {
        let mut tokens = UnindexedTokens::new(100);
        tokens.forget_until(EPOCH, Seq(0));
        for number in 1..=5 {
            tokens.insert(EPOCH, &event(number.into(), number), 30, ["tea", "東京"].into_iter());
        }
        assert_eq!(known(&tokens), [3, 4, 5], "90 of 100 bytes");
        tokens.forget_until(EPOCH, Seq(3));
        assert_eq!((known(&tokens), tokens.bytes), (vec![4, 5], 60));
        assert!(tokens.get(Seq(4), id(9)).is_none(), "the same row of another store");
        tokens.insert(EPOCH, &event(4, 9), 10, [].into_iter());
        assert_eq!((known(&tokens), tokens.bytes), (vec![5], 40));
        tokens.insert(EPOCH, &event(6, 6), 200, [].into_iter());
        assert!(tokens.get(Seq(6), id(6)).is_some(), "one event of any size");
    }

    #[test]
    fn tokens_of_another_epoch_do_not_push_out_those_of_this_one() {
        // Y-5
        let mut tokens = UnindexedTokens::new(100);
        tokens.forget_until(EPOCH, Seq(0));
        for number in 7..=9 {
            tokens.insert(EPOCH, &event(number.into(), number), 30, ["tea"].into_iter());
        }
        let restored = Epoch(2);
        tokens.forget_until(restored, Seq(0));
        assert_eq!((known(&tokens), tokens.bytes), (vec![], 0));
        for number in 1..=3 {
            tokens.insert(restored, &event(number.into(), number), 30, ["tea"].into_iter());
        }
        // A request that began before the store went back.
        let late = tokens.insert(EPOCH, &event(9, 9), 30, ["tea"].into_iter());
        assert_eq!((known(&tokens), tokens.bytes, late.hashes.len()), (vec![1, 2, 3], 90, 1));
    }

    #[test]
    fn an_event_matches_if_it_has_every_token() {
        let mut tokens = UnindexedTokens::new(100);
        let event = tokens.insert(EPOCH, &event(1, 1), 1, ["rust", "東京", "京都", "rust"].into_iter());
        for (text, matches) in [("Rust", true), ("rust 東京都", true), ("rust tea", false), ("rus", false)] {
            let hashes = tokens.hashes_of(&SearchQuery::parse(text).unwrap());
            assert_eq!(event.has_all(&hashes), matches, "{text}");
        }
    }

    #[test]
    fn rows_tell_which_searches_an_event_cannot_meet() {
        let rows = vec![
            row(1, 1, 1),
            row(2, 2, 1),
            row(3, 1, 2),
            OutboxRow { kind: Kind(7), ..row(4, 3, 1) },
            OutboxRow { op: Op::Delete(kukuri_domain::Reason::Nip09), ..row(5, 4, 1) },
        ];
        let events = UnindexedEvent::of_rows(rows, &BTreeSet::from([Kind(1)]));
        assert_eq!(events.iter().map(|event| (event.seq.0, event.id)).collect::<Vec<_>>(), [(3, id(1)), (2, id(2))]);
        let any = || Search::new(SearchQuery::parse("tea").unwrap(), Timestamp(100), 10);
        for (search, expected, why) in [
            (any(), [true, true], "no restriction"),
            (Search { topics: Some(vec![topic(2), topic(3)]), ..any() }, [true, false], "a row for each topic"),
            (Search { kinds: Some(vec![Kind(0)]), ..any() }, [false, false], "another kind"),
            (
                Search { since: Some(Timestamp(100)), until: Some(Timestamp(100)), ..any() },
                [true, true],
                "both included",
            ),
            (Search { since: Some(Timestamp(101)), ..any() }, [false, false], "too old"),
            (Search { until: Some(Timestamp(99)), ..any() }, [false, false], "too new"),
        ] {
            assert_eq!([events[0].may_meet(&search), events[1].may_meet(&search)], expected, "{why}");
        }
    }
}
