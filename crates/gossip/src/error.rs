//! Errors of the bridge.

use std::net::SocketAddr;

use crate::peer::PeerId;

/// Why the bridge can't start, or can't reach a peer.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum GossipError {
    #[error("can't listen for peers on {address}: {reason}")]
    Bind { address: SocketAddr, reason: String },
    /// Another bridge receives the published events of this engine.
    #[error("this engine has a bridge already")]
    AlreadyBridged,
    #[error("the gossip endpoint is being replaced; try again in a few seconds")]
    NoEndpoint,
    #[error("peer {peer} can't be reached: {reason}")]
    Unreachable { peer: PeerId, reason: String },
}
