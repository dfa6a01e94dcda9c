//! Decides whether an effective event is shown to a viewer: private kinds (E-10), and events withheld by moderation
//! (M-5).
//!
//! Withholding is not deletion: the event stays effective in the store, in the outbox and in the shared set. Every path
//! that shows events calls [`Visibility::shows`]: REQ, live delivery, COUNT, NEG, search, feed, snapshot, gossip and
//! catch-up.

use std::{fmt, sync::Arc};

use crate::{event::Event, filter::Filter, topic::TopicId, viewer::Viewer};

/// Decides which effective events are withheld from which viewers.
pub trait Overlay: Send + Sync + 'static {
    /// Whether the event is withheld from this viewer. `filter` is the filter that matched the event; `None` on paths
    /// without filters (feed, snapshot, gossip, catch-up). Must be fast: it is called for each event that would be
    /// shown.
    fn withholds(&self, event: &Event, topics: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool;
}

/// The viewer's rights and the overlay together. Cheap to clone. By default no overlay withholds anything.
#[derive(Clone, Default)]
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
        match (&self.0, viewer) {
            (None, _) | (_, Viewer::Node) => false,
            (Some(overlay), _) => overlay.withholds(event, topics, viewer, filter),
        }
    }
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_overlay() { "Visibility(overlay)" } else { "Visibility(no overlay)" })
    }
}
