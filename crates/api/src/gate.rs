//! Admission of requests, before a handler sees any input (U-3): the rate of the address, then the identity, then the account and
//! its consents, as far as the route asks for them.
//!
//! The node implements [`Gate`], which counts. Handlers get the [`Identity`] as an extractor; [`crate::credentials`] finds it.

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use kukuri_domain::{PublicKey, Viewer};
use kukuri_store::Budget;
use utoipa::{
    ToSchema,
    openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, path::Operation, response, security::SecurityRequirement},
};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::{
    ApiState, credentials,
    error::{Error, ErrorBody},
};

/// The cost of one request to the node. A gate has a rate for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RouteCost {
    /// Answered from memory, and to everybody: authentication is never required.
    Static,
    /// Reads the store.
    Read,
    /// Reads a few events of the store. Whether authentication is required is not for the gate to say.
    Listing,
    /// Reads the search index and the store.
    Search,
    /// Reads or changes a little in the control database. Whether authentication is required is not for the gate to say.
    Control,
    /// Makes or checks a proof of a key, and may make an account: the strictest rate. Authentication is never required.
    SignIn,
}

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing. A caller may authenticate all the same, and needs no account for it.
    Open,
    /// An account that is not being deleted. It may be disabled or banned: for the caller's own data (N-1, N-2).
    Own,
    /// An account.
    Account,
    /// An account, and consent to the policies in effect (L-3).
    Member,
    /// The same, if the configuration keeps the lists of bootstrap for members (B-5); else nothing.
    ListReader,
}

impl Access {
    /// What the route asks for now.
    fn now(self, state: &ApiState) -> Self {
        match self {
            Self::ListReader if (state.bootstrap)().access.is_for_members((state.clock)()) => Self::Member,
            Self::ListReader => Self::Open,
            other => other,
        }
    }
}

/// The caller of a request. Handlers ask its methods and never match on it, so that a new variant changes no handler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Identity {
    /// A caller that has not authenticated.
    Anonymous,
    /// A caller that has proven to own this key, and is not banned. It has an account, unless the route is open to everybody.
    Person(PublicKey),
}

impl Identity {
    /// Decides which private events the caller may see (E-10).
    pub fn viewer(&self) -> Viewer {
        match self {
            Self::Anonymous => Viewer::unauthenticated(),
            Self::Person(key) => Viewer::Client([*key].into()),
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
    state: &Arc<ApiState>,
    cost: RouteCost,
    access: Access,
    (schemas, mut paths, router): UtoipaMethodRouter<Arc<ApiState>>,
) -> UtoipaMethodRouter<Arc<ApiState>> {
    for item in paths.paths.values_mut() {
        let methods = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        methods.into_iter().flatten().for_each(|operation| describe_access(operation, cost, access));
    }
    (schemas, paths, router.route_layer(from_fn_with_state((Arc::clone(state), cost, access), admit)))
}

async fn admit(
    State((state, cost, access)): State<(Arc<ApiState>, RouteCost, Access)>,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let (mut parts, body) = request.into_parts();
    let identity = state.gate.admit(&parts, cost).await?;
    parts.extensions.insert(identity);
    parts.extensions.insert(state.gate.budget(&parts));
    parts.extensions.insert(AnswerBytes(state.gate.answer_bytes(&parts)));
    let request = Request::from_parts(parts, body);
    let access = access.now(&state);
    // What is the same for everybody is answered whatever the credentials are.
    let request = match cost {
        RouteCost::Static => request,
        _ => credentials::authenticate(&state, request, access).await?,
    };
    let mut response = next.run(request).await;
    if access != Access::Open || cost == RouteCost::SignIn {
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    Ok(response)
}

fn describe_access(operation: &mut Operation, cost: RouteCost, access: Access) {
    let has_input =
        operation.request_body.is_some() || operation.parameters.as_ref().is_some_and(|all| !all.is_empty());
    let mut add = |status: &str, description: &str| {
        let response = RefOr::T(error_response(description));
        operation.responses.responses.entry(status.to_owned()).or_insert(response);
    };
    if has_input && cost != RouteCost::Static {
        add("400", "The request is malformed; the message says how.");
    }
    if cost != RouteCost::Static {
        add("401", "Authentication is required, or the `Authorization` of the request proves nothing.");
    }
    add(
        "403",
        match access {
            Access::Own => "The client's address is denied, or the key gets no account.",
            _ => "The client's address is denied, or the account is disabled or banned.",
        },
    );
    if access != Access::Open {
        add("410", "The account is being deleted.");
        let schemes = ["bearer", "nostr"].map(|name| SecurityRequirement::new::<_, _, &str>(name, []));
        // An empty requirement says that the others are optional.
        let none = (access == Access::ListReader).then(SecurityRequirement::default);
        operation.security = Some(none.into_iter().chain(schemes).collect());
    }
    if matches!(access, Access::Member | Access::ListReader) {
        add("428", "The policies in `details.required` have to be accepted first.");
    }
    add("429", "Too many requests; `Retry-After` says when the next may come.");
    if matches!(cost, RouteCost::Control | RouteCost::SignIn) {
        add("503", "The database of accounts is not available.");
    }
    add("default", "Any other error.");
}

fn error_response(description: &str) -> response::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(ErrorBody::name()))).build();
    ResponseBuilder::new().description(description).content("application/json", content).build()
}
