//! The right answers, computed from the corpus by the simplest code there is: newest first, ties by the lower id, of
//! replaceable and addressable events the newest version only (NIP-01; E-3, W-1).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use kukuri_domain::EventId;

use crate::corpus::{Facts, has_versions};

/// Everything that can be found, by topic.
pub(crate) struct Oracle {
    topics: BTreeMap<u64, Vec<Facts>>,
    times: HashMap<EventId, u64>,
}

/// How an answer compares with the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    /// Right but for the order of events of the same second.
    Ties,
    Wrong,
}

impl Oracle {
    pub(crate) fn new<'f>(facts: impl IntoIterator<Item = &'f Facts>) -> Self {
        let mut topics: BTreeMap<u64, Vec<Facts>> = BTreeMap::new();
        let mut versions: HashMap<(u16, u64, Option<u64>), &Facts> = HashMap::new();
        for fact in facts {
            if has_versions(fact.kind) {
                let known = versions.entry((fact.kind, fact.author, fact.article)).or_insert(fact);
                if place(fact) < place(known) {
                    *known = fact;
                }
            } else {
                topics.entry(fact.topic).or_default().push(fact.clone());
            }
        }
        for fact in versions.into_values() {
            topics.entry(fact.topic).or_default().push(fact.clone());
        }
        topics.values_mut().for_each(|facts| facts.sort_by_key(place));
        let times = topics.values().flatten().map(|fact| (fact.id, fact.created_at)).collect();
        Self { topics, times }
    }

    /// The effective events of a topic, in the order of an answer.
    pub(crate) fn topic(&self, topic: u64) -> &[Facts] {
        self.topics.get(&topic).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = u64> {
        self.topics.keys().copied()
    }

    /// How many events there are to be found.
    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// The answer to a filter.
    pub(crate) fn answer(&self, topic: u64, limit: usize, matches: impl Fn(&Facts) -> bool) -> Vec<EventId> {
        self.topic(topic).iter().filter(|fact| matches(fact)).take(limit).map(|fact| fact.id).collect()
    }

    /// Compares an answer with the right one.
    pub(crate) fn judge(&self, expected: &[EventId], found: &[EventId]) -> Verdict {
        if expected == found {
            return Verdict::Right;
        }
        let times = |ids: &[EventId]| ids.iter().map(|id| self.times.get(id).copied()).collect::<Vec<_>>();
        let (mut all, mut right) = (found.to_vec(), expected.to_vec());
        all.sort_unstable();
        right.sort_unstable();
        let is_same = |id: &EventId| self.times.get(id) == expected.last().and_then(|last| self.times.get(last));
        // Of those at the cut, others of the same second may stand.
        let differs = all.iter().any(|id| right.binary_search(id).is_err() && !is_same(id));
        all.dedup();
        if all.len() == found.len() && times(expected) == times(found) && !differs {
            Verdict::Ties
        } else {
            Verdict::Wrong
        }
    }
}

fn place(fact: &Facts) -> (Reverse<u64>, EventId) {
    (Reverse(fact.created_at), fact.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(id: u8, created_at: u64, kind: u16) -> Facts {
        let id = EventId::from_bytes([id; 32]);
        Facts { id, created_at, kind, topic: 1, author: 5, thread: None, article: None }
    }

    fn ids(numbers: &[u8]) -> Vec<EventId> {
        numbers.iter().map(|number| EventId::from_bytes([*number; 32])).collect()
    }

    #[test]
    fn answers_are_newest_first_and_the_lower_id_wins_a_tie() {
        let oracle = Oracle::new(&[fact(3, 10, 1), fact(1, 20, 1), fact(2, 10, 1), fact(9, 30, 7)]);
        assert_eq!(oracle.answer(1, 50, |_| true), ids(&[9, 1, 2, 3]));
        assert_eq!(oracle.answer(1, 2, |fact| fact.kind == 1), ids(&[1, 2]));
        assert!(oracle.answer(2, 50, |_| true).is_empty(), "another topic");
    }

    #[test]
    fn only_the_newest_version_is_found_in_any_topic() {
        let article = |id, at, number| Facts { article: Some(number), ..fact(id, at, 30_023) };
        let elsewhere = Facts { topic: 2, ..fact(4, 30, 0) };
        let all = [
            fact(1, 10, 0),
            elsewhere,
            fact(2, 20, 0),
            article(6, 40, 1),
            article(5, 40, 1),
            article(7, 5, 2),
            Facts { author: 6, ..fact(8, 1, 0) },
        ];
        let oracle = Oracle::new(&all);
        assert_eq!(oracle.answer(1, 50, |_| true), ids(&[5, 7, 8]), "a tie goes to the lower id");
        assert_eq!(oracle.answer(2, 50, |_| true), ids(&[4]));
        assert_eq!(oracle.len(), 4);
    }

    #[test]
    fn answers_are_right_wrong_or_differ_in_order_within_a_second() {
        let oracle = Oracle::new(&[fact(1, 10, 1), fact(2, 10, 1), fact(3, 20, 1), fact(4, 30, 1)]);
        let expected = ids(&[4, 3, 1]);
        for (found, verdict) in [
            (&[4, 3, 1][..], Verdict::Right),
            (&[4, 3, 2], Verdict::Ties),
            (&[3, 4, 1], Verdict::Wrong),
            (&[4, 3], Verdict::Wrong),
            (&[4, 3, 1, 2], Verdict::Wrong),
            (&[4, 3, 9], Verdict::Wrong),
            (&[4, 3, 3], Verdict::Wrong),
        ] {
            assert_eq!(oracle.judge(&expected, &ids(found)), verdict, "{found:?}");
        }
    }
}
