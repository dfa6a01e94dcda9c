//! `Idempotency-Key`: a person who did not get the answer to a POST sends it again with the same key, and gets the answer without
//! the work being done again. One layer for all personal routes.
//!
//! The work goes on when its client leaves: its answer is what the client comes back for. Answers that are not final (429, 5xx) are
//! not kept.

use std::sync::Arc;

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use data_encoding::HEXLOWER;
use kukuri_control::idempotency::{self, Begun, KeptAnswer, RepeatableRequest};
use kukuri_domain::Timestamp;
use sha2::{Digest, Sha256};
use tower_http::request_id::RequestId;
use tracing::{Instrument, Span};
use utoipa::openapi::{
    ObjectBuilder, Required,
    path::{Parameter, ParameterBuilder, ParameterIn},
    schema::{SchemaType, Type},
};

use crate::{ApiState, error::Error, extract::read_body, gate::Identity};

/// The header.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that an answer is one that was given before.
pub(crate) const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Seconds after which a request whose first copy is being worked on is sent again.
pub(crate) const RETRY_IN_PROGRESS_SECONDS: u64 = 1;
/// Seconds after which a person with too many kept answers may try again.
const RETRY_TOO_MANY_SECONDS: u64 = 3_600;
/// The longest key.
const MAX_KEY_LEN: usize = 200;
/// The largest answer to a POST.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Answers a request of a person: a POST with a key once, everything else as it comes.
pub(crate) async fn answer(state: &Arc<ApiState>, request: Request, next: Next) -> Result<Response, Error> {
    let Some(key) = key_of(request.method(), request.headers())? else { return Ok(next.run(request).await) };
    let Some(Identity::Person(person)) = request.extensions().get().cloned() else { return Err(Error::AuthRequired) };
    let (parts, body) = request.into_parts();
    let body = read_body(Request::from_parts(parts.clone(), body), &()).await?;
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut hash = Sha256::new_with_prefix(format!("{} {path}\n", parts.method));
    hash.update(&body);
    let repeatable = RepeatableRequest { person, key, content_hash: HEXLOWER.encode(&hash.finalize()) };
    let now = state.now();
    match idempotency::begin(state.control.database(), &repeatable, now).await? {
        Begun::New => {}
        Begun::Answered(answer) => return Ok(replayed(answer)),
        Begun::InProgress => return Err(Error::RequestInProgress),
        Begun::OtherContent => return Err(Error::IdempotencyKeyReused),
        Begun::TooMany => return Err(Error::RateLimited { retry_after_seconds: RETRY_TOO_MANY_SECONDS }),
    }
    let id = parts.extensions.get::<RequestId>().and_then(|id| id.header_value().to_str().ok()).map(str::to_owned);
    let request = Request::from_parts(parts, Body::from(body));
    let work = finish(Arc::clone(state), repeatable, now, id.unwrap_or_default(), request, next);
    // A panic leaves the request noted; it may be sent again when it counts as abandoned.
    tokio::spawn(work.instrument(Span::current())).await.unwrap_or(Err(Error::Internal))
}

/// The key of a request that has one.
fn key_of(method: &Method, headers: &HeaderMap) -> Result<Option<String>, Error> {
    let mut all = headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(key) = all.next().filter(|_| *method == Method::POST) else { return Ok(None) };
    let is_key = |key: &&str| (1..=MAX_KEY_LEN).contains(&key.len()) && all.next().is_none();
    match key.to_str().ok().filter(is_key) {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(Error::invalid_parameter("Idempotency-Key", "must be one text of 1 to 200 ASCII characters")),
    }
}

/// Does the work, and keeps its answer if that is final.
async fn finish(
    state: Arc<ApiState>,
    repeatable: RepeatableRequest,
    began_at: Timestamp,
    request_id: String,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let response = next.run(request).await;
    let status = response.status();
    let database = state.control.database();
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        idempotency::forget(database, &repeatable, began_at).await?;
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, MAX_ANSWER_BYTES).await.map_err(|_| Error::Internal)?;
    let text = match parts.extensions.get::<Error>() {
        // The body of an error is written by an outer layer.
        Some(error) => {
            let mut error = error.clone();
            error.set_upgrade_url(state.upgrade_url.as_deref());
            serde_json::to_string(&error.body(&request_id)).map_err(|_| Error::Internal)?
        }
        None => String::from_utf8_lossy(&bytes).into_owned(),
    };
    let answer = KeptAnswer { status: status.as_u16(), body: text };
    if let Err(error) = idempotency::keep(database, &repeatable, &answer, began_at).await {
        // The work is done: its answer is worth more than its copy.
        tracing::error!(%error, "an answer can't be kept; the same request may be worked on again");
    }
    Ok(Response::from_parts(parts, Body::from(bytes)))
}

fn replayed(answer: KeptAnswer) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (IDEMPOTENCY_REPLAYED, HeaderValue::from_static("true")),
    ];
    (status, headers, answer.body).into_response()
}

/// The description of the header.
pub(crate) fn parameter() -> Parameter {
    let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).max_length(Some(MAX_KEY_LEN)).build();
    ParameterBuilder::new()
        .name("idempotency-key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("The same key with the same request within 24 hours gets the same answer."))
        .schema(Some(text))
        .build()
}
