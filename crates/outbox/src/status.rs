//! What a consumer is at, for operators and for metrics.

use kukuri_store::Seq;

/// What a consumer does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It begins.
    #[default]
    Starting,
    /// Another instance runs it; this one waits to take over.
    Standby,
    /// It has done all there is, or is at it.
    Following,
    /// It builds everything anew from a snapshot.
    Rebuilding {
        /// Events that are in so far.
        done: u64,
        /// About how many there are.
        of: u64,
    },
    /// An operator has stopped it for a while.
    Paused,
    /// Something failed; it tries again.
    Retrying {
        /// What failed.
        why: String,
        /// How often in a row.
        times: u32,
    },
    /// It can't go on past this row. Nothing is skipped: an operator has to mend what is wrong, and resume it.
    Stuck {
        /// The row.
        at: Seq,
        /// What is wrong with it.
        why: String,
    },
    /// The rows it needs are gone (O-8): it has to be built anew.
    TooFarBehind {
        /// The first row there is.
        first: Seq,
    },
    /// It has ended.
    Stopped,
}

impl State {
    /// Whether it goes on only if somebody does something.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Paused | Self::Stuck { .. } | Self::TooFarBehind { .. } | Self::Stopped)
    }
}

/// What a consumer is at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// What it does now.
    pub state: State,
    /// Everything up to here is done, by this instance or another.
    pub offset: Seq,
    /// The highest row it knows of.
    pub head: Seq,
    /// How often everything was built anew since it started.
    pub builds: u64,
}

impl Status {
    /// Rows that are still to be done (O-9).
    pub fn backlog(&self) -> u64 {
        self.head.0.saturating_sub(self.offset.0)
    }
}
