//! What clients and the relay say to each other (NIP-01): one JSON array per WebSocket message.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::Filter;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A client's name for one of its subscriptions, as a JSON string. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscriptionId(Arc<str>);

impl SubscriptionId {
    /// NIP-01's limit, in characters.
    pub(crate) const LONGEST: usize = 64;

    pub(crate) fn new(name: &str) -> Self {
        // Every event that is sent repeats it: it is quoted once.
        Self(serde_json::Value::from(name).to_string().into())
    }
}

/// What a client says.
#[derive(Debug)]
pub(crate) enum ClientMessage<'t> {
    /// `["EVENT", event]`: the event's JSON, not read yet.
    Event(&'t str),
    /// `["AUTH", event]`.
    Auth(&'t str),
    /// `["REQ", id, filter…]`.
    Request(SubscriptionId, Vec<Filter>),
    /// `["COUNT", id, filter…]`.
    Count(SubscriptionId, Vec<Filter>),
    /// `["CLOSE", id]`.
    Close(SubscriptionId),
    /// `["NEG-OPEN", id, filter, message]` (NIP-77).
    Reconcile(SubscriptionId, Box<Filter>, Vec<u8>),
    /// `["NEG-MSG", id, message]`.
    ReconcileOn(SubscriptionId, Vec<u8>),
    /// `["NEG-CLOSE", id]`.
    ReconcileNoMore(SubscriptionId),
}

/// The first word of a message, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Event,
    Auth,
    Request,
    Count,
    Close,
    Reconcile,
    Unreadable,
}

impl Verb {
    pub(crate) const ALL: [Self; 7] =
        [Self::Event, Self::Auth, Self::Request, Self::Count, Self::Close, Self::Reconcile, Self::Unreadable];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Event => "EVENT",
            Self::Auth => "AUTH",
            Self::Request => "REQ",
            Self::Count => "COUNT",
            Self::Close => "CLOSE",
            Self::Reconcile => "NEG",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What is wrong with a message, and how its sender hears of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing in it can be answered to.
    Notice(String),
    /// A subscription that can't be.
    Closed(SubscriptionId, String),
    /// A count that can't be. A subscription of the same id goes on.
    NotCounted(SubscriptionId, String),
    /// A reconciliation that can't be.
    NotReconciled(SubscriptionId, String),
}

impl<'t> ClientMessage<'t> {
    pub(crate) fn parse(text: &'t str) -> Result<Self, Fault> {
        let parts: Vec<&'t RawValue> =
            serde_json::from_str(text).map_err(|_| notice("a message is a JSON array that starts with a word"))?;
        let (verb, rest) = parts.split_first().ok_or_else(|| notice("a message must not be empty"))?;
        let verb: Cow<'_, str> =
            serde_json::from_str(verb.get()).map_err(|_| notice("a message starts with a word"))?;
        match (verb.as_ref(), rest) {
            ("EVENT", [event]) => Ok(Self::Event(event.get())),
            ("AUTH", [event]) => Ok(Self::Auth(event.get())),
            ("CLOSE", [id]) => Ok(Self::Close(subscription_id(id)?)),
            ("REQ", [id, filters @ ..]) => {
                let id = subscription_id(id)?;
                let filters = filters_of(filters).map_err(|reason| Fault::Closed(id.clone(), reason))?;
                Ok(Self::Request(id, filters))
            }
            ("COUNT", [id, filters @ ..]) => {
                let id = subscription_id(id)?;
                let filters = filters_of(filters).map_err(|reason| Fault::NotCounted(id.clone(), reason))?;
                Ok(Self::Count(id, filters))
            }
            ("NEG-OPEN", [id, filter, message]) => {
                let id = subscription_id(id)?;
                let broken = |reason: String| Fault::NotReconciled(id.clone(), format!("invalid: {reason}"));
                let filter = Filter::from_json(filter.get()).map_err(|error| broken(error.to_string()))?;
                let message = hex_bytes(message).ok_or_else(|| broken(NOT_HEX.to_owned()))?;
                Ok(Self::Reconcile(id, Box::new(filter), message))
            }
            ("NEG-MSG", [id, message]) => {
                let id = subscription_id(id)?;
                match hex_bytes(message) {
                    Some(message) => Ok(Self::ReconcileOn(id, message)),
                    None => Err(Fault::NotReconciled(id, format!("invalid: {NOT_HEX}"))),
                }
            }
            ("NEG-CLOSE", [id]) => Ok(Self::ReconcileNoMore(subscription_id(id)?)),
            ("EVENT" | "AUTH" | "CLOSE" | "REQ" | "COUNT" | "NEG-OPEN" | "NEG-MSG" | "NEG-CLOSE", _) => {
                Err(notice(&format!("{verb} has the wrong number of parts")))
            }
            _ => Err(notice("unknown word; there are EVENT, REQ, CLOSE, COUNT, AUTH, NEG-OPEN, NEG-MSG and NEG-CLOSE")),
        }
    }

    /// Its first word.
    pub(crate) fn verb(&self) -> Verb {
        match self {
            Self::Event(_) => Verb::Event,
            Self::Auth(_) => Verb::Auth,
            Self::Request(..) => Verb::Request,
            Self::Count(..) => Verb::Count,
            Self::Close(_) => Verb::Close,
            Self::Reconcile(..) | Self::ReconcileOn(..) | Self::ReconcileNoMore(_) => Verb::Reconcile,
        }
    }
}

const NOT_HEX: &str = "a reconciliation message is hex";

/// The bytes that a JSON string of hex digits, in either case, stands for.
fn hex_bytes(raw: &RawValue) -> Option<Vec<u8>> {
    let text = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn notice(what: &str) -> Fault {
    Fault::Notice(format!("invalid: {what}"))
}

fn subscription_id(raw: &RawValue) -> Result<SubscriptionId, Fault> {
    let id: Cow<'_, str> = serde_json::from_str(raw.get()).map_err(|_| notice("a subscription id is a string"))?;
    if id.is_empty() || id.chars().count() > SubscriptionId::LONGEST {
        return Err(notice(&format!("a subscription id has 1 to {} characters", SubscriptionId::LONGEST)));
    }
    Ok(SubscriptionId::new(&id))
}

fn filters_of(raw: &[&RawValue]) -> Result<Vec<Filter>, String> {
    if raw.is_empty() {
        return Err("invalid: a request has at least one filter".to_owned());
    }
    raw.iter().map(|filter| Filter::from_json(filter.get()).map_err(|error| format!("invalid: {error}"))).collect()
}

/// The event in a message of the usual form, not read yet. If that turns out to be none, the message has to be read as a whole.
pub(crate) fn usual_event(text: &str) -> Option<&str> {
    text.strip_prefix(r#"["EVENT","#)?.strip_suffix(']')
}

/// The id that an event which can't be read claims to have, so that its sender can tell which one is meant.
pub(crate) fn claimed_id(event: &str) -> String {
    #[derive(Deserialize)]
    struct Claim<'t> {
        #[serde(borrow)]
        id: Cow<'t, str>,
    }
    let claim = serde_json::from_str::<Claim<'_>>(event).ok();
    claim.map(|claim| claim.id.chars().take(64).collect()).unwrap_or_default()
}

/// What the relay says, each as the text of one message.
pub(crate) mod say {
    use kukuri_store::{Count, Rest};

    use super::SubscriptionId;

    /// For the event of this id, or what it claims to be its id.
    pub(crate) fn ok(id: &str, accepted: bool, message: &str) -> String {
        let accepted = if accepted { ",true," } else { ",false," };
        [r#"["OK","#, &quoted(id), accepted, &quoted(message), "]"].concat()
    }

    /// In parts, so that an event's JSON is copied but once.
    pub(crate) fn event<'a>(subscription: &'a SubscriptionId, json: &'a [u8]) -> [&'a [u8]; 5] {
        [br#"["EVENT","#, subscription.0.as_bytes(), b",", json, b"]"]
    }

    /// With what is known of what was left out (NIP-67).
    pub(crate) fn end_of_stored(subscription: &SubscriptionId, rest: Rest) -> String {
        let hint = match rest {
            Rest::None => r#",["finish"]"#,
            Rest::More => r#",["more"]"#,
            Rest::Unknown => "",
        };
        format!(r#"["EOSE",{}{hint}]"#, &subscription.0)
    }

    pub(crate) fn closed(subscription: &SubscriptionId, reason: &str) -> String {
        format!(r#"["CLOSED",{},{}]"#, &subscription.0, quoted(reason))
    }

    pub(crate) fn count(subscription: &SubscriptionId, count: &Count) -> String {
        let events = count.events;
        let sketch = count.sketch.as_ref().map(|sketch| format!(r#","hll":"{}""#, sketch.to_hex()));
        format!(r#"["COUNT",{},{{"count":{events}{}}}]"#, &subscription.0, sketch.unwrap_or_default())
    }

    pub(crate) fn reconcile(subscription: &SubscriptionId, message: &[u8]) -> String {
        use std::fmt::Write;
        let mut text = format!(r#"["NEG-MSG",{},""#, &subscription.0);
        text.reserve(message.len() * 2 + 2);
        for byte in message {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("\"]");
        text
    }

    pub(crate) fn not_reconciled(subscription: &SubscriptionId, reason: &str) -> String {
        format!(r#"["NEG-ERR",{},{}]"#, &subscription.0, quoted(reason))
    }

    pub(crate) fn notice(text: &str) -> String {
        format!(r#"["NOTICE",{}]"#, quoted(text))
    }

    pub(crate) fn challenge(challenge: &str) -> String {
        format!(r#"["AUTH",{}]"#, quoted(challenge))
    }

    fn quoted(text: &str) -> String {
        // To write a text can't fail.
        serde_json::to_string(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_malformed_message_has_its_answer() {
        for (text, answer) in [
            ("", "invalid: a message is a JSON array"),
            ("{}", "invalid: a message is a JSON array"),
            ("[]", "invalid: a message must not be empty"),
            ("[1]", "invalid: a message starts with a word"),
            (r#"["HELLO"]"#, "invalid: unknown word"),
            (r#"["EVENT"]"#, "invalid: EVENT has the wrong number of parts"),
            (r#"["REQ"]"#, "invalid: REQ has the wrong number of parts"),
            (r#"["REQ",1,{}]"#, "invalid: a subscription id is a string"),
            (r#"["REQ","",{}]"#, "invalid: a subscription id has 1 to 64"),
            (r#"["CLOSE",["x"]]"#, "invalid: a subscription id is a string"),
            (r#"["NEG-OPEN","s",{}]"#, "invalid: NEG-OPEN has the wrong number of parts"),
        ] {
            match ClientMessage::parse(text) {
                Err(Fault::Notice(said)) => assert!(said.starts_with(answer), "{text}: {said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let long = format!(r#"["REQ","{}",{{}}]"#, "x".repeat(65));
        assert!(matches!(ClientMessage::parse(&long), Err(Fault::Notice(_))));
        for text in [r#"["REQ","s"]"#, r#"["REQ","s",{"ids":["x"]}]"#] {
            assert!(matches!(ClientMessage::parse(text), Err(Fault::Closed(..))), "{text}");
        }
        assert!(matches!(ClientMessage::parse(r#"["COUNT","s",1]"#), Err(Fault::NotCounted(..))));
        for text in [
            r#"["NEG-OPEN","s",{"ids":["x"]},"61"]"#,
            r#"["NEG-OPEN","s",{},"6"]"#,
            r#"["NEG-OPEN","s",{},"6g"]"#,
            r#"["NEG-MSG","s",61]"#,
        ] {
            assert!(matches!(ClientMessage::parse(text), Err(Fault::NotReconciled(..))), "{text}");
        }
    }

    #[test]
    fn an_event_that_can_not_be_read_is_answered_by_the_id_it_claims() {
        assert_eq!(claimed_id(r#"{"id":"abc","kind":-1}"#), "abc");
        assert_eq!(claimed_id(r#"{"kind":1}"#), "");
        assert_eq!(claimed_id("[]"), "");
    }
}
