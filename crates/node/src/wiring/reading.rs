//! The HTTP API. It uses the relay's client addresses, rate limits and authentication.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{Router, http::request::Parts};
use kukuri_api::{Api, Error, Gate, Identity, RouteCost};
use kukuri_engine::ReadRefused;
use kukuri_http::{HttpFront, reader::ReaderRefused};
use kukuri_search::Finder;
use kukuri_store::Store;
use tokio::sync::{Semaphore, watch};

/// Bound of change streams that are open at the same time.
const MAX_STREAMS: usize = 256;

struct ReadGate(Arc<HttpFront>);

#[async_trait]
impl Gate for ReadGate {
    async fn admit(&self, request: &Parts, cost: RouteCost) -> Result<Identity, Error> {
        if cost == RouteCost::Static {
            return Ok(Identity::Anonymous);
        }
        match self.0.admit_reader(request) {
            Ok(_) => Ok(Identity::Anonymous),
            Err(ReaderRefused::Policy(ReadRefused::TooFast(too_fast))) => {
                Err(Error::RateLimited { retry_after_seconds: too_fast.seconds })
            }
            Err(ReaderRefused::Policy(_)) => Err(Error::AuthRequired),
            Err(ReaderRefused::Denied) => Err(Error::AddressDenied),
        }
    }
}

/// The routes of the API, to be merged with those of the HTTP front.
pub(crate) fn routes(
    front: &Arc<HttpFront>,
    store: Arc<dyn Store>,
    finder: Option<Finder>,
    stopping: watch::Receiver<bool>,
) -> Router {
    let (engine, visibility) = (Arc::clone(front.engine()), front.engine().visibility().clone());
    kukuri_api::routes(Api {
        store,
        finder,
        topics: Box::new(move || engine.config().admission.topics.clone()),
        visibility: Box::new(move || visibility.get()),
        gate: Some(Arc::new(ReadGate(Arc::clone(front)))),
        clock: super::now,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        stopping,
    })
}
