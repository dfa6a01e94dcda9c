//! The body of an answer, with what its client holds until it is read: memory of the answer (Y-2), and the permit of its request
//! (W-4).

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use axum::{
    body::{Body, Bytes},
    http::{Response, StatusCode, header},
    response::IntoResponse,
};
use hyper::body::{Body as _, Frame, SizeHint};
use kukuri_engine::{Engine, networks::Share};
use parking_lot::Mutex;

use crate::door::RequestPermit;

/// A larger body is handed to the connection in parts: what the connection has taken is written by a buffer of this size, and the
/// rest is held here.
const PART_BYTES: usize = 16 * 1024;
/// Seconds after which a client may ask again.
const RETRY_AFTER: &str = "5";

/// Memory that was reserved while an answer was prepared. An extension of every request.
#[derive(Clone, Default)]
pub(crate) struct ReservedMemory(Arc<Mutex<Option<Share>>>);

impl ReservedMemory {
    pub(crate) fn set(&self, share: Share) {
        *self.0.lock() = Some(share);
    }

    pub(crate) fn amount(&self) -> usize {
        self.0.lock().as_ref().map_or(0, Share::amount)
    }

    fn take(&self) -> Option<Share> {
        self.0.lock().take()
    }
}

struct HeldBody {
    inner: Body,
    /// Of the last frame.
    rest: Bytes,
    /// Of the whole answer if its size is known, of the last frame otherwise.
    memory: Option<Share>,
    has_known_size: bool,
    engine: Arc<Engine>,
    ip: IpAddr,
    _permit: Option<RequestPermit>,
}

/// Holds what the client of an answer has, until the answer is written. An answer that finds no memory is replaced.
pub(crate) fn hold(
    engine: &Arc<Engine>,
    ip: IpAddr,
    reserved: &ReservedMemory,
    permit: Option<RequestPermit>,
    response: Response<Body>,
) -> Response<Body> {
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let reserved = reserved.take();
    let memory = match size {
        Some(size) if size > PART_BYTES => match reserved {
            Some(mut share) if share.amount() >= size => {
                share.shrink_to(size);
                Some(share)
            }
            smaller => {
                drop(smaller);
                match engine.reserve_answer(ip, size..=size) {
                    Ok(share) => Some(share),
                    Err(_) => return busy(),
                }
            }
        },
        _ => None,
    };
    let is_small = size.is_some_and(|size| size <= PART_BYTES);
    if is_small && permit.is_none() {
        return response;
    }
    let engine = Arc::clone(engine);
    response.map(|inner| {
        let has_known_size = size.is_some();
        Body::new(HeldBody { inner, rest: Bytes::new(), memory, has_known_size, engine, ip, _permit: permit })
    })
}

fn busy() -> Response<Body> {
    let text = "too many answers of this address, or of this node, wait to be read; try again\n";
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER)], text).into_response()
}

impl hyper::body::Body for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        while this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)?) else { return Poll::Ready(None) };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            if !this.has_known_size {
                // The connection has taken the frame before.
                this.memory = None;
                if data.len() > PART_BYTES {
                    let Ok(share) = this.engine.reserve_answer(this.ip, data.len()..=data.len()) else {
                        let why = io::Error::other("no memory for an answer that waits to be read");
                        return Poll::Ready(Some(Err(axum::Error::new(why))));
                    };
                    this.memory = Some(share);
                }
            }
            this.rest = data;
        }
        let part = this.rest.split_to(this.rest.len().min(PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.inner.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use kukuri_engine::{EngineConfig, EngineParts};
    use kukuri_store::{StoreRules, model::ModelStore};

    use super::*;

    const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    async fn engine() -> Arc<Engine> {
        let mut config = EngineConfig::default();
        config.requests.answer_memory = 1 << 20;
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config,
            policies: Vec::new(),
            recorder: Arc::new(metrics::NoopRecorder),
        };
        Engine::start(parts).await.unwrap().0
    }

    async fn held(engine: &Engine) -> usize {
        engine.health().await.unwrap().answer_bytes
    }

    #[tokio::test]
    async fn memory_of_an_answer_is_held_until_its_last_part_is_taken() {
        // Y-2
        let engine = engine().await;
        let answer = |size: usize| Response::new(Body::from(vec![b'x'; size]));
        let reserved = ReservedMemory::default();
        reserved.set(engine.reserve_answer(IP, 900_000..=900_000).unwrap());
        let first = hold(&engine, IP, &reserved, None, answer(800_000));
        assert_eq!((held(&engine).await, first.body().size_hint().exact()), (800_000, Some(800_000)));
        let refused = hold(&engine, IP, &ReservedMemory::default(), None, answer(300_000));
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.headers()[header::RETRY_AFTER], "5");

        let mut body = first.into_body();
        let mut taken = 0;
        while taken < 700_000 {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
            let part = frame.into_data().unwrap();
            assert!(part.len() <= PART_BYTES);
            taken += part.len();
        }
        assert_eq!(held(&engine).await, 800_000);
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap().len(), 800_000 - taken);
        assert_eq!(held(&engine).await, 0);
    }

    #[tokio::test]
    async fn a_stream_holds_memory_of_its_last_piece_and_ends_without_any() {
        // Y-2
        let engine = engine().await;
        let pieces = [600_000, 10, 600_000].map(|size| Ok::<_, io::Error>(vec![b'x'; size]));
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let mut body = hold(&engine, IP, &ReservedMemory::default(), None, Response::new(body)).into_body();
        let (mut taken, mut others) = (0, None);
        let end = loop {
            match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(frame)) => taken += frame.into_data().unwrap().len(),
                end => break end,
            }
            if taken < 600_000 {
                assert_eq!(held(&engine).await, 600_000);
            } else if taken > 600_000 {
                // Another client takes what the first piece has given back.
                others = Some(engine.reserve_answer(IP, 1 << 20..=1 << 20).unwrap());
            }
        };
        assert!(matches!(end, Some(Err(_))) && taken == 600_010 && others.is_some(), "{taken}");
    }
}
