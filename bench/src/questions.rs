//! The requests: six shapes of about fifty events each, with the right answers.

use std::collections::HashSet;

use kukuri_domain::EventId;
use kukuri_testing::frames::text_frame;
use serde_json::{Value, json};

use crate::{
    corpus::{Corpus, Fact, REGULARS, THREADS, regular, thread, topic_id},
    oracle::Oracle,
};

const LIMIT: usize = 50;
/// Different questions of one shape.
const EACH: u64 = 96;
/// The largest topics: in each of them every shape finds fifty, or nearly, from 10,000 events on.
const ASKED: u64 = 6;

/// Which events a filter is for.
type Matches = Box<dyn Fn(&Fact) -> bool>;

/// The names of the shapes.
pub(crate) const SHAPES: [&str; 6] =
    ["topic", "topic + kinds", "topic + author", "topic + 50 ids", "topic + e tag", "topic, since and until"];

/// A question, ready to be sent, and the right answer.
pub(crate) struct Question {
    /// Of which shape.
    pub(crate) shape: usize,
    /// By two subscriptions, in turns: one is closed and the other one asked for in one message.
    frames: [Vec<u8>; 2],
    /// How long the part is that closes.
    closing: usize,
    pub(crate) expected: Vec<EventId>,
}

/// The names of the two subscriptions.
pub(crate) const SUBSCRIPTIONS: [&str; 2] = ["qa", "qb"];

impl Question {
    fn new(shape: usize, filter: &Value, expected: Vec<EventId>) -> Self {
        let ask = |name: &str| text_frame(json!(["REQ", name, filter]).to_string().as_bytes());
        let close = |name: &str| text_frame(json!(["CLOSE", name]).to_string().as_bytes());
        let [a, b] = SUBSCRIPTIONS;
        let frames = [[close(b), ask(a)].concat(), [close(a), ask(b)].concat()];
        Self { shape, frames, closing: close(a).len(), expected }
    }

    /// The frames that ask it as the nth request of a connection.
    pub(crate) fn frames(&self, turn: usize) -> &[u8] {
        let frames = &self.frames[turn % 2];
        if turn == 0 { &frames[self.closing..] } else { frames }
    }
}

/// Questions of all shapes, in turns. `made` events of the corpus are there to be found.
pub(crate) fn questions(corpus: &Corpus, oracle: &Oracle, made: u64) -> Vec<Question> {
    let mut all = Vec::with_capacity(SHAPES.len() * EACH as usize);
    for n in 0..EACH {
        for shape in 0..SHAPES.len() {
            all.push(question(corpus, oracle, made, shape, n));
        }
    }
    all
}

fn question(corpus: &Corpus, oracle: &Oracle, made: u64, shape: usize, n: u64) -> Question {
    let (topic, round) = (n % ASKED, n / ASKED);
    let facts = oracle.topic(topic);
    // Somewhere in the past of this topic, another place each time.
    let place = (facts.len() * round as usize) / (EACH / ASKED) as usize;
    let (mut filter, matches): (Value, Matches) = match shape {
        0 => (json!({}), Box::new(|_| true)),
        1 => {
            let kinds = [[1, 1111], [1, 9], [9, 7], [7, 1111]][round as usize % 4];
            (json!({ "kinds": kinds }), Box::new(move |fact| kinds.contains(&fact.kind)))
        }
        2 => {
            let author = regular(topic, round % REGULARS);
            (json!({ "authors": [corpus.pubkey(author).to_string()] }), Box::new(move |fact| fact.author == author))
        }
        3 => {
            let step = (facts.len() / LIMIT).max(1);
            let ids: HashSet<EventId> =
                facts.iter().skip(round as usize % step).step_by(step).take(LIMIT).map(|fact| fact.id).collect();
            let mut named: Vec<String> = ids.iter().map(EventId::to_string).collect();
            named.sort_unstable();
            (json!({ "ids": named }), Box::new(move |fact| ids.contains(&fact.id)))
        }
        4 => {
            let root = thread(corpus_place(made, round), topic, u64::from(round % 8 == 7) % THREADS);
            (json!({ "#e": [corpus.root(root).to_string()] }), Box::new(move |fact| fact.thread == Some(root)))
        }
        _ => {
            let until = facts.get(place).map_or(0, |fact| fact.created_at);
            let since = facts.get(place + LIMIT).or(facts.last()).map_or(0, |fact| fact.created_at);
            let matches = move |fact: &Fact| (since..=until).contains(&fact.created_at);
            (json!({ "since": since, "until": until }), Box::new(matches))
        }
    };
    filter["#t"] = json!([topic_id(topic)]);
    filter["limit"] = json!(LIMIT);
    Question::new(shape, &filter, oracle.answer(topic, LIMIT, matches))
}

/// A question by ids, at most as many as one message may name.
pub(crate) fn by_ids(topic: u64, ids: &[EventId]) -> Question {
    let named: Vec<String> = ids.iter().map(EventId::to_string).collect();
    let filter = json!({ "ids": named, "#t": [topic_id(topic)], "limit": ids.len() });
    Question::new(3, &filter, ids.to_vec())
}

/// The number of an event of which all the time around it is there, one of sixteen over the corpus.
fn corpus_place(made: u64, round: u64) -> u64 {
    made.saturating_sub(1) * (round % 16 + 1) / 17
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_finds_about_fifty_events_at_the_smallest_size_that_is_compared() {
        let corpus = Corpus::new(1, 1_760_000_000).unwrap();
        let made = corpus.made(0..10_000).unwrap();
        let oracle = Oracle::new(made.iter().map(|made| &made.fact));
        let questions = questions(&corpus, &oracle, 10_000);
        for (shape, name) in SHAPES.iter().enumerate() {
            let of_shape: Vec<_> = questions.iter().filter(|question| question.shape == shape).collect();
            let mean = of_shape.iter().map(|question| question.expected.len()).sum::<usize>() / of_shape.len();
            assert!((43..=50).contains(&mean), "{name}: {mean} events");
        }
    }

    #[test]
    fn a_question_is_asked_by_two_subscriptions_in_turns() {
        let question = by_ids(0, &[EventId::from_bytes([1; 32])]);
        let text = |turn| String::from_utf8_lossy(question.frames(turn)).into_owned();
        assert!(!text(0).contains("CLOSE") && text(0).contains(r#""qa""#));
        assert!(text(1).contains(r#"["CLOSE","qa"]"#) && text(1).contains(r#"["REQ","qb""#));
        assert!(text(2).contains(r#"["CLOSE","qb"]"#) && text(2).contains(r#"["REQ","qa""#));
    }
}
