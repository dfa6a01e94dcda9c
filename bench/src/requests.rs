//! The requests: six shapes of about fifty events each, with the right answers.

use std::collections::HashSet;

use kukuri_domain::EventId;
use kukuri_testing::frames::text_frame;
use serde_json::{Value, json};

use crate::{
    corpus::{Corpus, Facts, REGULARS, THREADS, regular, thread, topic_id},
    oracle::Oracle,
};

const LIMIT: usize = 50;
/// Different requests of one shape.
const PER_SHAPE: u64 = 96;
/// The largest topics: in each of them every shape finds fifty, or nearly, from 10,000 events on.
const TOPICS: u64 = 6;

/// The names of the shapes.
pub(crate) const SHAPES: [&str; 6] =
    ["topic", "topic + kinds", "topic + author", "topic + 50 ids", "topic + e tag", "topic, since and until"];

/// The names of the two subscriptions of a connection.
const SUBSCRIPTIONS: [&str; 2] = ["qa", "qb"];

/// A request, ready to be sent, and the right answer.
pub(crate) struct Request {
    /// An index of [`SHAPES`].
    pub(crate) shape: usize,
    pub(crate) filter: Value,
    /// For each subscription: the other one is closed, and this one opened.
    frames: [Vec<u8>; 2],
    pub(crate) expected: Vec<EventId>,
}

impl Request {
    fn new(shape: usize, filter: Value, expected: Vec<EventId>) -> Self {
        let frame = |message: Value| text_frame(message.to_string().as_bytes());
        let open = |own, other| [frame(json!(["CLOSE", other])), frame(json!(["REQ", own, filter]))].concat();
        let [a, b] = SUBSCRIPTIONS;
        Self { shape, frames: [open(a, b), open(b, a)], expected, filter }
    }

    /// A request by ids, at most as many as one message may name.
    pub(crate) fn by_ids(topic: u64, ids: &[EventId]) -> Self {
        let named: Vec<String> = ids.iter().map(EventId::to_string).collect();
        Self::new(3, json!({ "ids": named, "#t": [topic_id(topic)], "limit": ids.len() }), ids.to_vec())
    }

    /// The subscription and the frames of the nth request of a connection. The two subscriptions take turns: some relays
    /// send CLOSED for the one before when the next is open already.
    pub(crate) fn nth(&self, n: usize) -> (&'static str, &[u8]) {
        (SUBSCRIPTIONS[n % 2], &self.frames[n % 2])
    }
}

/// Requests of all shapes, in turns. The first `stored` events of the corpus can be found.
pub(crate) fn requests(corpus: &Corpus, oracle: &Oracle, stored: u64) -> Vec<Request> {
    let shapes = |n| (0..SHAPES.len()).map(move |shape| request(corpus, oracle, stored, shape, n));
    (0..PER_SHAPE).flat_map(shapes).collect()
}

fn request(corpus: &Corpus, oracle: &Oracle, stored: u64, shape: usize, n: u64) -> Request {
    let (topic, round) = (n % TOPICS, n / TOPICS);
    let facts = oracle.topic(topic);
    let answer = |matches: &dyn Fn(&Facts) -> bool| oracle.answer(topic, LIMIT, matches);
    let (mut filter, expected) = match shape {
        0 => (json!({}), answer(&|_| true)),
        1 => {
            let kinds = [[1, 1111], [1, 9], [9, 7], [7, 1111]][round as usize % 4];
            (json!({ "kinds": kinds }), answer(&|facts| kinds.contains(&facts.kind)))
        }
        2 => {
            let author = regular(topic, round % REGULARS);
            (json!({ "authors": [corpus.pubkey(author).to_string()] }), answer(&|facts| facts.author == author))
        }
        3 => {
            let step = (facts.len() / LIMIT).max(1);
            let ids: HashSet<EventId> =
                facts.iter().skip(round as usize % step).step_by(step).take(LIMIT).map(|facts| facts.id).collect();
            let mut named: Vec<String> = ids.iter().map(EventId::to_string).collect();
            named.sort_unstable();
            (json!({ "ids": named }), answer(&|facts| ids.contains(&facts.id)))
        }
        4 => {
            // A thread of one of sixteen times over the corpus, of which all the time around it is stored.
            let n = stored.saturating_sub(1) * (round % 16 + 1) / 17;
            let root = thread(n, topic, u64::from(round % 8 == 7) % THREADS);
            (json!({ "#e": [corpus.id(root).to_string()] }), answer(&|facts| facts.thread == Some(root)))
        }
        _ => {
            // Somewhere in the past of this topic, another time in each round.
            let newest = facts.len() * round as usize / (PER_SHAPE / TOPICS) as usize;
            let until = facts.get(newest).map_or(0, |facts| facts.created_at);
            let since = facts.get(newest + LIMIT).or(facts.last()).map_or(0, |facts| facts.created_at);
            let expected = answer(&|facts| (since..=until).contains(&facts.created_at));
            (json!({ "since": since, "until": until }), expected)
        }
    };
    filter["#t"] = json!([topic_id(topic)]);
    filter["limit"] = json!(LIMIT);
    Request::new(shape, filter, expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_finds_about_fifty_events_at_the_smallest_size_that_is_compared() {
        let corpus = Corpus::new(1, 1_760_000_000).unwrap();
        let signed = corpus.signed(0..10_000);
        let oracle = Oracle::new(signed.iter().map(|event| &event.facts));
        let requests = requests(&corpus, &oracle, 10_000);
        for (shape, name) in SHAPES.iter().enumerate() {
            let of_shape: Vec<_> = requests.iter().filter(|request| request.shape == shape).collect();
            let mean = of_shape.iter().map(|request| request.expected.len()).sum::<usize>() / of_shape.len();
            assert!((43..=50).contains(&mean), "{name}: {mean} events");
        }
    }

    #[test]
    fn two_subscriptions_of_a_connection_take_turns() {
        let request = Request::by_ids(0, &[EventId::from_bytes([1; 32])]);
        for (n, own, other) in [(0, "qa", "qb"), (1, "qb", "qa"), (2, "qa", "qb")] {
            let (subscription, frames) = request.nth(n);
            let text = String::from_utf8_lossy(frames);
            assert_eq!(subscription, own);
            assert!(text.contains(&format!(r#"["CLOSE","{other}"]"#)) && text.contains(&format!(r#"["REQ","{own}""#)));
        }
    }
}
