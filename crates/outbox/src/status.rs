//! The status of a consumer, for operators and metrics.

use kukuri_store::Seq;

/// The state of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not at work yet.
    #[default]
    Starting,
    /// Another instance has the lease; this one waits to take over.
    Standby,
    /// Applying rows, or waiting for new ones.
    Following,
    /// Filling a new copy from a snapshot.
    Rebuilding {
        /// Events applied so far.
        done: u64,
        /// About how many there are.
        of: u64,
    },
    /// Paused by an operator.
    Paused,
    /// Waiting to retry after a failure.
    Retrying {
        /// The failure.
        why: String,
        /// Failures in a row.
        times: u32,
    },
    /// A row can't be applied. Nothing is skipped: an operator repairs the cause and resumes the consumer.
    Stuck {
        /// The row.
        at: Seq,
        /// What is wrong with it.
        why: String,
    },
    /// The outbox no longer has the rows that the consumer needs (O-8): it waits for a rebuild.
    TooFarBehind {
        /// The first row of the outbox.
        first: Seq,
    },
    /// Ended.
    Stopped,
}

impl State {
    /// Whether only an operator can make the consumer continue.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Paused | Self::Stuck { .. } | Self::TooFarBehind { .. } | Self::Stopped)
    }

    /// The state's name in JSON. Stable.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Following => "following",
            Self::Rebuilding { .. } => "rebuilding",
            Self::Paused => "paused",
            Self::Retrying { .. } => "retrying",
            Self::Stuck { .. } => "stuck",
            Self::TooFarBehind { .. } => "too_far_behind",
            Self::Stopped => "stopped",
        }
    }
}

/// The status of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The state.
    pub state: State,
    /// The last row whose effect is in place, by this instance or another.
    pub offset: Seq,
    /// Rebuilds completed since the consumer started.
    pub builds: u64,
}
