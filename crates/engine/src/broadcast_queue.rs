//! The queue of new events of this node for the gossip bridge, which broadcasts them (G-2).

use std::sync::OnceLock;

use kukuri_domain::{Admitted, Source, Viewer};
use tokio::sync::mpsc;

use crate::{engine::SharedVisibility, metrics::Counter};

/// Events that may wait for the bridge: a few of the writer's largest batches.
const MAX_QUEUED_EVENTS: usize = 8_192;

/// New events of this process, for the bridge to broadcast (G-2).
pub(crate) struct BroadcastQueue {
    sender: OnceLock<mpsc::Sender<Admitted>>,
    visibility: SharedVisibility,
    overflow: Counter,
}

impl BroadcastQueue {
    pub(crate) fn new(visibility: SharedVisibility, overflow: Counter) -> Self {
        Self { sender: OnceLock::new(), visibility, overflow }
    }

    /// Queues a new event for broadcast if a client of this process or the node itself published it; events of other
    /// origins are not broadcast (G-2, G-3). Does not wait: the writer must not be held up.
    pub(crate) fn offer(&self, admitted: &Admitted) {
        let is_own = matches!(admitted.source(), Source::Client | Source::Node);
        let Some(sender) = self.sender.get().filter(|_| is_own) else { return };
        let visibility = self.visibility.load();
        if visibility.withholds(admitted.event(), admitted.topics(), &Viewer::unauthenticated(), None) {
            return;
        }
        if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(admitted.clone()) {
            self.overflow.increment(1);
        }
    }

    /// The receiving end, once. `None`: it has been taken.
    pub(crate) fn take_receiver(&self) -> Option<mpsc::Receiver<Admitted>> {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        self.sender.set(sender).is_ok().then_some(receiver)
    }
}
