//! Why the database can't be used ([`Error`]), and why something is refused to a person or an operator ([`Refused`]).

use kukuri_domain::Timestamp;
use kukuri_postgres::SessionError;

use crate::{metric::Metric, request::RequestStatus};

/// Why the database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A statement failed.
    #[error("the control database failed: {0}")]
    Database(String),
    /// The database could not be opened.
    #[error("{place}: {reason}")]
    NotOpened {
        /// Its file.
        place: String,
        /// One line.
        reason: String,
    },
    /// The server can't be used.
    #[error(transparent)]
    Server(#[from] kukuri_postgres::Error),
    /// A newer program made the tables.
    #[error("the control database has version {found}, this program knows {supported}")]
    Newer {
        /// Version of the tables.
        found: u32,
        /// Newest version that this program knows.
        supported: u32,
    },
    /// Another transaction did not end in time.
    #[error("the control database is busy")]
    Busy,
    /// The database was closed.
    #[error("the control database is closed")]
    Closed,
    /// A row holds what no program of ours writes.
    #[error("the control database is damaged: {0}")]
    Damaged(String),
    /// A text that was to be stored or looked up has a NUL.
    #[error("a text must not contain NUL")]
    Nul,
    /// There are rows where a database was to be copied to.
    #[error("there are accounts, settings or secrets already; only an empty database can be copied into")]
    NotEmpty,
    /// This database can't do that.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => Self::Busy,
            _ => Self::Database(error.to_string()),
        }
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Busy(_) => Self::Busy,
            // lock_not_available
            error if error.has_code(&["55P03"]) => Self::Busy,
            error => Self::Database(error.to_string()),
        }
    }
}

/// Why something is refused. Its text is for people; it names no key.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The challenge is unknown, used or expired, or belongs to another key; or the token is not valid.
    #[error("authentication failed: the challenge or the token is unknown, used or expired")]
    AuthFailed,
    /// No account has this key.
    #[error("this key has no account here")]
    UnknownAccount,
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
    /// New accounts need an invite.
    #[error("a new account needs an invite code")]
    InviteRequired,
    /// There is no such invite.
    #[error("this invite code is not valid")]
    InviteInvalid,
    /// The invite has expired.
    #[error("this invite code has expired")]
    InviteExpired,
    /// The invite was used as often as it may be.
    #[error("this invite code has been used up")]
    InviteExhausted,
    /// The operator revoked the invite.
    #[error("this invite code has been revoked")]
    InviteRevoked,
    /// New accounts need to be on the list of allowed keys.
    #[error("this node lets in only keys that its operator has listed")]
    NotAllowlisted,
    /// There is no such version of this policy.
    #[error("there is no {policy_type} {version}")]
    UnknownPolicy {
        /// Its type.
        policy_type: String,
        /// Its version.
        version: String,
    },
    /// The policy is not one that can be accepted now.
    #[error("{policy_type} {version} is not current")]
    PolicyNotCurrent {
        /// Its type.
        policy_type: String,
        /// Its version.
        version: String,
    },
    /// The accepted text is not the published one.
    #[error("the content_hash is not that of a text of {policy_type} {version}")]
    OtherPolicyText {
        /// Its type.
        policy_type: String,
        /// Its version.
        version: String,
    },
    /// A published text does not change.
    #[error("{policy_type} {version} is published: write a new version")]
    PolicyPublished {
        /// Its type.
        policy_type: String,
        /// Its version.
        version: String,
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
    },
    /// The person has as many pending requests as one may have.
    #[error("{current} requests are pending, {limit} may be; wait until they are reviewed, or cancel one")]
    TooManyPendingRequests {
        /// Pending requests of the person.
        current: u64,
        /// Pending requests allowed.
        limit: u64,
    },
    /// The node carries as many topics for its members as it may.
    #[error("this node carries {current} topics for its members, {limit} may be")]
    TooManyTopics {
        /// Topics that the node carries for members.
        current: u64,
        /// Topics allowed.
        limit: u64,
    },
    /// There is no such request, or it is another person's.
    #[error("there is no such request")]
    UnknownRequest,
    /// Only a pending request can be decided on.
    #[error("the request is {status}, not pending")]
    RequestNotPending {
        /// Its status.
        status: RequestStatus,
    },
    /// The person does not subscribe to this topic.
    #[error("there is no active subscription to this topic")]
    NotSubscribed,
    /// There is no such job.
    #[error("there is no such job")]
    UnknownJob,
    /// There is no such export, or it is another person's, or the token is not its own.
    #[error("there is no such export")]
    UnknownExport,
    /// There is no such deletion, or the token is not its receipt.
    #[error("there is no such deletion")]
    UnknownDeletion,
    /// The person has an export that is not finished, or asked for as many as one may in a day.
    #[error("{}", if *.is_running { "an export of this account is being made; wait for it" } else { "this account asked for as many exports as it may in a day" })]
    TooManyExports {
        /// Whether one is being made.
        is_running: bool,
        /// Seconds after which the next may be asked for.
        retry_after: u64,
    },
    /// The export was downloaded, or it is too old.
    #[error("this export was downloaded already, or has expired; ask for another one")]
    DownloadExpired,
    /// There is no such plan.
    #[error("there is no plan `{0}`")]
    UnknownPlan(String),
    /// There is no such invite.
    #[error("there is no such invite")]
    UnknownInvite,
    /// The account is not in a state in which this is possible.
    #[error("{0}")]
    InvalidState(String),
    /// A value is not one that can be taken.
    #[error("`{field}`: {reason}")]
    Invalid {
        /// The field or flag.
        field: &'static str,
        /// What would be right.
        reason: String,
    },
    /// The database failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Refused {
    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }
}
