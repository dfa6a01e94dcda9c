//! The beginning of a client's message: its first word, and what follows. It is read without parsing the message, so that
//! rates are asked first (W-4).

use std::borrow::Cow;

use crate::{message::SubscriptionId, metrics::Verb};

/// White space of JSON.
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];
/// Bytes of the longest subscription id: each character may be escaped as two surrogates.
const MAX_STRING_BYTES: usize = 2 + 12 * SubscriptionId::MAX_CHARS;
/// A longer CLOSE or NEG-CLOSE has no valid form.
const MAX_CLOSE_BYTES: usize = 2 * MAX_STRING_BYTES;

/// The beginning of a message.
pub(crate) struct Head<'t> {
    word: Cow<'t, str>,
    /// Everything after the first word and its comma.
    rest: &'t str,
    /// The length of the whole message.
    bytes: usize,
}

/// The rate that a message counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountedAs<'t> {
    /// EVENT with one part, this JSON: the intake counts it.
    Event(&'t str),
    /// AUTH.
    Authentication,
    /// A CLOSE frees what its client holds, and costs next to nothing.
    Nothing,
    /// Everything else, also what can't be read.
    Request,
}

impl<'t> Head<'t> {
    /// An unreadable beginning has an empty word.
    pub(crate) fn of(text: &'t str) -> Self {
        let word = text.trim_start_matches(SPACE).strip_prefix('[').and_then(string_at_start);
        let (word, rest) = word.unwrap_or_default();
        Self { word, rest: rest.strip_prefix(',').unwrap_or_default(), bytes: text.len() }
    }

    pub(crate) fn verb(&self) -> Verb {
        match self.word.as_ref() {
            "EVENT" => Verb::Event,
            "AUTH" => Verb::Auth,
            "REQ" => Verb::Req,
            "COUNT" => Verb::Count,
            "CLOSE" => Verb::Close,
            "NEG-OPEN" | "NEG-MSG" | "NEG-CLOSE" => Verb::Neg,
            _ => Verb::Unreadable,
        }
    }

    pub(crate) fn counted_as(&self) -> CountedAs<'t> {
        match self.word.as_ref() {
            "EVENT" => self.only_part().map_or(CountedAs::Request, CountedAs::Event),
            "AUTH" => CountedAs::Authentication,
            "CLOSE" | "NEG-CLOSE" if self.bytes <= MAX_CLOSE_BYTES => CountedAs::Nothing,
            _ => CountedAs::Request,
        }
    }

    /// The subscription id after the first word.
    pub(crate) fn subscription(&self) -> Option<SubscriptionId> {
        let (id, _) = string_at_start(self.rest)?;
        SubscriptionId::checked(&id)
    }

    /// The only part after the first word, if there is one: the JSON of an event.
    pub(crate) fn only_part(&self) -> Option<&'t str> {
        self.rest.trim_end_matches(SPACE).strip_suffix(']')
    }
}

/// A JSON string at the start of a text, unless it is too long, and the text after it.
fn string_at_start(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let text = text.trim_start_matches(SPACE);
    let mut bytes = text.bytes().enumerate().take(MAX_STRING_BYTES);
    bytes.next().filter(|(_, quote)| *quote == b'"')?;
    let end = loop {
        match bytes.next()? {
            (_, b'\\') => drop(bytes.next()?),
            (quote, b'"') => break quote + 1,
            _ => {}
        }
    };
    let string = serde_json::from_str(&text[..end]).ok()?;
    Some((string, text[end..].trim_start_matches(SPACE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ClientMessage;

    #[test]
    fn head_names_verb_and_subscription_without_parsing_the_rest() {
        for (text, verb, counted_as, id) in [
            (r#"["REQ","s",{"#, Verb::Req, CountedAs::Request, Some("s")),
            (" [ \"COUNT\" , \"\\u0041\\\"\" , rubbish", Verb::Count, CountedAs::Request, Some("A\"")),
            (r#"["NEG-OPEN","s",{},"61"]"#, Verb::Neg, CountedAs::Request, Some("s")),
            (r#"["NEG-CLOSE","s"]"#, Verb::Neg, CountedAs::Nothing, Some("s")),
            (r#"["EVENT",{}]"#, Verb::Event, CountedAs::Event("{}"), None),
            (r#"["EVENT",{}"#, Verb::Event, CountedAs::Request, None),
            (r#"["EVENT"]"#, Verb::Event, CountedAs::Request, None),
            (r#"["AUTH",{}]"#, Verb::Auth, CountedAs::Authentication, None),
            (r#"["REQ",""]"#, Verb::Req, CountedAs::Request, None),
            (r#"["HELLO","s"]"#, Verb::Unreadable, CountedAs::Request, Some("s")),
            (r#"["REQ"#, Verb::Unreadable, CountedAs::Request, None),
            (r#"["REQ\"#, Verb::Unreadable, CountedAs::Request, None),
            ("", Verb::Unreadable, CountedAs::Request, None),
        ] {
            let head = Head::of(text);
            let found = (head.verb(), head.counted_as(), head.subscription());
            assert_eq!(found, (verb, counted_as, id.map(SubscriptionId::new)), "{text}");
        }
        let long = format!(r#"["CLOSE","{}"]"#, "s".repeat(10_000));
        assert_eq!((Head::of(&long).counted_as(), Head::of(&long).subscription()), (CountedAs::Request, None));
    }

    #[test]
    fn longest_subscription_id_is_read_in_any_spelling() {
        for character in ["s", "\\u0073", "\\ud83d\\ude00", "é"] {
            let id = character.repeat(SubscriptionId::MAX_CHARS);
            let text = format!(r#"["CLOSE","{id}"]"#);
            let Ok(ClientMessage::Close(parsed)) = ClientMessage::parse(&text) else { panic!("{text}") };
            assert_eq!(Head::of(&text).subscription(), Some(parsed), "{text}");
            assert_eq!(Head::of(&text).counted_as(), CountedAs::Nothing, "{text}");
        }
    }

    #[test]
    fn only_part_of_an_event_is_its_json() {
        assert_eq!(Head::of(r#"[ "EVENT" , {"id":1} ] "#).only_part(), Some(r#" {"id":1} "#));
        assert_eq!(Head::of(r#"["EVENT"]"#).only_part(), None);
        assert_eq!(Head::of(r#"["EVENT",{}"#).only_part(), None);
    }
}
