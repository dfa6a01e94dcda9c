//! Errors of the bridge.

use std::net::SocketAddr;

/// Why the bridge can't start, or can't reach a peer.
#[derive(Debug, thiserror::Error)]
pub enum GossipError {
    /// The endpoint can't be bound.
    #[error("can't listen for peers on {address}: {reason}")]
    Bind {
        /// The address to listen on.
        address: SocketAddr,
        /// The cause.
        reason: String,
    },
    /// Another bridge receives the published events of this engine.
    #[error("this engine has a bridge already")]
    AlreadyBridged,
    /// There is no endpoint at the moment.
    #[error("the gossip endpoint is being replaced; try again in a few seconds")]
    NoEndpoint,
    /// A peer can't be reached.
    #[error("peer {peer} can't be reached: {reason}")]
    Unreachable {
        /// Its id.
        peer: String,
        /// The cause.
        reason: String,
    },
}
