//! The viewer of a query or a live stream. Private kinds are shown only to their parties (E-10).

use std::sync::Arc;

use crate::{event::Event, id::PublicKey};

/// The reader of a query or a live stream.
#[derive(Clone, Debug)]
pub enum Viewer {
    /// The node itself, for export, check and repair. Sees everything.
    Node,
    /// A client, with the keys of its NIP-42 authentication; none without one.
    Client(Arc<[PublicKey]>),
}

impl Viewer {
    /// A client that has not authenticated.
    pub fn unauthenticated() -> Self {
        Self::Client(Arc::default())
    }

    /// Whether the viewer is an unauthenticated client, which sees no private event.
    pub fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Client(keys) if keys.is_empty())
    }

    /// Whether the viewer may see the event: the author and the keys in `p` tags are the parties to a private one.
    #[inline]
    pub fn may_see(&self, event: &Event) -> bool {
        match self {
            Self::Node => true,
            Self::Client(_) if !event.kind.is_private() => true,
            Self::Client(keys) => {
                keys.contains(&event.pubkey) || event.recipients().any(|recipient| keys.contains(&recipient))
            }
        }
    }
}
