//! Layers around every route: request id, CORS, time limit, panics, and the body of errors.

use std::{any::Any, time::Duration};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, MatchedPath, Request},
    http::{HeaderName, header},
    middleware::{Next, from_fn, map_request},
    response::{IntoResponse, Response},
};
use tokio::time::{Instant, timeout};
use tower_http::{
    catch_panic::CatchPanicLayer,
    cors::{AllowHeaders, Any as AnyValue, CorsLayer},
    request_id::{MakeRequestUuid, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
};
use tracing::Instrument;

use crate::{error::Error, idempotency::IDEMPOTENCY_REPLAYED};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A longer request id of a client is replaced.
const MAX_REQUEST_ID_LEN: usize = 64;
/// From the request's headers to the first byte of the answer (U-4).
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest body of a request.
pub(crate) const MAX_BODY_BYTES: usize = 256 * 1024;

/// Puts the layers around all routes of a router.
pub(crate) fn layered<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    // The last layer is the outermost.
    router
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(CatchPanicLayer::custom(|_: Box<dyn Any + Send>| {
            tracing::error!("a handler panicked; the request is answered with 500");
            Error::Internal.into_response()
        }))
        .layer(from_fn(answer))
        .layer(any_origin())
        .layer(PropagateRequestIdLayer::new(X_REQUEST_ID))
        .layer(SetRequestIdLayer::new(X_REQUEST_ID, MakeRequestUuid))
        .layer(map_request(drop_unusable_request_id))
}

/// CORS for pages of any origin, with any method and any header, without credentials (U-2).
fn any_origin() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AnyValue)
        .allow_methods(AnyValue)
        // A `*` would not cover `Authorization`.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([
            X_REQUEST_ID,
            IDEMPOTENCY_REPLAYED,
            header::ETAG,
            header::RETRY_AFTER,
            header::WWW_AUTHENTICATE,
        ])
}

/// A request id goes into logs and answers: it has to be short and plain.
async fn drop_unusable_request_id(mut request: Request) -> Request {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_usable = |id: &[u8]| !id.is_empty() && id.len() <= MAX_REQUEST_ID_LEN && id.iter().all(is_plain);
    if request.headers().get(X_REQUEST_ID).is_some_and(|id| !is_usable(id.as_bytes())) {
        request.headers_mut().remove(X_REQUEST_ID);
    }
    request
}

/// Runs the handler in a span that names the route (U-5), bounds its time, and writes the body of an error.
async fn answer(request: Request, next: Next) -> Response {
    let id = request.extensions().get::<RequestId>().and_then(|id| id.header_value().to_str().ok());
    let id = id.unwrap_or_default().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    let span = tracing::info_span!("request", method = %request.method(), route, request_id = id);
    async {
        let started = Instant::now();
        let answered = timeout(ANSWER_TIMEOUT, next.run(request)).await;
        let mut response = answered.unwrap_or_else(|_| {
            tracing::warn!(timeout = ?ANSWER_TIMEOUT, "the answer took too long; the request is answered with 503");
            Error::Timeout.into_response()
        });
        if let Some(error) = response.extensions_mut().remove::<Error>() {
            let (parts, body) = Json(error.body(&id)).into_response().into_parts();
            *response.body_mut() = body;
            response.headers_mut().extend(parts.headers);
        }
        tracing::debug!(status = response.status().as_u16(), elapsed = ?started.elapsed(), "request answered");
        response
    }
    .instrument(span)
    .await
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        routing::post,
    };
    use serde::Deserialize;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;
    use crate::extract::Json as JsonBody;

    #[derive(Deserialize)]
    struct Order {
        cups: Vec<u8>,
    }

    async fn brew(JsonBody(order): JsonBody<Order>) -> String {
        order.cups.iter().sum::<u8>().to_string()
    }

    async fn ask(request: Request) -> (u16, Value) {
        let router = Router::new()
            .route("/brew", post(brew))
            .route("/panic", post(async || -> () { panic!("broken pot") }))
            .route("/sleep", post(async || tokio::time::sleep(Duration::from_secs(3600)).await));
        let response = layered(router).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    async fn order(body: impl Into<Body>) -> (u16, Value) {
        ask(Request::post("/brew").header("content-type", "application/json").body(body.into()).unwrap()).await
    }

    #[tokio::test]
    async fn malformed_bodies_get_400_that_names_the_field() {
        assert_eq!(order(r#"{"cups":[1,2]}"#).await, (200, 3.into()));
        for (body, field) in [
            (r#"{"cups":[1,"two"]}"#, Some("cups[1]")),
            (r#"{"cups":1}"#, Some("cups")),
            ("{}", None),
            (r#"{"cups":[]} {}"#, None),
            ("{", None),
            ("", None),
        ] {
            let (status, answer) = order(body).await;
            assert_eq!((status, &answer["error"]["code"]), (400, &"INVALID_REQUEST".into()), "{body}");
            assert_eq!(answer["error"]["details"]["parameter"].as_str(), field, "{body}: {answer}");
        }
        let untyped = ask(Request::post("/brew").body(Body::from("{}")).unwrap()).await;
        assert_eq!(untyped.0, 400, "without a content type");
    }

    #[tokio::test]
    async fn oversized_bodies_get_413() {
        let (status, answer) = order(" ".repeat(MAX_BODY_BYTES + 1)).await;
        assert_eq!((status, &answer["error"]["code"]), (413, &"PAYLOAD_TOO_LARGE".into()));
        assert_eq!(order(" ".repeat(MAX_BODY_BYTES)).await.0, 400);
    }

    #[tokio::test]
    async fn panics_get_500_without_their_text() {
        let (status, answer) = ask(Request::post("/panic").body(Body::empty()).unwrap()).await;
        assert_eq!((status, &answer["error"]["code"]), (500, &"INTERNAL".into()));
        assert!(!answer.to_string().contains("pot"));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_handlers_get_503_after_the_timeout() {
        let started = Instant::now();
        let (status, answer) = ask(Request::post("/sleep").body(Body::empty()).unwrap()).await;
        assert_eq!((status, &answer["error"]["code"]), (503, &"TIMEOUT".into()));
        assert_eq!(started.elapsed(), ANSWER_TIMEOUT);
    }
}
