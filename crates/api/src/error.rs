//! The one error type of the API, and the one body that carries it (U-1).

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use kukuri_control::{Error as ControlError, Refused, metric::Metric, request::RequestStatus};
use kukuri_domain::{Timestamp, TopicId};
use kukuri_search::FindError;
use kukuri_store::{Seq, StoreError};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::idempotency::RETRY_IN_PROGRESS_SECONDS;

/// Seconds in `Retry-After` where the end of the trouble is not known.
const RETRY_LATER_SECONDS: u64 = 5;

/// The metric that details name where a person has too many pending requests (S-4).
const PENDING_REQUESTS: &str = "topic_subscription_requests.pending";
const ENABLED_TOPICS: &str = "node_subscriptions.enabled_topics";

/// A policy that has to be accepted first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequiredPolicy {
    /// Its type.
    #[serde(rename = "type")]
    pub policy_type: &'static str,
    /// Its version.
    pub version: String,
    /// Where people read it.
    pub url: String,
}

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
    /// The request has no `Authorization`, and the route, or the node (W-7), serves authenticated clients only.
    #[error(
        "authentication is required: `Authorization: Bearer <access token>`, or `Authorization: Nostr <signed event>` (NIP-98)"
    )]
    AuthRequired,
    /// The `Authorization` of the request, or the answer to a challenge, proves nothing.
    #[error("authentication failed: {reason}")]
    AuthFailed {
        /// Why it proves nothing.
        reason: String,
    },
    /// The operator disabled the account.
    #[error("this account is disabled")]
    AccountDisabled,
    /// The account is being deleted.
    #[error("this account is being deleted")]
    AccountDeleted,
    /// The person is banned on this node.
    #[error("this node does not serve this key: {reason}")]
    Banned {
        /// The operator's public reason.
        reason: String,
        /// When the ban ends. `None`: never.
        until: Option<Timestamp>,
    },
    /// The key can have no account here, or not with this invite.
    #[error("{}", .0.message())]
    NotAdmitted(NotAdmitted),
    /// Policies in effect are not accepted (L-3).
    #[error("accept the policies in `details.required` first: POST /v1/consents")]
    ConsentRequired {
        /// The policies that the person has to accept.
        required: Vec<RequiredPolicy>,
    },
    /// The policy that is accepted is not in effect, or this is none of its texts.
    #[error("{message}")]
    PolicyNotCurrent {
        /// Which, and why.
        message: String,
    },
    /// The limit of a plan is reached.
    #[error("the plan's limit of {metric} is reached: {current} of {limit}")]
    QuotaExceeded {
        /// The metric whose limit is reached.
        metric: Metric,
        /// Units used.
        current: u64,
        /// Units allowed.
        limit: u64,
        /// When counting starts again at 0. `None`: the metric is a level, not a count.
        reset_at: Option<Timestamp>,
        /// Where people read of larger plans, if there is such a page.
        upgrade_url: Option<String>,
    },
    /// The person does not subscribe to a topic, where the node serves members only (S-5).
    #[error("{}", subscription_required(.topic.as_ref(), .service))]
    SubscriptionRequired {
        /// The topic. `None`: the request names none, and asks for all.
        topic: Option<TopicId>,
        /// The service that the subscription has to include.
        service: &'static str,
    },
    /// A request with this `Idempotency-Key` had other content.
    #[error("this `Idempotency-Key` belongs to another request; take a new one")]
    IdempotencyKeyReused,
    /// The same request is being worked on.
    #[error("the same request is being worked on; send it again in a moment")]
    RequestInProgress,
    /// The person has as many pending requests as one may have (S-4).
    #[error("{current} requests are pending, {limit} may be; wait until they are reviewed, or cancel one")]
    TooManyPendingRequests {
        /// Pending requests.
        current: u64,
        /// Pending requests allowed.
        limit: u64,
    },
    /// The node carries as many topics for its members as it may (S-4).
    #[error("this node carries {current} topics for its members, {limit} may be; ask its operator")]
    TooManyTopics {
        /// Topics that it carries.
        current: u64,
        /// Topics allowed.
        limit: u64,
    },
    /// The person has asked for as many exports as one may, or one is being made (N-1).
    #[error("{message}")]
    TooManyExports {
        /// Which of both.
        message: String,
        /// Seconds after which the next may be asked for.
        retry_after_seconds: u64,
    },
    /// The export was downloaded, or it is too old (N-1).
    #[error("this export was downloaded already, or has expired; ask for another one")]
    DownloadExpired,
    /// The present state of the request, or of another thing, does not allow this change (S-6).
    #[error("{message}")]
    InvalidState {
        /// The present state of a request.
        status: Option<RequestStatus>,
        /// The reason.
        message: String,
    },
    /// The path is right, but there is no such thing, or it is another person's.
    #[error("{message}")]
    UnknownItem {
        /// The thing that was not found.
        message: String,
    },
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
    /// The control database fails.
    #[error("the database of accounts is not available; try again")]
    ControlUnavailable,
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

/// Why a key gets no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// New accounts need an invite.
    InviteRequired,
    /// There is no such invite.
    InviteInvalid,
    /// The invite has expired.
    InviteExpired,
    /// The invite was used as often as it may be.
    InviteExhausted,
    /// The operator revoked the invite.
    InviteRevoked,
    /// New accounts need to be on the list of allowed keys.
    NotAllowlisted,
}

impl NotAdmitted {
    const fn code(self) -> ErrorCode {
        match self {
            Self::InviteRequired => ErrorCode::InviteRequired,
            Self::InviteInvalid => ErrorCode::InviteInvalid,
            Self::InviteExpired => ErrorCode::InviteExpired,
            Self::InviteExhausted => ErrorCode::InviteExhausted,
            Self::InviteRevoked => ErrorCode::InviteRevoked,
            Self::NotAllowlisted => ErrorCode::NotAllowlisted,
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::InviteRequired => "a new account needs an invite code",
            Self::InviteInvalid => "this invite code is not valid",
            Self::InviteExpired => "this invite code has expired",
            Self::InviteExhausted => "this invite code has been used up",
            Self::InviteRevoked => "this invite code has been revoked",
            Self::NotAllowlisted => "this node lets in only keys that its operator has listed",
        }
    }
}

/// The code of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ErrorCode {
    InvalidRequest,
    AuthRequired,
    AuthFailed,
    QuotaExceeded,
    Denied,
    AccountDisabled,
    Banned,
    SubscriptionRequired,
    InviteRequired,
    InviteInvalid,
    InviteExpired,
    InviteExhausted,
    InviteRevoked,
    NotAllowlisted,
    NotFound,
    MethodNotAllowed,
    InvalidState,
    PolicyNotCurrent,
    IdempotencyKeyReused,
    RequestInProgress,
    Gone,
    AccountDeleted,
    DownloadExpired,
    PayloadTooLarge,
    ConsentRequired,
    RateLimited,
    PendingSubscriptionRequestLimitReached,
    NodeSubscriptionTopicLimitReached,
    ExportLimitReached,
    Internal,
    SearchUnavailable,
    StoreUnavailable,
    ControlUnavailable,
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
    /// Depends on the code: `parameter`, `first`, `head`, `required`, `metric`, …
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

    /// A proof of a key that is none.
    pub(crate) fn auth_failed(reason: impl std::fmt::Display) -> Self {
        Self::AuthFailed { reason: reason.to_string() }
    }

    /// Whether the node is to blame, and not the request.
    pub(crate) fn is_of_the_node(&self) -> bool {
        self.status_and_code().0.is_server_error()
    }

    /// Adds the page about larger plans to a refusal that concerns the plan.
    pub(crate) fn set_upgrade_url(&mut self, url: Option<&str>) {
        if let Self::QuotaExceeded { upgrade_url, .. } = self {
            *upgrade_url = url.map(str::to_owned);
        }
    }

    fn status_and_code(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::InvalidRequest { .. } => (StatusCode::BAD_REQUEST, ErrorCode::InvalidRequest),
            Self::AuthRequired => (StatusCode::UNAUTHORIZED, ErrorCode::AuthRequired),
            Self::AuthFailed { .. } => (StatusCode::UNAUTHORIZED, ErrorCode::AuthFailed),
            Self::AccountDisabled => (StatusCode::FORBIDDEN, ErrorCode::AccountDisabled),
            Self::AccountDeleted => (StatusCode::GONE, ErrorCode::AccountDeleted),
            Self::Banned { .. } => (StatusCode::FORBIDDEN, ErrorCode::Banned),
            Self::NotAdmitted(why) => (StatusCode::FORBIDDEN, why.code()),
            Self::ConsentRequired { .. } => (StatusCode::PRECONDITION_REQUIRED, ErrorCode::ConsentRequired),
            Self::PolicyNotCurrent { .. } => (StatusCode::CONFLICT, ErrorCode::PolicyNotCurrent),
            Self::QuotaExceeded { .. } => (StatusCode::PAYMENT_REQUIRED, ErrorCode::QuotaExceeded),
            Self::TooManyPendingRequests { .. } => {
                (StatusCode::TOO_MANY_REQUESTS, ErrorCode::PendingSubscriptionRequestLimitReached)
            }
            Self::TooManyTopics { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::NodeSubscriptionTopicLimitReached),
            Self::TooManyExports { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::ExportLimitReached),
            Self::DownloadExpired => (StatusCode::GONE, ErrorCode::DownloadExpired),
            Self::SubscriptionRequired { .. } => (StatusCode::FORBIDDEN, ErrorCode::SubscriptionRequired),
            Self::IdempotencyKeyReused => (StatusCode::CONFLICT, ErrorCode::IdempotencyKeyReused),
            Self::RequestInProgress => (StatusCode::CONFLICT, ErrorCode::RequestInProgress),
            Self::InvalidState { .. } => (StatusCode::CONFLICT, ErrorCode::InvalidState),
            Self::AddressDenied => (StatusCode::FORBIDDEN, ErrorCode::Denied),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::RateLimited),
            Self::NotFound | Self::UnknownItem { .. } => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::MethodNotAllowed => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed),
            Self::PayloadTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::PayloadTooLarge),
            Self::OutboxTruncated { .. } | Self::AheadOfOutbox { .. } | Self::OtherEpoch => {
                (StatusCode::GONE, ErrorCode::Gone)
            }
            Self::SearchUnavailable => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::SearchUnavailable),
            Self::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::StoreUnavailable),
            Self::ControlUnavailable => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::ControlUnavailable),
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
            Self::Banned { reason, until } => {
                let mut details = json!({ "reason": reason });
                add_time(&mut details, "until", *until);
                Some(details)
            }
            Self::ConsentRequired { required } => Some(json!({ "required": required })),
            Self::QuotaExceeded { metric, current, limit, reset_at, upgrade_url } => {
                let mut details = json!({ "metric": metric.name(), "current": current, "limit": limit });
                add_time(&mut details, "reset_at", *reset_at);
                if let Some(url) = upgrade_url {
                    details["upgrade_url"] = url.as_str().into();
                }
                Some(details)
            }
            Self::SubscriptionRequired { topic, service } => {
                let mut details = json!({ "service": service });
                if let Some(topic) = topic {
                    details["topic_id"] = topic.as_str().into();
                }
                Some(details)
            }
            Self::TooManyPendingRequests { current, limit } => {
                Some(json!({ "metric": PENDING_REQUESTS, "scope": "pubkey", "current": current, "limit": limit }))
            }
            Self::TooManyTopics { current, limit } => {
                Some(json!({ "metric": ENABLED_TOPICS, "scope": "node", "current": current, "limit": limit }))
            }
            Self::InvalidState { status, .. } => status.map(|status| json!({ "status": status.name() })),
            _ => None,
        }
    }

    fn extra_header(&self) -> Option<(header::HeaderName, HeaderValue)> {
        match self {
            Self::RateLimited { retry_after_seconds } | Self::TooManyExports { retry_after_seconds, .. } => {
                Some((header::RETRY_AFTER, (*retry_after_seconds).into()))
            }
            Self::RequestInProgress => Some((header::RETRY_AFTER, RETRY_IN_PROGRESS_SECONDS.into())),
            Self::StoreUnavailable | Self::ControlUnavailable | Self::TooManyStreams | Self::Busy | Self::Timeout => {
                Some((header::RETRY_AFTER, RETRY_LATER_SECONDS.into()))
            }
            Self::AuthRequired | Self::AuthFailed { .. } => {
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

fn subscription_required(topic: Option<&TopicId>, service: &str) -> String {
    match topic {
        Some(topic) => format!("this needs a subscription to {topic} with the service {service}"),
        None => format!("name topics that you subscribe to with the service {service}"),
    }
}

fn add_time(details: &mut Value, name: &str, time: Option<Timestamp>) {
    if let Some(Timestamp(seconds)) = time {
        details[name] = seconds.into();
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

impl From<ControlError> for Error {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Nul => Self::invalid(error.to_string()),
            ControlError::Damaged(_) => {
                tracing::error!(%error, "the control database is damaged; the request is answered with 500");
                Self::Internal
            }
            error => {
                tracing::error!(%error, "the control database failed; the request is answered with 503");
                Self::ControlUnavailable
            }
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        let message = refused.to_string();
        match refused {
            Refused::AuthFailed => Self::auth_failed("the challenge or the token is unknown, used or expired"),
            // Signing in again makes one.
            Refused::UnknownAccount => Self::auth_failed(message),
            Refused::AccountDisabled => Self::AccountDisabled,
            Refused::AccountDeleted => Self::AccountDeleted,
            Refused::Banned { reason, until } => Self::Banned { reason, until },
            Refused::InviteRequired => Self::NotAdmitted(NotAdmitted::InviteRequired),
            Refused::InviteInvalid => Self::NotAdmitted(NotAdmitted::InviteInvalid),
            Refused::InviteExpired => Self::NotAdmitted(NotAdmitted::InviteExpired),
            Refused::InviteExhausted => Self::NotAdmitted(NotAdmitted::InviteExhausted),
            Refused::InviteRevoked => Self::NotAdmitted(NotAdmitted::InviteRevoked),
            Refused::NotAllowlisted => Self::NotAdmitted(NotAdmitted::NotAllowlisted),
            Refused::PolicyNotCurrent { .. } | Refused::OtherPolicyText { .. } => Self::PolicyNotCurrent { message },
            Refused::QuotaExceeded { metric, current, limit, reset_at } => {
                // The gate adds the URL.
                Self::QuotaExceeded { metric, current, limit, reset_at, upgrade_url: None }
            }
            Refused::TooManyPendingRequests { current, limit } => Self::TooManyPendingRequests { current, limit },
            Refused::TooManyTopics { current, limit } => Self::TooManyTopics { current, limit },
            Refused::TooManyExports { retry_after, .. } => {
                Self::TooManyExports { message, retry_after_seconds: retry_after }
            }
            Refused::DownloadExpired => Self::DownloadExpired,
            Refused::RequestNotPending { status } => Self::InvalidState { status: Some(status), message },
            Refused::UnknownPolicy { .. }
            | Refused::UnknownRequest
            | Refused::UnknownJob
            | Refused::UnknownExport
            | Refused::UnknownDeletion
            | Refused::NotSubscribed
            | Refused::UnknownPlan(_)
            | Refused::UnknownInvite => Self::UnknownItem { message },
            // Only operators get these.
            Refused::PolicyPublished { .. } | Refused::InvalidState(_) => Self::InvalidState { status: None, message },
            Refused::Invalid { field, reason } => Self::invalid_parameter(field, reason),
            Refused::Failed(error) => error.into(),
        }
    }
}
