//! What clients and the relay say to each other (NIP-01): one JSON array per WebSocket message.

use std::{borrow::Cow, fmt, sync::Arc};

use kukuri_domain::{Filter, Malformed};
use serde::Deserialize;
use serde_json::value::RawValue;

/// A client's name for one of its subscriptions. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubscriptionId(Arc<str>);

impl SubscriptionId {
    /// NIP-01's limit, in characters.
    pub(crate) const LONGEST: usize = 64;
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
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
}

/// What is wrong with a message, and how its sender hears of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing in it can be answered to.
    Notice(String),
    /// A subscription that can't be.
    Closed(SubscriptionId, String),
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
                filters_of(&id, filters).map(|filters| Self::Request(id, filters))
            }
            ("COUNT", [id, filters @ ..]) => {
                let id = subscription_id(id)?;
                filters_of(&id, filters).map(|filters| Self::Count(id, filters))
            }
            ("EVENT" | "AUTH" | "CLOSE" | "REQ" | "COUNT", _) => {
                Err(notice(&format!("{verb} has the wrong number of parts")))
            }
            _ => Err(notice("unknown word; there are EVENT, REQ, CLOSE, COUNT and AUTH")),
        }
    }
}

fn notice(what: &str) -> Fault {
    Fault::Notice(format!("invalid: {what}"))
}

fn subscription_id(raw: &RawValue) -> Result<SubscriptionId, Fault> {
    let id: Cow<'_, str> = serde_json::from_str(raw.get()).map_err(|_| notice("a subscription id is a string"))?;
    if id.is_empty() || id.chars().count() > SubscriptionId::LONGEST {
        return Err(notice(&format!("a subscription id has 1 to {} characters", SubscriptionId::LONGEST)));
    }
    Ok(SubscriptionId(id.as_ref().into()))
}

fn filters_of(id: &SubscriptionId, raw: &[&RawValue]) -> Result<Vec<Filter>, Fault> {
    let closed = |error: Malformed| Fault::Closed(id.clone(), format!("invalid: {error}"));
    if raw.is_empty() {
        return Err(Fault::Closed(id.clone(), "invalid: a request has at least one filter".to_owned()));
    }
    raw.iter().map(|filter| Filter::from_json(filter.get()).map_err(closed)).collect()
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
    use super::SubscriptionId;

    /// For the event of this id, or what it claims to be its id.
    pub(crate) fn ok(id: &str, accepted: bool, message: &str) -> String {
        format!(r#"["OK",{},{accepted},{}]"#, quoted(id), quoted(message))
    }

    pub(crate) fn event(subscription: &SubscriptionId, json: &[u8]) -> String {
        // What is stored is JSON that this node wrote itself, so it is UTF-8.
        format!(r#"["EVENT",{},{}]"#, quoted(&subscription.0), String::from_utf8_lossy(json))
    }

    pub(crate) fn end_of_stored(subscription: &SubscriptionId) -> String {
        format!(r#"["EOSE",{}]"#, quoted(&subscription.0))
    }

    pub(crate) fn closed(subscription: &SubscriptionId, reason: &str) -> String {
        format!(r#"["CLOSED",{},{}]"#, quoted(&subscription.0), quoted(reason))
    }

    pub(crate) fn count(subscription: &SubscriptionId, count: u64) -> String {
        format!(r#"["COUNT",{},{{"count":{count}}}]"#, quoted(&subscription.0))
    }

    pub(crate) fn notice(text: &str) -> String {
        format!(r#"["NOTICE",{}]"#, quoted(text))
    }

    pub(crate) fn challenge(challenge: &str) -> String {
        format!(r#"["AUTH",{}]"#, quoted(challenge))
    }

    fn quoted(text: &str) -> String {
        serde_json::Value::from(text).to_string()
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
        ] {
            match ClientMessage::parse(text) {
                Err(Fault::Notice(said)) => assert!(said.starts_with(answer), "{text}: {said}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let long = format!(r#"["REQ","{}",{{}}]"#, "x".repeat(65));
        assert!(matches!(ClientMessage::parse(&long), Err(Fault::Notice(_))));
        for text in [r#"["REQ","s"]"#, r#"["REQ","s",{"ids":["x"]}]"#, r#"["COUNT","s",1]"#] {
            assert!(matches!(ClientMessage::parse(text), Err(Fault::Closed(..))), "{text}");
        }
    }

    #[test]
    fn an_event_that_can_not_be_read_is_answered_by_the_id_it_claims() {
        assert_eq!(claimed_id(r#"{"id":"abc","kind":-1}"#), "abc");
        assert_eq!(claimed_id(r#"{"kind":1}"#), "");
        assert_eq!(claimed_id("[]"), "");
    }
}
