//! The visibility that all paths of this engine ask, swapped when moderation changes it (M-5).

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use kukuri_domain::Visibility;

/// One visibility for all readers. Cheap to clone.
#[derive(Clone, Default)]
pub struct SharedVisibility(Arc<ArcSwap<Visibility>>);

impl SharedVisibility {
    /// The visibility now.
    pub fn load(&self) -> Guard<Arc<Visibility>> {
        self.0.load()
    }

    /// A copy of it, for the length of a query.
    pub fn get(&self) -> Visibility {
        Visibility::clone(&self.load())
    }

    pub(crate) fn set(&self, visibility: Visibility) {
        self.0.store(Arc::new(visibility));
    }
}
