//! Generated events that resemble busy communities: a few large topics and many small ones, a few regular authors and many
//! others, threads, reactions, chat, profiles and articles in several versions.
//!
//! The nth event follows from the seed and n alone, so any part can be made at any time, on all cores. Only the day
//! differs: times end when the run starts, so that no relay finds them too old or too new.
//!
//! - [`draft`]: kind, author, topic, text of an event. [`random`]: the generator behind them.

mod draft;
mod random;

use std::{ops::Range, sync::OnceLock, time::Instant};

use kukuri_domain::{Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Signature, Timestamp};
use kukuri_testing::{events::sign, frames::text_frame};
use secp256k1::{Keypair, SecretKey};
use serde::Serialize;
use sha2::{Digest, Sha256};

use draft::{AUTHORS, Draft};
pub(crate) use draft::{REGULARS, THREADS, regular, thread};
pub(crate) use random::mixed;

/// A source of events.
pub(crate) struct Corpus {
    seed: u64,
    /// The time of the first event.
    start: u64,
    keys: Vec<Keypair>,
    pubkeys: Vec<PublicKey>,
}

/// The description of a corpus in the report.
#[derive(Serialize)]
pub(crate) struct CorpusSummary {
    pub(crate) seed: u64,
    pub(crate) events: u64,
    pub(crate) fingerprint: String,
}

/// The fields by which filters select an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) id: EventId,
    pub(crate) created_at: u64,
    pub(crate) kind: u16,
    pub(crate) topic: u64,
    pub(crate) author: u64,
    pub(crate) thread: Option<u64>,
    pub(crate) article: Option<u64>,
}

/// Whether a newer version may take the place of an event of this kind.
pub(crate) fn has_versions(kind: u16) -> bool {
    matches!(kind, 0 | 30_023)
}

/// An event that is ready to be sent.
pub(crate) struct SignedEvent {
    pub(crate) facts: Facts,
    pub(crate) id_hex: String,
    pub(crate) json_len: usize,
    /// The message that publishes it.
    pub(crate) frame: Vec<u8>,
    /// When a client sent it.
    pub(crate) sent: OnceLock<Instant>,
}

impl Corpus {
    /// The corpus of this seed, of which the first event was made at `start`.
    pub(crate) fn new(seed: u64, start: u64) -> anyhow::Result<Self> {
        let keys = parallel(0..AUTHORS, keypair).into_iter().collect::<Result<Vec<_>, _>>()?;
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

    /// The time after the first `count` events.
    pub(crate) fn time(&self, count: u64) -> Millis {
        Millis::from_secs(self.start + Self::seconds(count))
    }

    pub(crate) fn pubkey(&self, author: u64) -> PublicKey {
        self.pubkeys[author as usize]
    }

    /// The fingerprint is a hash of everything about the first `count` events that follows from the seed: of each, its kind,
    /// author, topic, text and tags, and its time after the first; and their order. It is the same on any day.
    pub(crate) fn summary(&self, count: u64) -> CorpusSummary {
        let digests = parallel(0..count, |n| {
            let draft = Draft::new(self.seed, n);
            draft.digest(self.pubkey(draft.author).as_bytes())
        });
        let mut hash = Sha256::new();
        digests.iter().for_each(|digest| hash.update(digest));
        let fingerprint = EventId::from_bytes(hash.finalize().into()).to_string();
        CorpusSummary { seed: self.seed, events: count, fingerprint }
    }

    /// Events to send.
    pub(crate) fn signed(&self, range: Range<u64>) -> Vec<SignedEvent> {
        parallel(range, |n| self.sign(n))
    }

    /// Events to send that have one version only: the first `count` in this topic.
    pub(crate) fn signed_in(&self, topic: u64, count: usize) -> Vec<SignedEvent> {
        let is_wanted = |n: &u64| {
            let draft = Draft::new(self.seed, *n);
            draft.topic == topic && !has_versions(draft.kind)
        };
        let wanted: Vec<u64> = (0..).filter(is_wanted).take(count).collect();
        parallel(0..wanted.len() as u64, |index| self.sign(wanted[index as usize]))
    }

    /// Events as a store takes them in. A store does not look at signatures, so they have none.
    pub(crate) fn admitted(&self, range: Range<u64>) -> anyhow::Result<Vec<(Facts, Admitted)>> {
        let (admission, now) = (Admission::default(), self.time(range.end));
        let events = parallel(range, |n| {
            let (facts, event) = self.event(&Draft::new(self.seed, n));
            (facts, admission.screen(event, Origin::unauthenticated_client(), now))
        });
        events.into_iter().map(|(facts, screened)| Ok((facts, screened?.admit_unchecked()))).collect()
    }

    /// The id of the nth event.
    pub(crate) fn id(&self, n: u64) -> EventId {
        self.event(&Draft::new(self.seed, n)).0.id
    }

    fn sign(&self, n: u64) -> SignedEvent {
        let (facts, mut event) = self.event(&Draft::new(self.seed, n));
        sign(&mut event, &self.keys[facts.author as usize]);
        let json = event.to_json();
        SignedEvent {
            facts,
            id_hex: event.id.to_string(),
            json_len: json.len(),
            frame: text_frame(&[&br#"["EVENT","#[..], &json, b"]"].concat()),
            sent: OnceLock::new(),
        }
    }

    fn event(&self, draft: &Draft) -> (Facts, Event) {
        let tag = |items: &[&str]| items.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut tags = vec![tag(&["t", &topic_id(draft.topic)])];
        if let Some(root) = draft.thread {
            let (begun, _) = self.event(&Draft::new(self.seed, root));
            tags.push(tag(&["e", &begun.id.to_string(), "", "root"]));
            tags.push(tag(&["p", &self.pubkey(begun.author).to_string()]));
        }
        if let Some(article) = draft.article {
            tags.push(tag(&["d", &format!("article-{article}")]));
            tags.push(tag(&["title", "a title of some length"]));
        }
        if let Some(hashtag) = draft.hashtag {
            tags.push(tag(&["t", &format!("hashtag{hashtag}")]));
        }
        // No two events are the same, not even two reactions in the same second.
        tags.push(tag(&["seq", &draft.n.to_string()]));
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: self.pubkey(draft.author),
            created_at: Timestamp(self.start + draft.offset),
            kind: Kind(draft.kind),
            tags: tags.into_iter().collect(),
            content: draft.content.clone(),
            sig: Signature::from_bytes([0x5a; 64]),
        };
        event.id = event.true_id();
        let Draft { kind, author, topic, thread, article, .. } = *draft;
        (Facts { id: event.id, created_at: event.created_at.0, kind, topic, author, thread, article }, event)
    }
}

/// The nth topic's id.
pub(crate) fn topic_id(n: u64) -> String {
    (0..4).fold("kukuri:".to_owned(), |id, part| id + &format!("{:016x}", mixed(n * 4 + part)))
}

fn keypair(n: u64) -> Result<Keypair, secp256k1::Error> {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&(n + 1).to_be_bytes());
    Ok(Keypair::from_secret_key(&SecretKey::from_secret_bytes(secret)?))
}

/// Makes something of every number, on all cores, in order.
fn parallel<T: Send>(range: Range<u64>, make: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = range.end.saturating_sub(range.start).div_ceil(threads).max(1);
    let make = &make;
    std::thread::scope(|scope| {
        let shares = (range.start..range.end).step_by(share as usize).map(|from| from..range.end.min(from + share));
        let working: Vec<_> = shares.map(|ns| scope.spawn(move || ns.map(make).collect::<Vec<_>>())).collect();
        working
            .into_iter()
            .flat_map(|work| work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_the_same_fingerprint_on_any_day() {
        let print = |seed, start| Corpus::new(seed, start).unwrap().summary(1_000).fingerprint;
        assert_eq!(print(1, 1_760_000_000), "cd9644fb9f6817cedbee78f69786f3236f89857c9ed62bd5cf08bc665c609d69");
        assert_eq!(print(1, 1_860_000_000), print(1, 1_760_000_000));
        assert_ne!(print(2, 1_760_000_000), print(1, 1_760_000_000));
    }

    #[test]
    fn an_event_does_not_depend_on_the_range_it_is_made_in() {
        let corpus = Corpus::new(7, 1_760_000_000).unwrap();
        let all = corpus.signed(0..300);
        let some = corpus.signed(200..250);
        assert!(
            all[200..250].iter().zip(&some).all(|(one, other)| one.frame == other.frame && one.facts == other.facts)
        );
    }

    #[test]
    fn no_two_events_are_the_same() {
        let made = Corpus::new(1, 1_760_000_000).unwrap().admitted(0..30_000).unwrap();
        let ids: std::collections::HashSet<_> = made.iter().map(|(facts, _)| facts.id).collect();
        assert_eq!(ids.len(), made.len());
    }

    #[test]
    fn corpus_events_pass_admission() {
        let corpus = Corpus::ending(1, 6_000, 1_760_000_000).unwrap();
        let now = Millis::from_secs(1_760_000_000);
        for made in corpus.signed(4_900..6_000) {
            let json = &made.frame[made.frame.len() - 1 - made.json_len..made.frame.len() - 1];
            let admitted = Admission::default().admit(json, Origin::unauthenticated_client(), now).unwrap();
            assert_eq!(admitted.topics().len(), 1);
            assert!(admitted.event().created_at.0 <= 1_760_000_000);
        }
    }

    #[test]
    fn events_have_700_to_800_bytes_on_average() {
        let made = Corpus::new(1, 1_760_000_000).unwrap().signed(0..5_000);
        let mean = made.iter().map(|made| made.json_len).sum::<usize>() / made.len();
        assert!((700..800).contains(&mean), "{mean} bytes");
    }
}
