//! What a caller is told when there is no answer: JSON with a code for programs and a sentence for people.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use kukuri_search::FindError;
use kukuri_store::{Seq, StoreError};
use serde_json::json;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The request can't be understood.
    InvalidQuery(String),
    /// What is named as a topic is none (T-1).
    InvalidTopic,
    /// Only who has authenticated may ask (W-7).
    AuthRequired,
    /// This caller may not ask.
    Denied,
    /// This caller asks too often.
    TooFast { seconds: u64 },
    /// Rows that are asked for are gone (O-8).
    Behind { after: Seq, first: Seq },
    /// The caller knows of rows that this node never had: it follows another store, or one that was put back.
    Ahead { after: Seq, head: Seq },
    /// There is no such method here.
    Method,
    /// This node has no search, or its index does not answer.
    SearchUnavailable,
    /// The store does not answer.
    StoreUnavailable,
    /// There are as many streams as there may be.
    TooManyStreams,
}

/// When to try again if nobody knows.
const SOON: u64 = 5;

impl Problem {
    /// All codes, for the description.
    pub(crate) const CODES: &[&str] = &[
        "INVALID_QUERY",
        "INVALID_TOPIC",
        "AUTH_REQUIRED",
        "DENIED",
        "RATE_LIMITED",
        "GONE",
        "METHOD_NOT_ALLOWED",
        "SEARCH_UNAVAILABLE",
        "STORE_UNAVAILABLE",
        "TOO_MANY_STREAMS",
    ];

    fn status(&self) -> StatusCode {
        match self {
            Self::InvalidQuery(_) | Self::InvalidTopic => StatusCode::BAD_REQUEST,
            Self::AuthRequired => StatusCode::UNAUTHORIZED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::TooFast { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Behind { .. } | Self::Ahead { .. } => StatusCode::GONE,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::SearchUnavailable | Self::StoreUnavailable | Self::TooManyStreams => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::InvalidQuery(_) => "INVALID_QUERY",
            Self::InvalidTopic => "INVALID_TOPIC",
            Self::AuthRequired => "AUTH_REQUIRED",
            Self::Denied => "DENIED",
            Self::TooFast { .. } => "RATE_LIMITED",
            Self::Behind { .. } | Self::Ahead { .. } => "GONE",
            Self::Method => "METHOD_NOT_ALLOWED",
            Self::SearchUnavailable => "SEARCH_UNAVAILABLE",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::TooManyStreams => "TOO_MANY_STREAMS",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::InvalidQuery(why) => why.clone(),
            Self::InvalidTopic => "this is no topic; one is written kukuri:<64 lower-case hex digits>".to_owned(),
            Self::AuthRequired => "this node answers only those who have authenticated, over WebSocket".to_owned(),
            Self::Denied => "this address is denied".to_owned(),
            Self::TooFast { seconds } => format!("too many requests; try again in {seconds} s"),
            Self::Behind { after, first } => format!(
                "changes after {after} are gone, the first kept is {first}; \
                 take a snapshot and follow from its seq, and drop what you hold that it does not name"
            ),
            Self::Ahead { after, head } => format!(
                "this node has come to {head} and never was at {after}; \
                 take a snapshot and follow from its seq, and drop what you hold that it does not name"
            ),
            Self::Method => "only GET is answered here".to_owned(),
            Self::SearchUnavailable => "there is no search on this node now".to_owned(),
            Self::StoreUnavailable => "the store does not answer; try again".to_owned(),
            Self::TooManyStreams => "this node has as many streams as it can; read pages, or try again".to_owned(),
        }
    }

    fn retry_after(&self) -> Option<u64> {
        match self {
            Self::TooFast { seconds } => Some(*seconds),
            Self::StoreUnavailable | Self::TooManyStreams => Some(SOON),
            _ => None,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code(), "message": self.message() });
        match self {
            Self::Behind { first, .. } => error["first"] = first.0.into(),
            Self::Ahead { head, .. } => error["head"] = head.0.into(),
            _ => {}
        }
        let body = json!({ "error": error }).to_string();
        let mut response = (self.status(), [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(seconds) = self.retry_after() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Truncated { after, first } => Self::Behind { after, first },
            error => {
                tracing::error!(%error, "the store does not answer");
                Self::StoreUnavailable
            }
        }
    }
}

impl From<FindError> for Problem {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => error.into(),
            FindError::Index(error) => {
                tracing::error!(%error, "the index does not answer");
                Self::SearchUnavailable
            }
        }
    }
}
