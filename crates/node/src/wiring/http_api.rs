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
        let admitted = match cost {
            RouteCost::Static => self.0.admit_static(request),
            RouteCost::Read | RouteCost::Search => self.0.admit_reader(request),
        };
        admitted.map(|()| Identity::Anonymous).map_err(|refused| match refused {
            ReaderRefused::Policy(ReadRefused::TooFast(too_fast)) => {
                Error::RateLimited { retry_after_seconds: too_fast.seconds }
            }
            ReaderRefused::Policy(_) => Error::AuthRequired,
            ReaderRefused::Denied => Error::AddressDenied,
        })
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
        visibility: Box::new(move || visibility.load().as_ref().clone()),
        gate: Arc::new(ReadGate(Arc::clone(front))),
        clock: super::now,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        stopping,
    })
}

#[cfg(test)]
mod tests {
    use kukuri_engine::{Engine, EngineParts};
    use kukuri_http::Exporter;
    use kukuri_relay::Relay;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{
        config::Settings,
        wiring::{engine_config, stores},
    };

    #[tokio::test]
    async fn description_of_the_api_has_a_rate() {
        // U-3
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings { data: directory.path().to_owned(), ..Settings::default() };
        (settings.rates.requests_per_minute, settings.rates.requests_burst) = (1, 2);
        let store = stores::for_serving(&settings).await.unwrap();
        let exporter = Exporter::new();
        let parts = EngineParts {
            store: Arc::clone(&store),
            finder: None,
            config: engine_config(&settings, "ws://127.0.0.1:7777").unwrap(),
            policies: Vec::new(),
            recorder: exporter.recorder(),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        let relay = Arc::new(Relay::new(engine, settings.relay.info(None)));
        let front = Arc::new(HttpFront::new(relay, exporter, None));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopping) = watch::channel(false);
        tokio::spawn(kukuri_http::serve(Arc::clone(&front), listener, routes(&front, store, None, stopping)));
        for expected in ["200", "200", "429"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = b"GET /v1/openapi.json HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
        }
    }
}
