//! The bounds of a session.

use std::time::Duration;

/// Items in a part of a set. The same on every node.
pub(crate) const MAX_PART_ITEMS: usize = 65_536;
/// Ids in one message. The same on every node.
pub(crate) const MAX_MESSAGE_IDS: usize = 4_096;

/// The bounds of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Items of a set held in memory at a time, about 100 bytes each. At most 65,536.
    pub part_items: usize,
    /// Items asked for, or offered, in one message. At most 4,096.
    pub batch_items: usize,
    /// Maximum size of a frame. The same on every node: an event that does not fit is not sent.
    pub max_frame_bytes: usize,
    /// Events and hints received or sent per second.
    pub items_per_second: u32,
    /// Bytes of events and hints per second.
    pub bytes_per_second: u32,
    /// For each read and each write.
    pub io_timeout: Duration,
    /// For the whole session. The next session continues.
    pub session_timeout: Duration,
    /// Messages received in a session.
    pub max_messages: u64,
}

impl Settings {
    /// At most what the rate limit passes in a second, so that the peer's timeout does not expire meanwhile.
    pub(crate) fn batch_len(&self) -> usize {
        self.batch_items.min(self.items_per_second as usize).clamp(1, MAX_MESSAGE_IDS)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            part_items: 8_192,
            batch_items: 256,
            max_frame_bytes: 1 << 20,
            items_per_second: 500,
            bytes_per_second: 2 << 20,
            io_timeout: Duration::from_secs(30),
            session_timeout: Duration::from_secs(600),
            max_messages: 1_000_000,
        }
    }
}
