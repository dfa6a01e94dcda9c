//! Ids that catch-up does not ask for again: of events that this node refused, as long as its configuration stays (G-7).

use std::sync::Arc;

use kukuri_domain::EventId;
use kukuri_engine::{EngineConfig, recent::RecentIds};
use parking_lot::Mutex;

/// Ids that are remembered at least.
const GENERATION_LEN: usize = 65_536;

/// The ids of events that were refused under one configuration. Deny lists, limits and reserved topics may change while
/// the node runs, so a new configuration forgets them all.
pub(crate) struct RefusedIds {
    refused: Mutex<Refused>,
}

struct Refused {
    /// Held, so that no later configuration has the same address.
    config: Arc<EngineConfig>,
    ids: RecentIds,
}

impl Refused {
    fn under(config: &Arc<EngineConfig>) -> Self {
        Self { config: Arc::clone(config), ids: RecentIds::new(GENERATION_LEN) }
    }
}

impl RefusedIds {
    pub(crate) fn new(config: &Arc<EngineConfig>) -> Self {
        Self { refused: Mutex::new(Refused::under(config)) }
    }

    /// Whether the event was refused under the current configuration.
    pub(crate) fn contains(&self, id: &EventId, current: &Arc<EngineConfig>) -> bool {
        let mut refused = self.refused.lock();
        if !Arc::ptr_eq(&refused.config, current) {
            *refused = Refused::under(current);
        }
        refused.ids.contains(id)
    }

    /// Records an id. `config` is the configuration before the event was submitted: if another one has been seen since,
    /// the id is not recorded.
    pub(crate) fn insert(&self, id: EventId, config: &Arc<EngineConfig>) {
        let refused = self.refused.lock();
        if Arc::ptr_eq(&refused.config, config) {
            refused.ids.insert(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_configuration_lifts_refusals_of_the_old_one_g7() {
        let [old, new] = [(); 2].map(|()| Arc::new(EngineConfig::default()));
        let id = |number: u8| EventId::from_bytes([number; 32]);
        let refused = RefusedIds::new(&old);
        assert!(!refused.contains(&id(1), &old));
        refused.insert(id(1), &old);
        assert!(refused.contains(&id(1), &old), "it is not asked for again");
        assert!(!refused.contains(&id(1), &new), "it may be taken in now");
        refused.insert(id(2), &old);
        assert!(!refused.contains(&id(2), &new), "decided under a configuration that is gone");
        refused.insert(id(2), &new);
        assert!(refused.contains(&id(2), &new));
    }
}
