//! Decides whether an effective event is shown to a viewer: private kinds (E-10), and events withheld by moderation
//! (M-5).
//!
//! Withholding is not deletion: the event stays effective in the store, in the outbox and in the shared set. Every path
//! that shows events calls [`Visibility::shows`]: REQ, live delivery, COUNT, NEG, search, feed, snapshot, gossip and
//! catch-up.

use std::{fmt, sync::Arc};

use crate::{event::Event, filter::Filter, id::PublicKey, topic::TopicId};

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

/// Decides which effective events are withheld from which viewers.
pub trait Overlay: fmt::Debug + Send + Sync + 'static {
    /// Whether the event is withheld from this viewer. `filter` is the filter that matched the event; `None` on paths
    /// without filters (feed, snapshot, gossip, catch-up). Must be fast: it is called for each event that would be
    /// shown.
    fn withholds(&self, event: &Event, topics: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool;
}

/// The viewer's rights and the overlay together. Cheap to clone. By default no overlay withholds anything.
#[derive(Clone, Debug, Default)]
pub struct Visibility(Option<Arc<dyn Overlay>>);

impl Visibility {
    /// Visibility with an overlay.
    pub fn with_overlay(overlay: Arc<dyn Overlay>) -> Self {
        Self(Some(overlay))
    }

    /// Whether an overlay may withhold events. Without one, a store may answer from indexes alone, without reading each
    /// event.
    #[inline]
    pub fn has_overlay(&self) -> bool {
        self.0.is_some()
    }

    /// Whether the viewer is shown this event.
    #[inline]
    pub fn shows(&self, event: &Event, topics: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool {
        viewer.may_see(event) && !self.withholds(event, topics, viewer, filter)
    }

    /// Whether the overlay withholds the event. The node itself sees everything.
    #[inline]
    pub fn withholds(&self, event: &Event, topics: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool {
        match &self.0 {
            Some(overlay) if !matches!(viewer, Viewer::Node) => overlay.withholds(event, topics, viewer, filter),
            _ => false,
        }
    }
}
