//! What can be read over HTTP beside the relay, by its rules: the same addresses, rates and authentication.

use std::sync::Arc;

use axum::{Router, http::request::Parts};
use kukuri_api::{Act, Api, Gate, Refused};
use kukuri_relay::{Relay, http::ReaderRefused};
use kukuri_search::Finder;
use kukuri_store::Store;
use tokio::sync::{Semaphore, watch};

/// Streams of changes that may be open at a time.
const STREAMS: usize = 256;

/// Who is let in over HTTP.
struct Door(Arc<Relay>);

impl Gate for Door {
    fn admit(&self, request: &Parts, _: Act) -> Result<(), Refused> {
        self.0.admit_reader(request).map_err(|refused| match refused {
            ReaderRefused::Unauthenticated => Refused::AuthRequired,
            ReaderRefused::Denied => Refused::Denied,
            ReaderRefused::TooFast { seconds } => Refused::TooFast { seconds },
        })
    }
}

/// The routes, to be merged with the relay's.
pub(crate) fn routes(
    relay: &Arc<Relay>,
    store: Arc<dyn Store>,
    finder: Option<Finder>,
    stopping: watch::Receiver<bool>,
) -> Router {
    let config_of = Arc::clone(relay);
    kukuri_api::routes(Api {
        store,
        finder,
        topics: Box::new(move || config_of.config().admission.topics.clone()),
        gate: Some(Arc::new(Door(Arc::clone(relay)))),
        clock: super::now,
        streams: Arc::new(Semaphore::new(STREAMS)),
        stopping,
    })
}
