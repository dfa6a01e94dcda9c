//! Short posts, made up: of 8 to 19 words, half of them Japanese; few words are common and most are rare. The same number
//! gives the same post.

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_search::{Document, Text};

use crate::corpus::mixed;

/// The time at which they are looked for.
pub(super) const NOW: Timestamp = Timestamp(1_700_000_000);
/// Different words there are.
const WORDS: f64 = 20_000.0;
const TOPICS: u64 = 10;
const AUTHORS: u64 = 200;
/// They were made in this many seconds before.
const AGES: u64 = 90 * 86_400;

/// The nth post.
pub(super) fn post(n: u64) -> Document {
    let mut id = [0; 32];
    for (at, bytes) in id.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&mixed(n * 4 + at as u64).to_be_bytes());
    }
    let words: Vec<String> = (0..8 + n % 12).map(|at| word(n * 64 + at)).collect();
    Document {
        id: EventId::from_bytes(id),
        author: PublicKey::from_bytes([(n % AUTHORS) as u8; 32]),
        kind: Kind(1),
        created_at: Timestamp(NOW.0 - mixed(n) % AGES),
        topics: vec![topic(n)],
        text: Text { title: String::new(), body: words.join(" ") },
    }
}

/// The topic of the nth post.
pub(super) fn topic(n: u64) -> TopicId {
    TopicId::trusted(&format!("kukuri:{:064x}", n % TOPICS))
}

/// A word: by a power law.
fn word(seed: u64) -> String {
    let share = (mixed(seed) % 1_000_000) as f64 / 1_000_000.0;
    let rank = WORDS.powf(share) as u64;
    let letter =
        |from: char, count: u64, number: u64| char::from_u32(from as u32 + (number % count) as u32).unwrap_or(from);
    if rank.is_multiple_of(2) {
        (0..2 + rank % 3).map(|at| letter('一', 2_000, mixed(rank * 7 + at))).collect()
    } else {
        (0..3 + rank % 6).map(|at| letter('a', 26, mixed(rank * 11 + at))).collect()
    }
}
