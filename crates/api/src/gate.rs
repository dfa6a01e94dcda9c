//! Who may ask, and how often: the relay around it knows (W-4, W-7).

use axum::http::request::Parts;

use crate::{Api, error::Problem};

/// What is asked for, by what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// A search.
    Search,
    /// A page of changes, or a stream of them.
    Follow,
    /// A page of everything there is.
    Snapshot,
}

/// Why somebody is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Only who has authenticated is answered, and over HTTP nobody has.
    AuthRequired,
    /// This address is denied.
    Denied,
    /// Too many requests; one may come after this time.
    TooFast {
        /// In seconds.
        seconds: u64,
    },
}

/// Counts callers and refuses some, before anything is read.
pub trait Gate: Send + Sync + 'static {
    /// Whether a request is answered. Where it comes from stands in its headers and extensions.
    fn admit(&self, request: &Parts, act: Act) -> Result<(), Refused>;
}

impl Api {
    pub(crate) fn admit(&self, request: &Parts, act: Act) -> Result<(), Problem> {
        let Some(gate) = &self.gate else { return Ok(()) };
        gate.admit(request, act).map_err(|refused| match refused {
            Refused::AuthRequired => Problem::AuthRequired,
            Refused::Denied => Problem::Denied,
            Refused::TooFast { seconds } => Problem::TooFast { seconds },
        })
    }
}
