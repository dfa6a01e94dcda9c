//! What can go wrong.

use std::net::SocketAddr;

/// Why the bridge does not start, or does not reach a peer.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// The address can't be used.
    #[error("can't listen for peers on {address}: {reason}")]
    Bind {
        /// Where it should listen.
        address: SocketAddr,
        /// What the system says.
        reason: String,
    },
    /// Another bridge takes what this relay's clients publish.
    #[error("this relay has a bridge already")]
    Taken,
    /// The endpoint is being replaced.
    #[error("the endpoint is being replaced")]
    Down,
    /// A peer can't be reached.
    #[error("peer {peer} can't be reached: {reason}")]
    Unreachable {
        /// Whom we tried to reach.
        peer: String,
        /// Why it failed.
        reason: String,
    },
}
