//! Messages of clients and of the relay (NIP-01): one JSON array per WebSocket message.

use std::{borrow::Cow, sync::Arc};

use kukuri_domain::Filter;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{closed::Closed, metrics::Verb};

/// A client's name for one of its subscriptions, as a JSON string. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscriptionId(Arc<str>);

impl SubscriptionId {
    /// NIP-01's limit.
    pub(crate) const MAX_CHARS: usize = 64;

    pub(crate) fn new(name: &str) -> Self {
        // Quoted once: every event that is sent repeats it.
        Self(serde_json::Value::from(name).to_string().into())
    }

    /// `None`: it is empty or too long.
    pub(crate) fn checked(name: &str) -> Option<Self> {
        (!name.is_empty() && name.chars().nth(Self::MAX_CHARS).is_none()).then(|| Self::new(name))
    }
}

/// A message of a client. What is malformed after a subscription id is answered to that id.
#[derive(Debug)]
pub(crate) enum ClientMessage<'t> {
    /// `["EVENT", event]`: the event's JSON, not parsed yet.
    Event(&'t str),
    /// `["AUTH", event]`.
    Auth(&'t str),
    /// `["REQ", id, filter…]`.
    Req(SubscriptionId, Result<Vec<Filter>, Closed>),
    /// `["COUNT", id, filter…]`.
    Count(SubscriptionId, Result<Vec<Filter>, Closed>),
    /// `["CLOSE", id]`.
    Close(SubscriptionId),
    /// `["NEG-OPEN", id, filter, message]` (NIP-77).
    NegOpen(SubscriptionId, Result<(Box<Filter>, Vec<u8>), Closed>),
    /// `["NEG-MSG", id, message]`.
    NegMessage(SubscriptionId, Result<Vec<u8>, Closed>),
    /// `["NEG-CLOSE", id]`.
    NegClose(SubscriptionId),
}

impl<'t> ClientMessage<'t> {
    /// The error is the text of a NOTICE.
    pub(crate) fn parse(text: &'t str) -> Result<Self, String> {
        let parts: Vec<&'t RawValue> =
            serde_json::from_str(text).map_err(|_| notice("a message is a JSON array that starts with a word"))?;
        let (verb, rest) = parts.split_first().ok_or_else(|| notice("a message must not be empty"))?;
        let verb: Cow<'_, str> =
            serde_json::from_str(verb.get()).map_err(|_| notice("a message starts with a word"))?;
        match (verb.as_ref(), rest) {
            ("EVENT", [event]) => Ok(Self::Event(event.get())),
            ("AUTH", [event]) => Ok(Self::Auth(event.get())),
            ("CLOSE", [id]) => Ok(Self::Close(subscription_id(id)?)),
            ("REQ", [id, filters @ ..]) => Ok(Self::Req(subscription_id(id)?, filters_of(filters))),
            ("COUNT", [id, filters @ ..]) => Ok(Self::Count(subscription_id(id)?, filters_of(filters))),
            ("NEG-OPEN", [id, filter, message]) => {
                let read = || {
                    let filter = Filter::from_json(filter.get())?;
                    Ok((Box::new(filter), hex_bytes(message).ok_or(Closed::NotHex)?))
                };
                Ok(Self::NegOpen(subscription_id(id)?, read()))
            }
            ("NEG-MSG", [id, message]) => {
                Ok(Self::NegMessage(subscription_id(id)?, hex_bytes(message).ok_or(Closed::NotHex)))
            }
            ("NEG-CLOSE", [id]) => Ok(Self::NegClose(subscription_id(id)?)),
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
            Self::Req(_, Ok(_)) => Verb::Req,
            Self::Count(_, Ok(_)) => Verb::Count,
            Self::Close(_) => Verb::Close,
            Self::NegOpen(_, Ok(_)) | Self::NegMessage(_, Ok(_)) | Self::NegClose(_) => Verb::Neg,
            _ => Verb::Unreadable,
        }
    }
}

/// The bytes of a JSON string of hex digits, in either case.
fn hex_bytes(raw: &RawValue) -> Option<Vec<u8>> {
    let text = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn notice(what: &str) -> String {
    format!("invalid: {what}")
}

fn subscription_id(raw: &RawValue) -> Result<SubscriptionId, String> {
    let id: Cow<'_, str> = serde_json::from_str(raw.get()).map_err(|_| notice("a subscription id is a string"))?;
    let max = SubscriptionId::MAX_CHARS;
    SubscriptionId::checked(&id).ok_or_else(|| notice(&format!("a subscription id has 1 to {max} characters")))
}

fn filters_of(raw: &[&RawValue]) -> Result<Vec<Filter>, Closed> {
    if raw.is_empty() {
        return Err(Closed::NoFilter);
    }
    raw.iter().map(|filter| Ok(Filter::from_json(filter.get())?)).collect()
}

/// The event's JSON in a message of the common form, not parsed yet. If it is not one event, the message has to be parsed
/// as a whole.
pub(crate) fn common_event_form(text: &str) -> Option<&str> {
    text.strip_prefix(r#"["EVENT","#)?.strip_suffix(']')
}

/// The id that an unreadable event claims to have, for the OK that refuses it.
pub(crate) fn claimed_id(event: &str) -> String {
    #[derive(Deserialize)]
    struct Claim<'t> {
        #[serde(borrow)]
        id: Cow<'t, str>,
    }
    let claim = serde_json::from_str::<Claim<'_>>(event).ok();
    claim.map(|claim| claim.id.chars().take(64).collect()).unwrap_or_default()
}

/// Messages of the relay, as text.
pub(crate) mod reply {
    use kukuri_domain::hex;
    use kukuri_store::{Completeness, Count};

    use super::SubscriptionId;

    /// For an event's id, or the id it claims to have.
    pub(crate) fn ok(id: &str, accepted: bool, message: &str) -> String {
        let accepted = if accepted { ",true," } else { ",false," };
        [r#"["OK","#, &quoted(id), accepted, &quoted(message), "]"].concat()
    }

    /// In parts, so that an event's JSON is copied once.
    pub(crate) fn event<'a>(subscription: &'a SubscriptionId, json: &'a [u8]) -> [&'a [u8]; 5] {
        [br#"["EVENT","#, subscription.0.as_bytes(), b",", json, b"]"]
    }

    /// With a hint whether matches were left out (NIP-67).
    pub(crate) fn eose(subscription: &SubscriptionId, rest: Completeness) -> String {
        let hint = match rest {
            Completeness::Complete => r#",["finish"]"#,
            Completeness::Truncated | Completeness::BudgetSpent => r#",["more"]"#,
            Completeness::Unknown => "",
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

    pub(crate) fn neg_message(subscription: &SubscriptionId, message: &[u8]) -> String {
        format!(r#"["NEG-MSG",{},"{}"]"#, &subscription.0, hex::encode(message))
    }

    pub(crate) fn neg_error(subscription: &SubscriptionId, reason: &str) -> String {
        format!(r#"["NEG-ERR",{},{}]"#, &subscription.0, quoted(reason))
    }

    pub(crate) fn notice(text: &str) -> String {
        format!(r#"["NOTICE",{}]"#, quoted(text))
    }

    pub(crate) fn auth_challenge(challenge: &str) -> String {
        format!(r#"["AUTH",{}]"#, quoted(challenge))
    }

    fn quoted(text: &str) -> String {
        // Writing a string as JSON can't fail.
        serde_json::to_string(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_malformed_message_is_answered() {
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
                Err(said) => assert!(said.starts_with(answer), "{text}: {said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let long = format!(r#"["REQ","{}",{{}}]"#, "x".repeat(65));
        assert!(ClientMessage::parse(&long).is_err());
        for text in [r#"["REQ","s"]"#, r#"["REQ","s",{"ids":["x"]}]"#] {
            assert!(matches!(ClientMessage::parse(text), Ok(ClientMessage::Req(_, Err(_)))), "{text}");
        }
        assert!(matches!(ClientMessage::parse(r#"["COUNT","s",1]"#), Ok(ClientMessage::Count(_, Err(_)))));
        for text in [
            r#"["NEG-OPEN","s",{"ids":["x"]},"61"]"#,
            r#"["NEG-OPEN","s",{},"6"]"#,
            r#"["NEG-OPEN","s",{},"6g"]"#,
            r#"["NEG-MSG","s",61]"#,
        ] {
            let parsed = ClientMessage::parse(text);
            assert!(
                matches!(parsed, Ok(ClientMessage::NegOpen(_, Err(_)) | ClientMessage::NegMessage(_, Err(_)))),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unreadable_event_is_answered_by_the_id_it_claims() {
        assert_eq!(claimed_id(r#"{"id":"abc","kind":-1}"#), "abc");
        assert_eq!(claimed_id(r#"{"kind":1}"#), "");
        assert_eq!(claimed_id("[]"), "");
    }
}
