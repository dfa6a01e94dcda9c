//! Events, each a function of its number: a community of 20 topics and 500 authors. A note has 750 bytes of JSON.

use kukuri_domain::{
    Admission, Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Signature, Timestamp, TopicId,
};

const START: u64 = 1_760_000_000;
pub(crate) const TOPICS: u64 = 20;
const AUTHORS: u64 = 500;
const TEXT: &str = "今日は東京の天気が良い。\n\"Relays\" carry what a community says,\tand forget what it takes back. Whoever is here reads this now, or when they are back. ";

/// A time after all of them.
pub(crate) const NOW: Millis = Millis::from_secs(START + 100_000);

pub(crate) fn author(number: u64) -> PublicKey {
    PublicKey::from_bytes(scattered("author", number % AUTHORS))
}

pub(crate) fn topic(number: u64) -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{}", EventId::from_bytes(scattered("topic", number % TOPICS))))
}

/// A reply, as most events are.
pub(crate) fn note(number: u64) -> Event {
    let (root, parent) = (scattered("post", number % 97), scattered("post", number));
    let tags = [
        vec!["e".to_owned(), EventId::from_bytes(root).to_string(), String::new(), "root".to_owned()],
        vec!["p".to_owned(), EventId::from_bytes(parent).to_string()],
    ];
    event(number, Kind(1), tags, format!("{TEXT}{number:08}"))
}

/// A version of an author's profile.
pub(crate) fn profile(number: u64) -> Event {
    event(number, Kind(0), [], format!(r#"{{"name":"{number:08}"}}"#))
}

/// The deletion of events of one author.
pub(crate) fn deletion(number: u64, targets: &[Event]) -> Event {
    let tags = targets.iter().map(|target| vec!["e".to_owned(), target.id.to_string()]);
    event(number, Kind::DELETION, tags, String::new())
}

/// A note, or every tenth time a profile.
pub(crate) fn mixed(number: u64) -> Event {
    if number % 10 == 9 { profile(number) } else { note(number) }
}

/// As it comes to a store.
pub(crate) fn admitted(event: Event) -> Admitted {
    Admission::default().screen(event, Origin::unauthenticated_client(), NOW).unwrap().admit_unchecked()
}

/// An event in its topic, with further tags.
fn event(number: u64, kind: Kind, tags: impl IntoIterator<Item = Vec<String>>, content: String) -> Event {
    let topic = vec!["t".to_owned(), topic(number).to_string()];
    let mut event = Event {
        id: EventId::from_bytes([0; 32]),
        pubkey: author(scattered("who", number)[0].into()),
        created_at: Timestamp(START + number),
        kind,
        tags: [topic].into_iter().chain(tags).collect(),
        content,
        sig: Signature::from_bytes([0x5a; 64]),
    };
    event.id = event.true_id();
    event
}

/// Bytes as random as a hash, the same for the same number.
fn scattered(what: &str, number: u64) -> [u8; 32] {
    blake3::hash(format!("{what} {number}").as_bytes()).into()
}
