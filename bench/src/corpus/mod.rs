//! Made-up events that resemble busy communities: a few large topics and many small ones, a few regulars and many others,
//! threads, reactions, chat, profiles and articles in several versions. They are signed.
//!
//! The nth event follows from the seed and n alone, so any part can be made at any time, on all cores. Only the day
//! differs: times end when the run starts, so that no relay finds them too old or too new.
//!
//! - [`draft`]: kind, author, topic, text of an event. [`random`]: the generator behind them.

mod draft;
mod random;

use std::{ops::Range, sync::Arc};

use anyhow::anyhow;
use kukuri_domain::{Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Signature, Tags, Timestamp};
use kukuri_testing::{events::sign, frames::text_frame};
use secp256k1::{Keypair, SecretKey};
use sha2::{Digest, Sha256};

use draft::{AUTHORS, Draft};
pub(crate) use draft::{REGULARS, THREADS, TOPICS, regular, thread};
pub(crate) use random::{Random, mixed};

/// A source of events.
pub(crate) struct Corpus {
    pub(crate) seed: u64,
    /// The time of the first event.
    start: u64,
    keys: Vec<Keypair>,
    pubkeys: Vec<PublicKey>,
}

/// The fields by which filters select an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) id: EventId,
    pub(crate) created_at: u64,
    pub(crate) kind: u16,
    pub(crate) topic: u64,
    pub(crate) author: u64,
    pub(crate) thread: Option<u64>,
    pub(crate) article: Option<u64>,
}

impl Fact {
    /// Whether a newer version may take its place.
    pub(crate) fn has_versions(&self) -> bool {
        matches!(self.kind, 0 | 30_023)
    }
}

/// An event that is ready to be sent.
pub(crate) struct Made {
    pub(crate) fact: Fact,
    /// Its id as text.
    pub(crate) hex: String,
    /// How long it is as JSON.
    pub(crate) json: usize,
    /// The message that publishes it.
    pub(crate) frame: Vec<u8>,
}

impl Corpus {
    /// The corpus of this seed, of which the first event was made at `start`.
    pub(crate) fn new(seed: u64, start: u64) -> anyhow::Result<Self> {
        let keys = parallel(0..AUTHORS, keypair)?.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let pubkeys = keys.iter().map(|key| PublicKey::from_bytes(key.x_only_public_key().0.to_byte_array()));
        Ok(Self { seed, start, pubkeys: pubkeys.collect(), keys })
    }

    /// The same, so that the last of `total` events is made at `end`.
    pub(crate) fn ending(seed: u64, total: u64, end: u64) -> anyhow::Result<Self> {
        Self::new(seed, end.saturating_sub(Self::seconds(total)))
    }

    /// Seconds between the first and the last of `total` events.
    fn seconds(total: u64) -> u64 {
        total + 30
    }

    /// The time of the first event.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The time after `made` events.
    pub(crate) fn time(&self, made: u64) -> Millis {
        Millis::from_secs(self.start + Self::seconds(made))
    }

    pub(crate) fn pubkey(&self, author: u64) -> PublicKey {
        self.pubkeys[author as usize]
    }

    /// A hash of everything about the first events that follows from the seed: of each, its kind, author, topic, text and
    /// tags, and its time after the first; and their order. It is the same on any day.
    pub(crate) fn fingerprint(&self, count: u64) -> anyhow::Result<String> {
        let digests = parallel(0..count, |n| {
            let draft = Draft::new(self.seed, n);
            draft.digest(self.pubkey(draft.author).as_bytes())
        })?;
        let mut hash = Sha256::new();
        digests.iter().for_each(|digest| hash.update(digest));
        Ok(EventId::from_bytes(hash.finalize().into()).to_string())
    }

    /// Events to send.
    pub(crate) fn made(&self, range: Range<u64>) -> anyhow::Result<Vec<Made>> {
        parallel(range, |n| self.make(n))
    }

    /// Events to send that have one version only, the first `count` in this topic from the nth on.
    pub(crate) fn regular_in(&self, topic: u64, from: u64, count: usize) -> anyhow::Result<Vec<Made>> {
        let is_wanted = |n: &u64| {
            let draft = Draft::new(self.seed, *n);
            draft.topic == topic && !matches!(draft.kind, 0 | 30_023)
        };
        let wanted: Vec<u64> = (from..).filter(is_wanted).take(count).collect();
        parallel(0..wanted.len() as u64, |place| self.make(wanted[place as usize]))
    }

    /// Posts with a text of their own, which take the place of the first `count` events.
    pub(crate) fn posts(&self, count: u64, text: impl Fn(u64) -> String + Sync) -> anyhow::Result<Vec<Made>> {
        parallel(0..count, |n| {
            let mut draft = Draft::new(self.seed, n);
            (draft.kind, draft.topic, draft.thread, draft.article) = (1, 0, None, None);
            draft.content = format!("{} {}", text(n), draft.content);
            self.sign(draft)
        })
    }

    /// Events as a store takes them in. Nobody looks at their signatures there, so they have none.
    pub(crate) fn admitted(&self, range: Range<u64>) -> anyhow::Result<Vec<Admitted>> {
        let (admission, now) = (Admission::default(), self.time(range.end));
        let events = parallel(range, |n| {
            let event = self.event(&Draft::new(self.seed, n));
            admission.screen(event, Origin::Client { authenticated: Arc::default() }, now)
        })?;
        events.into_iter().map(|screened| Ok(screened?.trusted())).collect()
    }

    /// The event by which a thread began.
    pub(crate) fn root(&self, n: u64) -> EventId {
        self.event(&Draft::new(self.seed, n)).id
    }

    fn make(&self, n: u64) -> Made {
        self.sign(Draft::new(self.seed, n))
    }

    fn sign(&self, draft: Draft) -> Made {
        let mut event = self.event(&draft);
        sign(&mut event, &self.keys[draft.author as usize]);
        let json = event.to_json();
        let Draft { kind, author, topic, thread, article, .. } = draft;
        Made {
            fact: Fact { id: event.id, created_at: event.created_at.0, kind, topic, author, thread, article },
            hex: event.id.to_string(),
            json: json.len(),
            frame: text_frame(&[&br#"["EVENT","#[..], &json, b"]"].concat()),
        }
    }

    fn event(&self, draft: &Draft) -> Event {
        let mut tags = vec![vec!["t".to_owned(), topic_id(draft.topic)]];
        if let Some(root) = draft.thread {
            let begun = Draft::new(self.seed, root);
            tags.push(vec!["e".to_owned(), self.event(&begun).id.to_string(), String::new(), "root".to_owned()]);
            tags.push(vec!["p".to_owned(), self.pubkey(begun.author).to_string()]);
        }
        if let Some(article) = draft.article {
            tags.push(vec!["d".to_owned(), format!("article-{article}")]);
            tags.push(vec!["title".to_owned(), "a title of some length".to_owned()]);
        }
        if let Some(hashtag) = draft.hashtag {
            tags.push(vec!["t".to_owned(), format!("hashtag{hashtag}")]);
        }
        // Nobody says the same twice, not even by a reaction in the same second.
        tags.push(vec!["seq".to_owned(), draft.n.to_string()]);
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: self.pubkey(draft.author),
            created_at: Timestamp(self.start + draft.offset),
            kind: Kind(draft.kind),
            tags: tags.into_iter().collect::<Tags>(),
            content: draft.content.clone(),
            sig: Signature::from_bytes([0x5a; 64]),
        };
        event.id = event.true_id();
        event
    }
}

/// The nth topic's id.
pub(crate) fn topic_id(n: u64) -> String {
    let digits: [u64; 4] = std::array::from_fn(|part| mixed(n * 4 + part as u64));
    digits.iter().fold("kukuri:".to_owned(), |id, part| id + &format!("{part:016x}"))
}

fn keypair(n: u64) -> anyhow::Result<Keypair> {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&(n + 1).to_be_bytes());
    Ok(Keypair::from_secret_key(&SecretKey::from_secret_bytes(secret)?))
}

/// Makes something of every number, on all cores, in order.
fn parallel<T: Send>(range: Range<u64>, make: impl Fn(u64) -> T + Sync) -> anyhow::Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let count = range.end.saturating_sub(range.start);
    let share = count.div_ceil(threads).max(1);
    let make = &make;
    std::thread::scope(|scope| {
        let shares = (range.start..range.end).step_by(share as usize).map(|from| from..range.end.min(from + share));
        let working: Vec<_> = shares.map(|ns| scope.spawn(move || ns.map(make).collect::<Vec<_>>())).collect();
        let mut all = Vec::with_capacity(count as usize);
        for work in working {
            all.extend(work.join().map_err(|_| anyhow!("an event could not be made"))?);
        }
        Ok(all)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_the_same_fingerprint_on_any_day() {
        let print = |seed, start| Corpus::new(seed, start).unwrap().fingerprint(1_000).unwrap();
        assert_eq!(print(1, 1_760_000_000), "cd9644fb9f6817cedbee78f69786f3236f89857c9ed62bd5cf08bc665c609d69");
        assert_eq!(print(1, 1_860_000_000), print(1, 1_760_000_000));
        assert_ne!(print(2, 1_760_000_000), print(1, 1_760_000_000));
    }

    #[test]
    fn an_event_does_not_depend_on_the_range_it_is_made_in() {
        let corpus = Corpus::new(7, 1_760_000_000).unwrap();
        let all = corpus.made(0..300).unwrap();
        let some = corpus.made(200..250).unwrap();
        assert!(all[200..250].iter().zip(&some).all(|(one, other)| one.frame == other.frame && one.fact == other.fact));
    }

    #[test]
    fn no_two_events_are_the_same() {
        let made = Corpus::new(1, 1_760_000_000).unwrap().admitted(0..30_000).unwrap();
        let ids: std::collections::HashSet<_> = made.iter().map(|admitted| admitted.event().id).collect();
        assert_eq!(ids.len(), made.len());
    }

    #[test]
    fn corpus_events_pass_admission() {
        let corpus = Corpus::ending(1, 6_000, 1_760_000_000).unwrap();
        let now = Millis::from_secs(1_760_000_000);
        for made in corpus.made(4_900..6_000).unwrap() {
            let json = &made.frame[made.frame.len() - 1 - made.json..made.frame.len() - 1];
            let admitted = Admission::default().admit(json, Origin::stranger(), now).unwrap();
            assert_eq!(admitted.topics().len(), 1);
            assert!(admitted.event().created_at.0 <= 1_760_000_000);
        }
    }

    #[test]
    fn events_have_700_to_800_bytes_on_average() {
        let made = Corpus::new(1, 1_760_000_000).unwrap().made(0..5_000).unwrap();
        let mean = made.iter().map(|made| made.json).sum::<usize>() / made.len();
        assert!((700..800).contains(&mean), "{mean} bytes");
    }
}
