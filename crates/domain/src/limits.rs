//! Hard limits of an event (E-8). Each is configuration; each refusal names its limit and the value.

use std::time::Duration;

use crate::{event::Event, refusal::Refusal, time::Millis};

/// How large an event may be and how far ahead of our clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The event's JSON as this node writes it.
    pub event_bytes: usize,
    /// The number of tags.
    pub tag_count: usize,
    /// The text of all tags together.
    pub tags_bytes: usize,
    /// The text of one tag.
    pub tag_bytes: usize,
    /// The topics it is bound to.
    pub topics: usize,
    /// The content.
    pub content_bytes: usize,
    /// How far `created_at` may lie ahead.
    pub ahead: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            event_bytes: 128 * 1024,
            tag_count: 2_000,
            tags_bytes: 96 * 1024,
            tag_bytes: 8 * 1024,
            topics: 50,
            content_bytes: 96 * 1024,
            ahead: Duration::from_secs(15 * 60),
        }
    }
}

/// One of [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::event_bytes`].
    EventBytes,
    /// [`Limits::tag_count`].
    TagCount,
    /// [`Limits::tags_bytes`].
    TagsBytes,
    /// [`Limits::tag_bytes`].
    TagBytes,
    /// [`Limits::topics`].
    Topics,
    /// [`Limits::content_bytes`].
    ContentBytes,
    /// [`Limits::ahead`].
    Ahead,
}

impl Limits {
    /// Refuses a text too long to be an event within the limits, before it is parsed.
    ///
    /// A character takes up to six bytes when it is escaped, so this is the longest spelling of an allowed event,
    /// white space apart. What an event really weighs is checked when its own JSON is written, the same for every
    /// spelling of it.
    pub fn check_text(&self, text: &[u8]) -> Result<(), Refusal> {
        // Divided, so that the refusal names the limit itself.
        within(Limit::EventBytes, text.len().div_ceil(6), self.event_bytes)
    }

    /// Checks everything that can be seen in the event alone.
    pub fn check(&self, event: &Event, now: Millis) -> Result<(), Refusal> {
        within(Limit::TagCount, event.tags.len(), self.tag_count)?;
        within(Limit::TagsBytes, event.tags.text_bytes(), self.tags_bytes)?;
        within(Limit::ContentBytes, event.content.len(), self.content_bytes)?;
        for tag in event.tags.iter() {
            within(Limit::TagBytes, tag.text_bytes(), self.tag_bytes)?;
        }
        if event.created_at > now.after(self.ahead).seconds() {
            return Err(Refusal::OverLimit { limit: Limit::Ahead, allowed: self.ahead.as_secs() });
        }
        Ok(())
    }
}

/// Checks the event as this node writes it.
pub(crate) fn check_encoded(bytes: usize, event_bytes: usize) -> Result<(), Refusal> {
    within(Limit::EventBytes, bytes, event_bytes)
}

impl Limits {
    /// Checks how many topics an event is bound to.
    pub fn check_topics(&self, count: usize) -> Result<(), Refusal> {
        within(Limit::Topics, count, self.topics)
    }
}

fn within(limit: Limit, actual: usize, allowed: usize) -> Result<(), Refusal> {
    if actual > allowed {
        return Err(Refusal::OverLimit { limit, allowed: allowed as u64 });
    }
    Ok(())
}
