//! The searchable text of an event: what its readers see, by kind.

use std::collections::HashSet;

use kukuri_domain::{Event, Kind, topic::claims_to_be_topic};
use serde_json::Value;

use crate::analyzer::tokens;

/// Default of `search.kinds` (C-1).
pub const DEFAULT_KINDS: [u16; 7] = [0, 1, 11, 1111, 30023, 30818, 1063];

/// The text of an event. Both parts may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Names and titles, which rank higher.
    pub title: String,
    /// Everything else.
    pub body: String,
}

impl Text {
    /// The text of an event; of an unknown kind, its content.
    pub fn of(event: &Event) -> Self {
        let tag = |name| event.tags.values(name).next();
        let (title, about) = match event.kind {
            Kind(0) => return Self::of_profile(&event.content),
            Kind(11) => ([tag("title"), tag("subject")], [None, None]),
            Kind(30023) => ([tag("title"), None], [tag("summary"), None]),
            // The identifier is the title of a wiki article without one.
            Kind(30818) => ([tag("title").or_else(|| tag("d")), None], [tag("summary"), None]),
            Kind(1063) => ([tag("title"), None], [tag("alt"), tag("summary")]),
            _ => ([tag("subject"), None], [None, None]),
        };
        let hashtags = event.tags.values("t").filter(|value| !claims_to_be_topic(value));
        Self::new(title, about, std::iter::once(event.content.as_str()).chain(hashtags))
    }

    /// Untrusted JSON: anything but an object has no text.
    fn of_profile(content: &str) -> Self {
        let Ok(Value::Object(fields)) = serde_json::from_str(content) else { return Self::default() };
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        Self::new([field("name"), field("display_name")], [field("about"), field("nip05")], std::iter::empty())
    }

    fn new<'e>(title: [Option<&str>; 2], about: [Option<&'e str>; 2], rest: impl Iterator<Item = &'e str>) -> Self {
        let title: Vec<&str> = title.into_iter().flatten().collect();
        let body: Vec<&str> = about.into_iter().flatten().chain(rest).collect();
        Self { title: title.join("\n"), body: body.join("\n") }
    }

    /// The tokens of title and body.
    pub fn words(&self) -> HashSet<String> {
        tokens(&self.title).into_iter().chain(tokens(&self.body)).map(|token| token.text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u16, content: &str, tags: &[&[&str]]) -> Event {
        Event {
            id: kukuri_domain::EventId::from_bytes([0; 32]),
            pubkey: kukuri_domain::PublicKey::from_bytes([0; 32]),
            created_at: kukuri_domain::Timestamp(0),
            kind: Kind(kind),
            tags: tags.iter().map(|tag| tag.iter().copied()).collect(),
            content: content.to_owned(),
            sig: kukuri_domain::Signature::from_bytes([0; 64]),
        }
    }

    fn text(title: &str, body: &str) -> Text {
        Text { title: title.to_owned(), body: body.to_owned() }
    }

    #[test]
    fn text_of_each_kind_is_what_its_readers_see() {
        // C-1
        let profile = r#"{"name":"ana","display_name":"アナ","about":"likes tea","picture":"https://x/y.png","age":3}"#;
        for (event, found) in [
            (event(0, profile, &[]), text("ana\nアナ", "likes tea")),
            (event(0, "no JSON", &[]), text("", "")),
            (event(0, "[1]", &[]), text("", "")),
            (event(1, "hello", &[&["t", "kukuri:global"], &["t", "tea"]]), text("", "hello\ntea")),
            (event(11, "first", &[&["title", "Welcome"]]), text("Welcome", "first")),
            (event(30023, "# Long", &[&["title", "On tea"], &["summary", "short"]]), text("On tea", "short\n# Long")),
            (event(30818, "about it", &[&["d", "tea-ceremony"]]), text("tea-ceremony", "about it")),
            (event(1063, "a cup", &[&["alt", "picture of a cup"]]), text("", "picture of a cup\na cup")),
        ] {
            assert_eq!(Text::of(&event), found);
        }
    }
}
