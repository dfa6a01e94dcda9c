//! The outcome of a session.

use std::{collections::BTreeMap, io};

use kukuri_store::StoreError;

/// How a session ended.
#[derive(Debug, Default, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SessionEnd {
    /// The whole set was compared and exchanged.
    #[default]
    #[error("finished")]
    Finished,
    #[error("the topic is not shared with this peer")]
    NotShared,
    /// One side accepts no history at the moment (P-6, O-9).
    #[error("no history is accepted at the moment")]
    NoHistory,
    #[error("the session reached its limit; the next one continues")]
    LimitReached,
    #[error("the peer timed out")]
    PeerTimeout,
    #[error("the stream broke: {0}")]
    StreamBroken(#[from] io::Error),
    #[error("the peer broke the protocol: {0}")]
    Misbehaved(&'static str),
    #[error("the peer ended the session: {0}")]
    EndedByPeer(&'static str),
    #[error("the peer speaks version {0}")]
    OtherVersion(u8),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionEnd {
    pub(crate) const MAX_CODE: u8 = 5;

    /// The code that tells the peer.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Finished => 0,
            Self::NotShared => 1,
            Self::NoHistory => 2,
            Self::LimitReached => 3,
            Self::Misbehaved(_) | Self::OtherVersion(_) => 4,
            Self::PeerTimeout | Self::StreamBroken(_) | Self::EndedByPeer(_) | Self::Store(_) => Self::MAX_CODE,
        }
    }

    /// The end on this side, by the code of the peer.
    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Finished,
            1 => Self::NotShared,
            2 => Self::NoHistory,
            3 => Self::LimitReached,
            4 => Self::EndedByPeer("it reports that this node broke the protocol"),
            _ => Self::EndedByPeer("it reports a failure"),
        }
    }
}

/// The counts of a session, for metrics and logs.
#[derive(Debug, Default)]
pub struct Report {
    /// How the session ended.
    pub end: SessionEnd,
    /// Compared parts of the set.
    pub parts: u64,
    /// Messages received after the handshake.
    pub messages: u64,
    /// Received events that were new.
    pub events_in: u64,
    /// Events sent.
    pub events_out: u64,
    /// Received hints that were new.
    pub hints_in: u64,
    /// Hints sent.
    pub hints_out: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Ids that were not asked for, or items that were not new.
    pub known: u64,
    /// PublishRefused events, by the prefix of the refusal.
    pub refused: BTreeMap<&'static str, u64>,
    /// Hints without a request that justifies them.
    pub hints_refused: u64,
}
