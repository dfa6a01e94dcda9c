//! What came of a session.

use std::{collections::BTreeMap, io};

use kukuri_store::StoreError;

/// How a session ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// Both sides have told all of it.
    #[error("finished")]
    Finished,
    /// The topic is not shared, here or there.
    #[error("the topic is not shared with this peer")]
    NotShared,
    /// No history is taken in now, here or there.
    #[error("no history is taken in now")]
    NoHistory,
    /// It lasted too long; the next one goes on.
    #[error("its time is over")]
    Over,
    /// The other side was silent for too long, or did not read.
    #[error("the peer was silent for too long")]
    Silent,
    /// The stream broke.
    #[error("the stream broke: {0}")]
    Lost(#[from] io::Error),
    /// The other side did what it must not.
    #[error("the peer broke the protocol: {0}")]
    Misbehaved(&'static str),
    /// The other side ended it, and says why.
    #[error("the peer ended it: {0}")]
    Ended(String),
    /// The other side speaks another version.
    #[error("the peer speaks version {0}")]
    OtherVersion(u8),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a session did, for figures and logs.
#[derive(Debug)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// Parts of the set that were compared.
    pub parts: u64,
    /// Messages that were answered.
    pub rounds: u64,
    /// Events that came, and were new.
    pub events_in: u64,
    /// Events that were given.
    pub events_out: u64,
    /// Hints that came, and told something.
    pub hints_in: u64,
    /// Hints that were given.
    pub hints_out: u64,
    /// Bytes read and written.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// What was not asked for, because it is known here.
    pub known: u64,
    /// Events that were refused, by the first word of the reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Hints that no request backs.
    pub hints_refused: u64,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            end: End::Finished,
            parts: 0,
            rounds: 0,
            events_in: 0,
            events_out: 0,
            hints_in: 0,
            hints_out: 0,
            bytes_in: 0,
            bytes_out: 0,
            known: 0,
            refused: BTreeMap::new(),
            hints_refused: 0,
        }
    }
}

impl Report {
    /// Whether all of the topic was gone through.
    pub fn is_finished(&self) -> bool {
        matches!(self.end, End::Finished)
    }
}
