//! Hard limits of an event (E-8). Fields have the names of the configuration keys in `[limits]`; each refusal names the
//! key and its value.

use std::time::Duration;

use crate::{event::Event, refusal::Refusal, time::Millis};

/// Maximum sizes of an event, and how far ahead of this node's clock it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the event's JSON, as this node encodes it.
    pub event_bytes: usize,
    /// The number of tags.
    pub tag_count: usize,
    /// Bytes of text in all tags together.
    pub tags_bytes: usize,
    /// Bytes of text in one tag.
    pub tag_bytes: usize,
    /// The number of topics that an event is bound to.
    pub topics_per_event: usize,
    /// Bytes of the content.
    pub content_bytes: usize,
    /// How far `created_at` may be ahead of this node's clock.
    pub created_at_ahead: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_bytes: 128 * 1024,
            tag_count: 2_000,
            tags_bytes: 96 * 1024,
            tag_bytes: 8 * 1024,
            topics_per_event: 50,
            content_bytes: 96 * 1024,
            created_at_ahead: Duration::from_secs(15 * 60),
        }
    }
}

/// A limit on a size. `Display` is the fault of an event that exceeds it, and its configuration key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Limit {
    #[error("event is larger than limits.event_bytes")]
    EventBytes,
    #[error("event has more tags than limits.tag_count")]
    TagCount,
    #[error("tags are larger than limits.tags_bytes")]
    TagsBytes,
    #[error("a tag is larger than limits.tag_bytes")]
    TagBytes,
    #[error("event names more topics than limits.topics_per_event")]
    TopicsPerEvent,
    #[error("content is larger than limits.content_bytes")]
    ContentBytes,
}

/// A limit that an event exceeds. `Display` names its key and value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} = {allowed}")]
pub struct OverLimit {
    /// The exceeded limit.
    pub limit: Limit,
    /// Its value: bytes or a count.
    pub allowed: usize,
}

impl Limits {
    /// Refuses a text too long to be an event within the limits, before it is parsed.
    ///
    /// An escaped character takes up to six bytes, so six times `event_bytes` is the longest spelling of an allowed
    /// event, white space aside. The size of the event itself is checked on the JSON that this node encodes, which is
    /// the same for every spelling.
    pub fn check_text(&self, text: &[u8]) -> Result<(), Refusal> {
        // Divides the length instead of multiplying the limit, so that the refusal names the configured limit.
        within(Limit::EventBytes, text.len().div_ceil(6), self.event_bytes)
    }

    /// Checks the limits that need only the event.
    pub fn check(&self, event: &Event, now: Millis) -> Result<(), Refusal> {
        within(Limit::TagCount, event.tags.len(), self.tag_count)?;
        within(Limit::TagsBytes, event.tags.text_bytes(), self.tags_bytes)?;
        within(Limit::ContentBytes, event.content.len(), self.content_bytes)?;
        for tag in event.tags.iter() {
            within(Limit::TagBytes, tag.text_bytes(), self.tag_bytes)?;
        }
        if event.created_at > now.after(self.created_at_ahead).seconds() {
            return Err(Refusal::Future(self.created_at_ahead));
        }
        Ok(())
    }
}

pub(crate) fn within(limit: Limit, actual: usize, allowed: usize) -> Result<(), Refusal> {
    if actual > allowed {
        return Err(Refusal::OverLimit(OverLimit { limit, allowed }));
    }
    Ok(())
}
