//! An event before it has a time of day, an id and a signature: everything that follows from the seed.

use sha2::{Digest, Sha256};

use super::random::Random;

/// Communities. A few are large and most are small.
const TOPICS: u64 = 50;
/// Authors of the whole corpus.
pub(crate) const AUTHORS: u64 = 10_000;
/// Authors of most events of a topic.
pub(crate) const REGULARS: u64 = 3;
/// New threads begin every so often, in events: `THREADS` in each topic, and replies go to the newest.
const EPOCH: u64 = 5_000;
pub(crate) const THREADS: u64 = 2;
/// An event may have been made this many seconds before it is sent.
const LATE: u64 = 30;

/// The nth event.
pub(crate) struct Draft {
    pub(crate) n: u64,
    pub(crate) kind: u16,
    pub(crate) author: u64,
    pub(crate) topic: u64,
    /// Seconds after the first event.
    pub(crate) offset: u64,
    /// The number of the event that it answers.
    pub(crate) thread: Option<u64>,
    /// Which of its author's articles this is a version of.
    pub(crate) article: Option<u64>,
    pub(crate) hashtag: Option<u64>,
    pub(crate) content: String,
}

impl Draft {
    pub(crate) fn new(seed: u64, n: u64) -> Self {
        let mut random = Random::of(seed, n);
        // One a second, more or less in order.
        let offset = (n + LATE).saturating_sub(random.below(LATE));
        if let Some(topic) = thread_begun(n) {
            let author = author(&mut random, topic);
            let content = text(&mut random, 400);
            return Self { n, kind: 1, author, topic, offset, thread: None, article: None, hashtag: None, content };
        }
        let topic = random.skewed(TOPICS);
        let author = author(&mut random, topic);
        let (kind, length) = match random.below(100) {
            0..46 => (1, 20 + random.skewed(1_050)),
            46..60 => (1111, 20 + random.skewed(750)),
            60..78 => (7, 0),
            78..94 => (9, 10 + random.skewed(350)),
            94..98 => (0, 220),
            _ => (30_023, 900 + random.below(1_600)),
        };
        let is_answer = matches!(kind, 7 | 1111) || (kind == 1 && random.below(10) < 7);
        let content = match kind {
            7 => ["+", "🤙", "❤️", "👀"][random.below(4) as usize].to_owned(),
            0 => format!(r#"{{"name":"author {author}","about":"{}"}}"#, text(&mut random, length).replace('\n', " ")),
            _ => text(&mut random, length),
        };
        Self {
            n,
            kind,
            author,
            topic,
            offset,
            thread: is_answer.then(|| thread(n, topic, if random.below(5) == 0 { 1 } else { 0 })),
            article: (kind == 30_023).then(|| random.below(20)),
            hashtag: (random.below(4) == 0).then(|| random.skewed(500)),
            content,
        }
    }

    /// A hash of all of it.
    pub(crate) fn digest(&self, pubkey: &[u8; 32]) -> [u8; 32] {
        let mut hash = Sha256::new();
        let options = [self.thread, self.article, self.hashtag].map(|number| number.unwrap_or(u64::MAX));
        for number in [self.n, u64::from(self.kind), self.topic, self.offset].into_iter().chain(options) {
            hash.update(number.to_be_bytes());
        }
        hash.update(pubkey);
        hash.update(self.content.as_bytes());
        hash.finalize().into()
    }
}

/// The number of the event by which a thread began that the nth may answer.
pub(crate) fn thread(n: u64, topic: u64, which: u64) -> u64 {
    n - n % EPOCH + topic * THREADS + which
}

/// The topic of the thread that the nth event begins, if it does.
fn thread_begun(n: u64) -> Option<u64> {
    let place = n % EPOCH;
    (place < TOPICS * THREADS).then_some(place / THREADS)
}

/// One of a topic's regulars, or anybody.
fn author(random: &mut Random, topic: u64) -> u64 {
    let regulars = TOPICS * REGULARS;
    match random.below(10) {
        0..6 => regular(topic, random.below(REGULARS)),
        _ => regulars + random.skewed(AUTHORS - regulars),
    }
}

/// The number of a regular author of this topic.
pub(crate) fn regular(topic: u64, which: u64) -> u64 {
    topic * REGULARS + which
}

fn text(random: &mut Random, length: u64) -> String {
    const WORDS: [&str; 16] = [
        "今日は",
        "relay ",
        "the ",
        "東京",
        "event ",
        "トピック",
        "of ",
        "community ",
        "です",
        "and ",
        "node ",
        "。\n",
        "a ",
        "しました",
        "together ",
        "、",
    ];
    let mut text = String::with_capacity(length as usize + 16);
    while (text.len() as u64) < length {
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
    }
    text
}
