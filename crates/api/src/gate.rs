//! Admission of requests: rates and identity, asked before a handler sees any input (U-3).
//!
//! The node implements [`Gate`]. Handlers get the [`Identity`] it found, as an extractor.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    extract::{FromRequestParts, Request, State},
    http::request::Parts,
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use kukuri_domain::Viewer;
use kukuri_store::Budget;
use utoipa::{
    ToSchema,
    openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, path::Operation, response},
};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::{
    ApiState,
    error::{Error, ErrorBody},
};

/// The cost of one request to the node. A gate has a rate for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteCost {
    /// Answered from memory, and to everybody: authentication is never required.
    Static,
    /// Reads the store.
    Read,
    /// Reads the search index and the store.
    Search,
}

/// The caller of a request. Handlers ask its methods and never match on it, so that a new variant changes no handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// A caller that has not authenticated.
    Anonymous,
}

impl Identity {
    /// Decides which private events the caller may see (E-10).
    pub fn viewer(&self) -> Viewer {
        match self {
            Self::Anonymous => Viewer::unauthenticated(),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Error;

    /// Fails only for a route that is not [`gated`].
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        parts.extensions.get().cloned().ok_or(Error::Internal)
    }
}

/// Counts a request against the rates of its client, then finds out its identity.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Admits or refuses a request. The client's address is in its headers and extensions.
    async fn admit(&self, request: &Parts, cost: RouteCost) -> Result<Identity, Error>;

    /// What reading the answer to an admitted request may cost, from now on (Y-2).
    fn budget(&self, _request: &Parts) -> Budget {
        Budget::default()
    }

    /// The bytes that the answer to an admitted request may have, if its page can end earlier (Y-2).
    fn answer_bytes(&self, _request: &Parts) -> usize {
        usize::MAX
    }

    /// Admits a stream, after the request: an address, and the node, can have so many at once (Y-1).
    fn admit_stream(&self, request: &Parts) -> Result<StreamPermit, Error>;
}

/// The bytes that an answer may have. An extension of an admitted request.
#[derive(Clone, Copy)]
pub(crate) struct AnswerBytes(pub(crate) usize);

/// Locked by one stream of a network while it waits among the streams of other networks.
pub type StreamTurn = tokio::sync::Mutex<()>;

/// One of the streams that may be open. Dropped, another may be opened.
pub struct StreamPermit {
    /// A lock that all streams of one network share: while they are far behind, one of them reads at a time (Y-1).
    pub turn: Arc<StreamTurn>,
    /// Dropped with the permit.
    pub share: Box<dyn Send + Sync>,
}

/// Puts the gate before a route, and the refusals of the gate into the description of the route.
pub(crate) fn gated(
    gate: &Arc<dyn Gate>,
    cost: RouteCost,
    (schemas, mut paths, router): UtoipaMethodRouter<Arc<ApiState>>,
) -> UtoipaMethodRouter<Arc<ApiState>> {
    for item in paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        methods.into_iter().flatten().for_each(|operation| describe_refusals(operation, cost));
    }
    (schemas, paths, router.route_layer(from_fn_with_state((Arc::clone(gate), cost), admit)))
}

async fn admit(
    State((gate, cost)): State<(Arc<dyn Gate>, RouteCost)>,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let (mut parts, body) = request.into_parts();
    let identity = gate.admit(&parts, cost).await?;
    parts.extensions.insert(identity);
    parts.extensions.insert(gate.budget(&parts));
    parts.extensions.insert(AnswerBytes(gate.answer_bytes(&parts)));
    Ok(next.run(Request::from_parts(parts, body)).await)
}

fn describe_refusals(operation: &mut Operation, cost: RouteCost) {
    let mut add = |status: &str, description: &str| {
        operation.responses.responses.insert(status.to_owned(), RefOr::T(error_response(description)));
    };
    if cost != RouteCost::Static {
        add("400", "The request is malformed; the message says how.");
        add("401", "The node requires authentication.");
    }
    add("403", "The client's address is denied.");
    add("429", "Too many requests; `Retry-After` says when the next may come.");
    add("default", "Any other error.");
}

fn error_response(description: &str) -> response::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
