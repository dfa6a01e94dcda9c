//! The one error type of the API, and the one body that carries it (U-1).

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use kukuri_search::FindError;
use kukuri_store::{Seq, StoreError};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

/// Seconds in `Retry-After` where the end of the trouble is not known.
const RETRY_LATER_SECONDS: u64 = 5;

/// Why a request is not answered. Callers see its text, which holds nothing of the store's or the index's errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A parameter, a header, a path or a body is malformed.
    #[error("{message}")]
    InvalidRequest {
        /// The parameter or the field of the body, if one is to blame.
        parameter: Option<String>,
        /// The reason.
        message: String,
    },
    /// The node serves authenticated clients only (W-7).
    #[error("this node requires authentication, which is possible over WebSocket only (NIP-42)")]
    AuthRequired,
    /// The client's address is on the deny list.
    #[error("this address is denied")]
    AddressDenied,
    /// The client has used up its rate (W-4).
    #[error("too many requests; try again in {retry_after_seconds} s")]
    RateLimited {
        /// When the next request may come.
        retry_after_seconds: u64,
    },
    /// No endpoint has this path.
    #[error("there is no such path; GET /v1/openapi.json lists all of them")]
    NotFound,
    /// The endpoint does not take this method.
    #[error("this path does not take this method; GET /v1/openapi.json lists the ones it takes")]
    MethodNotAllowed,
    /// The body is larger than the endpoint takes.
    #[error("the body is larger than {max_bytes} bytes")]
    PayloadTooLarge {
        /// The largest body taken.
        max_bytes: usize,
    },
    /// The outbox no longer has the rows that the caller asks for (O-8).
    #[error(
        "changes after {after} are gone, the first kept is {first}; take a snapshot, follow from its seq, \
         and drop events that the snapshot does not name"
    )]
    OutboxTruncated {
        /// The sequence that the caller has read.
        after: Seq,
        /// The first row kept.
        first: Seq,
    },
    /// The caller has read rows that this store never had: it followed another store, or this one was restored.
    #[error(
        "this node has no change {after} yet, its last is {head}; take a snapshot, follow from its seq, \
         and drop events that the snapshot does not name"
    )]
    AheadOfOutbox {
        /// The sequence that the caller has read.
        after: Seq,
        /// The last row of this store.
        head: Seq,
    },
    /// The caller's position belongs to another history: the node was restored or failed over, or its store was replaced (Y-5).
    #[error(
        "this position belongs to an earlier history of the node, whose store was restored or replaced; take a snapshot, \
         follow from its seq, and drop events that the snapshot does not name"
    )]
    OtherEpoch,
    /// The node has no search index, or the index fails.
    #[error("search is not available on this node now")]
    SearchUnavailable,
    /// The store fails.
    #[error("the store is not available; try again")]
    StoreUnavailable,
    /// The address, or the node, has as many streams as it may have.
    #[error("this address, or this node, has as many streams as it may have; read pages, or try again")]
    TooManyStreams,
    /// Answers that wait for slow readers fill the memory meant for them (Y-2).
    #[error("too many answers of this address, or of this node, wait to be read; try again")]
    Busy,
    /// The answer was not ready in time (U-4).
    #[error("the answer was not ready in time; ask for less, or try again")]
    Timeout,
    /// A handler panicked, or stored data is damaged.
    #[error("internal error; the operator finds it in the log by its request_id")]
    Internal,
}

/// The code of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ErrorCode {
    InvalidRequest,
    AuthRequired,
    Denied,
    NotFound,
    MethodNotAllowed,
    Gone,
    PayloadTooLarge,
    RateLimited,
    Internal,
    SearchUnavailable,
    StoreUnavailable,
    TooManyStreams,
    Busy,
    Timeout,
}

/// The body of every answer that is an error.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    error: ErrorFields,
}

#[derive(Serialize, ToSchema)]
struct ErrorFields {
    code: ErrorCode,
    /// For people.
    message: String,
    /// Depends on the code: `parameter`, `first`, `head`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object, required = false)]
    details: Option<Value>,
    /// As in the header `X-Request-Id`.
    request_id: String,
}

impl Error {
    /// Malformed input that has no name.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidRequest { parameter: None, message: message.into() }
    }

    /// A malformed parameter, or field of a body.
    pub fn invalid_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::InvalidRequest { parameter: Some(name.to_owned()), message: format!("`{name}`: {reason}") }
    }

    fn status_and_code(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::InvalidRequest { .. } => (StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest),
            Self::AuthRequired => (StatusCode::UNAUTHORIZED, ErrorCode::AuthRequired),
            Self::AddressDenied => (StatusCode::FORBIDDEN, ErrorCode::Denied),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited),
            Self::NotFound => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed),
            Self::PayloadTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::PayloadTooLarge),
            Self::OutboxTruncated { .. } | Self::AheadOfOutbox { .. } | Self::OtherEpoch => {
                (StatusCode::GONE, ErrorCode::Gone)
            }
            Self::SearchUnavailable => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::SearchUnavailable),
            Self::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::StoreUnavailable),
            Self::TooManyStreams => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::TooManyStreams),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy),
            Self::Timeout => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Timeout),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        }
    }

    fn details(&self) -> Option<Value> {
        match self {
            Self::InvalidRequest { parameter, .. } => parameter.as_ref().map(|name| json!({ "parameter": name })),
            Self::OutboxTruncated { first, .. } => Some(json!({ "first": first.0 })),
            Self::AheadOfOutbox { head, .. } => Some(json!({ "head": head.0 })),
            Self::PayloadTooLarge { max_bytes } => Some(json!({ "max_bytes": max_bytes })),
            _ => None,
        }
    }

    fn extra_header(&self) -> Option<(header::HeaderName, HeaderValue)> {
        match self {
            Self::RateLimited { retry_after_seconds } => Some((header::RETRY_AFTER, (*retry_after_seconds).into())),
            Self::StoreUnavailable | Self::TooManyStreams | Self::Busy | Self::Timeout => {
                Some((header::RETRY_AFTER, RETRY_LATER_SECONDS.into()))
            }
            Self::AuthRequired => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kukuri-node\"")))
            }
            _ => None,
        }
    }

    pub(crate) fn body(&self, request_id: &str) -> ErrorBody {
        let (_, code) = self.status_and_code();
        let (message, request_id) = (self.to_string(), request_id.to_owned());
        ErrorBody { error: ErrorFields { code, message, details: self.details(), request_id } }
    }
}

impl IntoResponse for Error {
    /// Status, headers, and the error itself as an extension: `layers::answer` writes the body, with the request id.
    fn into_response(self) -> Response {
        let mut response = self.status_and_code().0.into_response();
        response.headers_mut().extend(self.extra_header());
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Truncated { after, first } => Self::OutboxTruncated { after, first },
            StoreError::TooCostly | StoreError::Busy => Self::Timeout,
            StoreError::Damaged(_) => {
                tracing::error!(%error, "stored data is damaged; run `kukuri-node check`");
                Self::Internal
            }
            error => {
                tracing::error!(%error, "the store failed; the request is answered with 503");
                Self::StoreUnavailable
            }
        }
    }
}

impl From<FindError> for Error {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => error.into(),
            FindError::Index(error) => {
                tracing::error!(%error, "the search index failed; the request is answered with 503");
                Self::SearchUnavailable
            }
        }
    }
}
