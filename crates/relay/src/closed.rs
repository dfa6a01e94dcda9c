//! Why a REQ, COUNT or NEG message is refused. The `Display` of each reason is the text of `CLOSED` or `NEG-ERR`.

use kukuri_domain::Malformed;
use kukuri_engine::{ReadRefused, live::VALUE_BYTES};

use crate::{metrics::RequestRefused, session::subscriptions::MAX_FILTER_VALUES};

/// The reason.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Closed {
    /// A policy refuses it.
    #[error(transparent)]
    Refused(#[from] ReadRefused),
    #[error("invalid: a request has at least one filter")]
    NoFilter,
    #[error("invalid: {0}")]
    BadFilter(#[from] Malformed),
    #[error("error: more subscriptions than limits.subscriptions = {0}")]
    TooManySubscriptions(usize),
    #[error(
        "error: more than {MAX_FILTER_VALUES} values in the filters of this connection; a long value counts once per {VALUE_BYTES} bytes"
    )]
    TooManyFilterValues,
    #[error(
        "error: too many answers of this address, or of this relay, wait to be read; read them, or try again later"
    )]
    AnswersWaiting,
    #[error("error: the query failed")]
    QueryFailed,
    #[error("error: the count failed")]
    CountFailed,
    #[error("invalid: a reconciliation message is hex")]
    NotHex,
    #[error("invalid: {0}")]
    BadNegMessage(String),
    #[error("blocked: more reconciliations than limits.sync_sessions = {0} on one connection")]
    TooManyNegSessions(usize),
    #[error("blocked: more than limits.sync_events = {0} events match; narrow the filter")]
    TooManyNegEvents(usize),
    #[error(
        "blocked: this address, or this relay, has too many events in reconciliations; try again later, or narrow the filter"
    )]
    NegBudgetSpent,
    #[error("closed: no reconciliation with this subscription id")]
    NegNotOpen,
    #[error("closed: the reconciliation was idle for too long")]
    NegIdle,
}

impl Closed {
    /// The reason in the metric.
    pub(crate) fn label(&self) -> RequestRefused {
        match self {
            Self::Refused(refused) => match refused {
                ReadRefused::Unauthenticated => RequestRefused::AuthRequired,
                ReadRefused::Person(_) => RequestRefused::NotServed,
                ReadRefused::TooFast(_) => RequestRefused::TooFast,
                ReadRefused::TooManyLiveFilters(_) | ReadRefused::NoRoomForLiveFilters => RequestRefused::LiveFilters,
                ReadRefused::TooCostly => RequestRefused::TooCostly,
                ReadRefused::Busy => RequestRefused::Busy,
                ReadRefused::TooManyFilters(_)
                | ReadRefused::TooManyValues(_)
                | ReadRefused::TooManySearches(_)
                | ReadRefused::TopicMissing(_)
                | ReadRefused::NoSearch
                | ReadRefused::BadSearch(_)
                | ReadRefused::SearchOutsideReq => RequestRefused::Invalid,
            },
            Self::NoFilter | Self::BadFilter(_) | Self::NotHex | Self::BadNegMessage(_) => RequestRefused::Invalid,
            Self::TooManySubscriptions(_) | Self::TooManyFilterValues => RequestRefused::Subscriptions,
            Self::AnswersWaiting => RequestRefused::AnswerMemory,
            Self::QueryFailed | Self::CountFailed => RequestRefused::Failed,
            Self::TooManyNegSessions(_) | Self::TooManyNegEvents(_) | Self::NegBudgetSpent => {
                RequestRefused::Reconciliations
            }
            Self::NegNotOpen | Self::NegIdle => RequestRefused::Over,
        }
    }
}
