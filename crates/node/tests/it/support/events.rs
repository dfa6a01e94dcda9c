//! Events made and signed by `nostr-sdk`, which shares no code with this node.

use kukuri_testing::TOPIC;
use nostr_sdk::{Event, EventBuilder, Keys, Kind, Tag};

/// A note in the topic.
pub(crate) fn note(keys: &Keys, content: &str) -> Event {
    EventBuilder::text_note(content).tag(topic()).sign_with_keys(keys).unwrap()
}

/// A deletion request in the topic.
pub(crate) fn deletion(keys: &Keys, target: &Event) -> Event {
    let named = Tag::event(target.id);
    EventBuilder::new(Kind::EventDeletion, "").tags([topic(), named]).sign_with_keys(keys).unwrap()
}

pub(crate) fn topic() -> Tag {
    Tag::hashtag(TOPIC)
}
