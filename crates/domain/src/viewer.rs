//! Who is asking: private kinds are shown only to a party to them (E-10).

use std::sync::Arc;

use crate::{event::Event, id::PublicKey};

/// The reader of a query or a live stream.
#[derive(Clone, Debug)]
pub enum Viewer {
    /// The node itself, for export, check and repair. Sees everything.
    Node,
    /// A client, with the keys it has authenticated as; none for a stranger.
    Client(Arc<[PublicKey]>),
}

impl Viewer {
    /// A client that has not authenticated.
    pub fn stranger() -> Self {
        Self::Client(Arc::default())
    }

    /// Whether it sees no private event at all.
    pub fn is_stranger(&self) -> bool {
        matches!(self, Self::Client(keys) if keys.is_empty())
    }

    /// Whether it may see this event: its author and those in its `p` tags are the parties to a private one.
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
