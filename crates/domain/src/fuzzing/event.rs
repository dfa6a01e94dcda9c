//! What holds for any bytes that are read as an event.

use crate::{
    Admission, Event, Limits, Millis, Origin, Refusal, State,
    admission::Screened,
    decision::{self, Row, StoreFacts, Verdict},
    deletion::DeletionTarget,
    relay_urls::RelayUrls,
    topic::{TopicId, TopicRules, TopicValue, TopicsMode},
};
use sha2::{Digest, Sha256};

const NOW: Millis = Millis::from_secs(1_700_000_000);

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let event = match Event::from_json(bytes) {
        Ok(event) => event,
        Err(refusal) => return check_message(&refusal),
    };
    check_round_trip(&event);
    check_id(&event);
    for admission in admissions() {
        for origin in origins(&event) {
            check_admission(&admission, bytes, &event, origin);
        }
    }
}

/// What is written is read again as the same event, and written again as the same bytes.
fn check_round_trip(event: &Event) {
    let json = event.to_json();
    let again = Event::from_json(&json).expect("what this node writes, it reads");
    assert_eq!(&again, event);
    assert_eq!(again.to_json(), json);
    assert_eq!(again.true_id(), event.true_id());
}

/// The id is the hash of what a plain JSON writer makes of the same fields.
fn check_id(event: &Event) {
    let tags: Vec<Vec<&str>> = event.tags.iter().map(|tag| tag.items().collect()).collect();
    let fields = (0, event.pubkey, event.created_at, event.kind, tags, &event.content);
    let plain = serde_json::to_vec(&fields).expect("fields are plain JSON");
    assert_eq!(event.true_id().as_bytes()[..], Sha256::digest(plain)[..]);
}

/// Whatever was sent, the answer is one short line that starts with its prefix.
fn check_message(refusal: &Refusal) {
    let message = refusal.to_string();
    assert!(message.starts_with(refusal.prefix()), "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
    assert!(message.len() < 300, "{message}");
}

fn admissions() -> [Admission; 2] {
    let reserved =
        TopicRules::new(TopicsMode::Global, &["kukuri:lobby", "kukuri:room:*"]).expect("both are well-formed");
    let tight = Limits {
        event_bytes: 600,
        tag_count: 3,
        tags_bytes: 200,
        tag_bytes: 100,
        content_bytes: 50,
        ..Limits::default()
    };
    [
        Admission { relay_urls: RelayUrls::new(&["wss://relay.example.com"]), ..Admission::default() },
        Admission { topics: reserved, limits: tight, ..Admission::default() },
    ]
}

fn origins(event: &Event) -> [Origin; 6] {
    let peer = [7; 32];
    let named = event.tags.values("t").next().unwrap_or("kukuri:lobby");
    [
        Origin::unauthenticated_client(),
        Origin::Client { authenticated: [event.pubkey].into() },
        Origin::Gossip { peer, topic: TopicId::global() },
        Origin::Gossip { peer, topic: TopicId::new_unchecked(named) },
        Origin::Sync { peer },
        Origin::Import,
    ]
}

/// Screening, verifying and deciding come to an answer, and the answers fit together.
fn check_admission(admission: &Admission, bytes: &[u8], event: &Event, origin: Origin) {
    let within_limits = admission.limits.check(event, NOW).is_ok();
    let whole = admission.admit(bytes, origin.clone(), NOW);
    let screened = match admission.screen(event.clone(), origin, NOW) {
        Ok(screened) => screened,
        Err(refusal) => {
            check_message(&refusal);
            assert!(whole.is_err(), "{refusal}");
            return;
        }
    };
    assert!(within_limits);
    check_topics(admission, &screened);

    match (whole, screened.clone().verify()) {
        (Ok(whole), Ok(stepwise)) => {
            assert_eq!(whole.event(), stepwise.event());
            assert_eq!(whole.event().id, event.true_id());
            assert_eq!(whole.json(), &event.to_json());
            assert!(whole.json().len() <= admission.limits.event_bytes);
        }
        // The longest spelling is refused before it is parsed.
        (Err(refusal), Ok(_)) => assert!(matches!(refusal, Refusal::OverLimit { .. }), "{refusal}"),
        (Err(left), Err(right)) => [left, right].iter().for_each(check_message),
        (Ok(_), Err(refusal)) => panic!("admitted as a whole, refused in steps: {refusal}"),
    }
    check_decision(screened);
}

fn check_topics(admission: &Admission, screened: &Screened) {
    let topics = screened.topics();
    assert!(!topics.is_empty());
    for (index, topic) in topics.iter().enumerate() {
        assert_eq!(admission.topics.read(topic.as_str()), TopicValue::Topic(topic.clone()));
        assert!(!topics[..index].contains(topic), "{topic} is bound twice");
    }
}

/// On a store that knows nothing but this very event, every event that is stored is effective.
fn check_decision(screened: Screened) {
    let admitted = screened.admit_unchecked();
    let event = admitted.event();
    let itself = [Row { event, state: State::Effective }];
    let known = StoreFacts { targets: &itself, ..StoreFacts::default() };
    let Verdict::Apply(decision) = decision::decide(&admitted, &known, NOW) else { return };
    assert_eq!(decision.against, None);
    assert_eq!(decision.floor.is_some(), event.address().is_some());
    assert!(decision.taken.is_empty(), "an event takes away itself");
    if let Some(result) = decision.deletion {
        let named = event.tags.iter().filter(|tag| matches!(tag.name(), Some("e" | "a"))).count();
        assert_eq!((result.deleted_count, result.skipped_count), (0, named));
        assert!(decision.tombstones.len() <= DeletionTarget::parse_from_event(event).len());
    }
}
