//! Why a REQ, COUNT or NEG message is refused. The `Display` of each reason is the text of `CLOSED` or `NEG-ERR`.

use kukuri_domain::Malformed;
use kukuri_engine::ReadRefused;

use crate::session::subscriptions::{MAX_FILTER_VALUES, VALUE_BYTES};

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
    #[error("blocked: this relay has too many reconciliations now; try again later")]
    NegBudgetSpent,
    #[error("closed: no reconciliation with this subscription id")]
    NegNotOpen,
    #[error("closed: the reconciliation was idle for too long")]
    NegIdle,
}
