//! The bounds of a session.

use std::time::Duration;

/// No part of a set has more items, on any node.
pub(crate) const MOST_ITEMS: usize = 65_536;
/// No message names more ids.
pub(crate) const MOST_IDS: usize = 4_096;

/// How much, how fast, how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Items of a set that are held at a time: some 100 bytes each. No more than 65,536.
    pub part_items: usize,
    /// Items that are asked for, or offered, at a time. No more than 4,096.
    pub batch_items: usize,
    /// The longest frame that is read or written: the same on all nodes. An event that does not fit is not given.
    pub frame_bytes: usize,
    /// Events and hints that are taken or given in a second.
    pub items_per_second: u32,
    /// Bytes of them in a second.
    pub bytes_per_second: u32,
    /// How long the other side may be silent, or not read.
    pub patience: Duration,
    /// How long a session may last. What is left is for the next one.
    pub longest: Duration,
    /// Messages that are answered in a session.
    pub rounds: u64,
}

impl Settings {
    pub(crate) fn part(&self) -> usize {
        self.part_items.clamp(1, MOST_ITEMS)
    }

    /// What is asked for at a time is paid for in about a second, so that nobody takes it for silence.
    pub(crate) fn batch(&self) -> usize {
        self.batch_items.min(self.items_per_second as usize).clamp(1, MOST_IDS)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            part_items: 8_192,
            batch_items: 256,
            frame_bytes: 1 << 20,
            items_per_second: 500,
            bytes_per_second: 2 << 20,
            patience: Duration::from_secs(30),
            longest: Duration::from_secs(600),
            rounds: 1_000_000,
        }
    }
}
