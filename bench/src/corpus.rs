//! Made-up events that resemble a busy community: a few large topics and many small ones, a few loud authors and many
//! quiet ones, replies and reactions to recent posts. The same seed gives the same events.

use std::sync::Arc;

use kukuri_domain::{
    Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Signature, Tags, Timestamp, TopicId,
    topic::{Mapping, TopicRules},
};

/// The clock of the corpus starts here and ticks once per this many events.
const START: u64 = 1_760_000_000;
const EVENTS_PER_SECOND: u64 = 20;
const TOPICS: usize = 50;
const AUTHORS: u64 = 10_000;
/// Replies refer to posts among the last of this many.
const RECENT: usize = 5_000;

/// A source of events.
pub(crate) struct Corpus {
    random: Random,
    admission: Admission,
    topics: Vec<TopicId>,
    recent: Vec<(EventId, PublicKey)>,
    made: u64,
}

impl Corpus {
    pub(crate) fn new(seed: u64) -> anyhow::Result<Self> {
        let rules = TopicRules::default();
        let topics =
            (0..TOPICS).map(|n| TopicId::from_name("kukuri:bench:", &format!("topic {n}"), Mapping::V1, &rules));
        Ok(Self {
            random: Random(seed),
            admission: Admission::default(),
            topics: topics.collect::<Result<_, _>>()?,
            recent: Vec::with_capacity(RECENT),
            made: 0,
        })
    }

    /// The same, as it goes on after so many events of another.
    pub(crate) fn after(seed: u64, made: u64) -> anyhow::Result<Self> {
        Ok(Self { made, ..Self::new(seed)? })
    }

    /// How many events were made.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// The next events.
    pub(crate) fn take(&mut self, count: usize) -> anyhow::Result<Vec<Admitted>> {
        (0..count).map(|_| self.next()).collect()
    }

    /// The time at which the last event was made.
    pub(crate) fn now(&self) -> Millis {
        Millis::from_secs(START + self.made / EVENTS_PER_SECOND)
    }

    pub(crate) fn topic(&mut self) -> TopicId {
        let index = self.random.skewed(TOPICS as u64) as usize;
        self.topics[index].clone()
    }

    pub(crate) fn author(&mut self) -> PublicKey {
        author(self.random.skewed(AUTHORS))
    }

    fn next(&mut self) -> anyhow::Result<Admitted> {
        self.made += 1;
        let pubkey = self.author();
        let topic = self.topic();
        let mut tags = vec![vec!["t".to_owned(), topic.to_string()]];
        let (kind, length) = match self.random.below(100) {
            0..60 => (1, 60 + self.random.below(700)),
            60..85 => (7, 1),
            85..90 => (1111, 40 + self.random.below(500)),
            90..94 => (0, 200),
            94..96 => (10_002, 0),
            96..98 => {
                tags.push(vec!["d".to_owned(), format!("article-{}", self.random.below(20))]);
                tags.push(vec!["title".to_owned(), "a title of some length".to_owned()]);
                (30_023, 1_000 + self.random.below(4_000))
            }
            _ => (6, 0),
        };
        if matches!(kind, 1 | 6 | 7 | 1111) {
            self.refer(&mut tags);
        }
        if self.random.below(3) == 0 {
            tags.push(vec!["t".to_owned(), format!("hashtag{}", self.random.skewed(500))]);
        }
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey,
            created_at: self.now().seconds(),
            kind: Kind(kind),
            tags: tags.into_iter().collect::<Tags>(),
            content: self.text(length),
            sig: Signature::from_bytes([0x5a; 64]),
        };
        event.created_at = Timestamp(event.created_at.0 - self.random.below(30));
        event.id = event.true_id();
        if kind == 1 {
            let place = self.random.below(RECENT as u64) as usize;
            match self.recent.get_mut(place) {
                Some(post) => *post = (event.id, pubkey),
                None => self.recent.push((event.id, pubkey)),
            }
        }
        let now = self.now();
        Ok(self.admission.screen(event, Origin::Client { authenticated: Arc::default() }, now)?.trusted())
    }

    /// Adds an `e` and a `p` of a recent post.
    fn refer(&mut self, tags: &mut Vec<Vec<String>>) {
        if self.recent.is_empty() {
            return;
        }
        let index = self.random.below(self.recent.len() as u64) as usize;
        let (id, pubkey) = self.recent[index];
        tags.push(vec!["e".to_owned(), id.to_string(), String::new(), "reply".to_owned()]);
        tags.push(vec!["p".to_owned(), pubkey.to_string()]);
    }

    fn text(&mut self, length: u64) -> String {
        const WORDS: [&str; 12] = [
            "今日は",
            "relay",
            "the ",
            "東京",
            " event",
            "トピック",
            " of ",
            "community ",
            "です",
            " and ",
            "node ",
            "。\n",
        ];
        let mut text = String::with_capacity(length as usize + 16);
        while (text.len() as u64) < length {
            text.push_str(WORDS[self.random.below(WORDS.len() as u64) as usize]);
        }
        text
    }
}

fn author(number: u64) -> PublicKey {
    let mut random = Random(number ^ 0x5eed);
    let mut bytes = [0; 32];
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_be_bytes()));
    PublicKey::from_bytes(bytes)
}

/// A number that looks random, the same for the same one.
pub(crate) fn mixed(number: u64) -> u64 {
    Random(number).next()
}

/// SplitMix64: small, fast, good enough to choose with.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Small numbers far more often than large ones.
    pub(crate) fn skewed(&mut self, bound: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (bound as f64 * unit * unit * unit) as u64
    }
}
