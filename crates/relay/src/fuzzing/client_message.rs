//! Any text that a client sends as a message.

use std::net::{IpAddr, Ipv4Addr};

use kukuri_domain::{Event, EventId, Filter, Timestamp};
use serde_json::Value;

use crate::{
    closed::Closed,
    head::Head,
    message::{ClientMessage, SubscriptionId, claimed_id, common_event_form, reply},
    metrics::Verb,
    negentropy::{FRAME_BYTES, NegBudget, Reconciliation},
};

/// Events of the relay in a reconciliation.
const EVENTS: u8 = 40;

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let head = Head::of(text);
    match ClientMessage::parse(text) {
        Ok(message) => {
            check_head(&head, &message);
            check_parts(text, &head, &message);
        }
        Err(notice) => {
            check_answer(&notice);
            check_json(&reply::notice(&notice), "NOTICE", None);
        }
    }
    // Also of a message that can't be parsed: a rate refuses it by its head.
    if let Some(id) = head.subscription() {
        check_subscription(&id);
    }
}

/// A rate refuses by the head what parsing would have served: both find the same verb and the same subscription.
fn check_head(head: &Head<'_>, message: &ClientMessage<'_>) {
    let (verb, id) = match message {
        ClientMessage::Event(_) => (Verb::Event, None),
        ClientMessage::Auth(_) => (Verb::Auth, None),
        ClientMessage::Req(id, _) => (Verb::Req, Some(id)),
        ClientMessage::Count(id, _) => (Verb::Count, Some(id)),
        ClientMessage::Close(id) => (Verb::Close, Some(id)),
        ClientMessage::NegOpen(id, _) | ClientMessage::NegMessage(id, _) | ClientMessage::NegClose(id) => {
            (Verb::Neg, Some(id))
        }
    };
    assert_eq!(head.verb(), verb);
    if let Some(id) = id {
        assert_eq!(head.subscription().as_ref(), Some(id));
    }
}

fn check_parts(text: &str, head: &Head<'_>, message: &ClientMessage<'_>) {
    match message {
        ClientMessage::Event(json) => {
            check_event_json(json, head);
            if let Some(common) = common_event_form(text) {
                assert_eq!(common.trim(), *json, "both forms name the same event");
            }
        }
        ClientMessage::Auth(json) => check_event_json(json, head),
        ClientMessage::Req(_, Ok(filters)) | ClientMessage::Count(_, Ok(filters)) => check_filters(text, filters),
        ClientMessage::NegOpen(_, Ok((filter, neg))) => {
            check_filters(text, std::slice::from_ref(filter));
            check_reconciliation(text, neg);
        }
        ClientMessage::NegMessage(_, Ok(neg)) => check_reconciliation(text, neg),
        ClientMessage::Req(_, Err(closed))
        | ClientMessage::Count(_, Err(closed))
        | ClientMessage::NegOpen(_, Err(closed))
        | ClientMessage::NegMessage(_, Err(closed)) => check_closed(closed),
        ClientMessage::Close(_) | ClientMessage::NegClose(_) => {}
    }
}

/// The event's JSON is found without parsing the message, and an answer names the id it claims.
fn check_event_json(json: &str, head: &Head<'_>) {
    assert_eq!(head.only_part().map(str::trim), Some(json));
    let id = claimed_id(json);
    assert!(id.chars().count() <= 64, "{id}");
    if let Ok(event) = Event::from_json(json) {
        assert_eq!(event.id.to_string(), id);
    }
    check_json(&reply::ok(&id, false, "invalid: no"), "OK", Some(&id));
}

fn check_filters(text: &str, filters: &[Filter]) {
    assert!(!filters.is_empty());
    let values: usize = filters.iter().map(Filter::value_count).sum();
    assert!(values <= text.len(), "a value takes a byte at least");
}

fn check_closed(closed: &Closed) {
    let reason = closed.to_string();
    assert!(reason.starts_with("invalid: "), "{reason}");
    check_answer(&reason);
}

/// Whatever was sent, the answer is one short line.
fn check_answer(answer: &str) {
    assert!(answer.starts_with("invalid: "), "{answer}");
    assert!(!answer.contains(char::is_control), "{answer:?}");
    assert!(answer.len() < 300, "{answer}");
}

/// The id is repeated in answers as the client wrote it.
fn check_subscription(id: &SubscriptionId) {
    let closed = reply::closed(id, "invalid: no");
    let name = check_json(&closed, "CLOSED", None);
    assert!((1..=SubscriptionId::MAX_CHARS).contains(&name.chars().count()), "{name}");
    let close = serde_json::json!(["CLOSE", name]).to_string();
    assert!(matches!(ClientMessage::parse(&close), Ok(ClientMessage::Close(again)) if again == *id), "{close}");
}

/// An answer is a JSON array of a word and a text. Returns the text.
fn check_json(answer: &str, word: &str, text: Option<&str>) -> String {
    let parsed: Value = serde_json::from_str(answer).expect("an answer is JSON");
    assert_eq!(parsed[0], word);
    let found = parsed[1].as_str().expect("a text");
    assert!(text.is_none_or(|text| text == found));
    found.to_owned()
}

/// Any negentropy message gets an answer of bounded length, or an error that fits into one line.
fn check_reconciliation(text: &str, message: &[u8]) {
    assert!(message.len() <= text.len() / 2);
    let events: Vec<_> =
        (0..EVENTS).map(|number| (Timestamp(u64::from(number / 3)), EventId::from_bytes([number; 32]))).collect();
    let share = NegBudget::default().reserve(IpAddr::V4(Ipv4Addr::LOCALHOST), events.len()).expect("an empty budget");
    let mut reconciliation = Reconciliation::new(events, share).expect("a small set");
    match reconciliation.answer(message) {
        Ok(answer) => {
            assert!(answer.len() as u64 <= FRAME_BYTES, "{} bytes", answer.len());
            let id = SubscriptionId::new("s");
            check_json(&reply::neg_message(&id, &answer), "NEG-MSG", Some("s"));
        }
        Err(closed) => check_closed(&closed),
    }
}
