//! Signed events, made before anything is measured.

use std::time::{SystemTime, UNIX_EPOCH};

use kukuri_domain::{Event, EventId, Kind, PublicKey, Signature, Tags, Timestamp};
use secp256k1::{Keypair, SecretKey, schnorr};

use super::client::frame;
use crate::corpus::Random;

/// Few enough that fifty events of one author, or in one thread, are found in each topic.
pub(crate) const TOPICS: usize = 8;
pub(crate) const AUTHORS: usize = 32;
pub(crate) const THREADS: usize = 32;
/// How long an event is as JSON.
const BYTES: usize = 750;

/// An event, what it can be asked for by, and the frame that publishes it.
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) topic: usize,
    pub(crate) author: usize,
    pub(crate) thread: usize,
    pub(crate) kind: u16,
    pub(crate) created_at: u64,
    pub(crate) frame: Vec<u8>,
}

/// The nth topic's id.
pub(crate) fn topic(n: usize) -> String {
    format!("kukuri:{n:064x}")
}

/// The nth author's key.
pub(crate) fn author(n: usize) -> anyhow::Result<String> {
    Ok(PublicKey::from_bytes(keypair(n)?.x_only_public_key().0.to_byte_array()).to_string())
}

/// The event that the nth thread answers to.
pub(crate) fn thread(n: usize) -> String {
    format!("{:064x}", 0xe0_0000 + n)
}

fn keypair(n: usize) -> anyhow::Result<Keypair> {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&(n as u64 + 1).to_be_bytes());
    Ok(Keypair::from_secret_key(&SecretKey::from_secret_bytes(secret)?))
}

/// Events that end now, one per second. Every series has other ones.
pub(crate) fn make(series: &str, count: usize, topics: usize) -> anyhow::Result<Vec<Made>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let keys = (0..AUTHORS).map(keypair).collect::<anyhow::Result<Vec<_>>>()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = count.div_ceil(threads).max(1);
    let one = |n: usize| made(series, n, n % topics, now - (count - n) as u64, &keys);
    std::thread::scope(|scope| {
        let shares: Vec<_> = (0..count).step_by(share).map(|from| from..count.min(from + share)).collect();
        let working: Vec<_> =
            shares.into_iter().map(|ns| scope.spawn(move || ns.map(one).collect::<Vec<_>>())).collect();
        let mut all = Vec::with_capacity(count);
        for work in working {
            all.extend(work.join().map_err(|_| anyhow::anyhow!("signing failed"))?);
        }
        Ok(all)
    })
}

fn made(series: &str, n: usize, topic_number: usize, created_at: u64, keys: &[Keypair]) -> Made {
    let mut random = Random::new(n as u64);
    let author = random.below(AUTHORS as u64) as usize;
    let thread_number = random.below(THREADS as u64) as usize;
    let kind = [1, 1, 1, 1111, 1111, 9][random.below(6) as usize];
    let root_author = PublicKey::from_bytes(keys[thread_number % AUTHORS].x_only_public_key().0.to_byte_array());
    let tags = [
        vec!["t".to_owned(), topic(topic_number)],
        vec!["e".to_owned(), thread(thread_number), String::new(), "root".to_owned()],
        vec!["p".to_owned(), root_author.to_string()],
    ];
    let mut event = Event {
        id: EventId::from_bytes([0; 32]),
        pubkey: PublicKey::from_bytes(keys[author].x_only_public_key().0.to_byte_array()),
        created_at: Timestamp(created_at),
        kind: Kind(kind),
        tags: tags.into_iter().collect::<Tags>(),
        content: format!("{series} {n}: "),
        sig: Signature::from_bytes([0; 64]),
    };
    let short = BYTES.saturating_sub(event.to_json().len());
    event.content.extend("a community's events are of this length, more or less, ".chars().cycle().take(short));
    event.id = event.true_id();
    let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), &keys[author]);
    event.sig = Signature::from_bytes(*signature.as_byte_array());
    let message = [&br#"["EVENT","#[..], &event.to_json(), b"]"].concat();
    Made {
        id: event.id.to_string(),
        topic: topic_number,
        author,
        thread: thread_number,
        kind,
        created_at,
        frame: frame(&message),
    }
}
