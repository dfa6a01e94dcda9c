//! Admission of requests, before a handler sees any input (U-3): the rate of the address, then the identity and the rate of its key, then
//! the account and its consents, as far as the route asks for them.
//!
//! The node implements [`Gate`], which counts, and knows whom the node serves. Handlers get the [`Identity`] as an extractor;
//! [`crate::credentials`] finds it. What a reader may read depends on the input: handlers ask [`crate::reader::Reader`].

use std::sync::Arc;

use async_trait::async_trait;
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{HeaderValue, Method, header, request::Parts},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use kukuri_domain::{PublicKey, TopicId, Viewer};
use kukuri_store::Budget;
use utoipa::{
    ToSchema,
    openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, path::Operation, response, security::SecurityRequirement},
};
use utoipa_axum::router::UtoipaMethodRouter;

use crate::{
    ApiState, credentials,
    error::{Error, ErrorBody},
    idempotency,
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
    /// Reads or changes a little in the control database.
    Control,
    /// Makes or checks a proof of a key, and may make an account: the strictest rate. Authentication is never required.
    SignIn,
}

/// What a route asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing. A caller may authenticate all the same, and needs no account for it.
    Open,
    /// The one-time token in its query. Credentials are not looked at: who has the token may be banned, or have no account any more.
    OneTimeToken,
    /// Nothing, like `Open`, while the node serves everybody; where it serves members only, the same as `Member`.
    Reader,
    /// An account that is not being deleted. It may be disabled or banned: for the caller's own data (N-1, N-2).
    Own,
    /// Like `Reader`, for the lists of bootstrap, which have a setting of their own (B-5).
    ListReader,
    /// An account.
    Account,
    /// An account, and consent to the policies in effect (L-3).
    Member,
}

impl Access {
    /// The access that the route asks for at this moment.
    fn now(self, state: &ApiState) -> Self {
        let is_for_members = match self {
            Self::Reader => state.gate.serves_members_only(),
            Self::ListReader => (state.bootstrap)().access.is_for_members((state.clock)()),
            other => return other,
        };
        if is_for_members { Self::Member } else { Self::Open }
    }

    /// Whether the route is open to everybody, or for members, as the operator chooses.
    const fn is_for_readers(self) -> bool {
        matches!(self, Self::Reader | Self::ListReader)
    }

    /// Whether the route is for people alone.
    const fn is_personal(self) -> bool {
        matches!(self, Self::Own | Self::Account | Self::Member)
    }

    /// Whether a request with an `Idempotency-Key` gets the same answer again. Not one about personal data: its answer has a
    /// token that is not stored as it is.
    const fn is_repeatable(self) -> bool {
        matches!(self, Self::Account | Self::Member)
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

/// Counts a request against the rates of its client, and knows whom the node serves.
#[async_trait]
pub trait Gate: Send + Sync + 'static {
    /// Admits or refuses a request. The client's address is in its headers and extensions.
    async fn admit(&self, request: &Parts, cost: RouteCost) -> Result<Identity, Error>;

    /// Counts an admitted request against the rate of the key that made it.
    fn admit_key(&self, _key: &PublicKey, _cost: RouteCost) -> Result<(), Error> {
        Ok(())
    }

    /// Counts the first visit of a key by the address: it makes an account (U-3).
    fn admit_first_visit(&self, _request: &Parts) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the node serves members only, now (W-7). There is no grace over HTTP: each request is a new one.
    fn serves_members_only(&self) -> bool {
        false
    }

    /// Whether everybody has this topic (S-6), or, without one, every topic of the node.
    fn is_for_everybody(&self, _topic: Option<&TopicId>) -> bool {
        true
    }

    /// Whether the node takes in this topic.
    fn is_enabled(&self, _topic: &TopicId) -> bool {
        true
    }

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
        let methods = [
            (Method::GET, &mut item.get),
            (Method::POST, &mut item.post),
            (Method::PUT, &mut item.put),
            (Method::PATCH, &mut item.patch),
            (Method::DELETE, &mut item.delete),
        ];
        for (method, operation) in methods {
            operation.iter_mut().for_each(|operation| describe_access(operation, &method, cost, access));
        }
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
    // What is the same for everybody is answered whatever the credentials are.
    let request = match cost {
        RouteCost::Static => request,
        _ if access == Access::OneTimeToken => request,
        _ => credentials::authenticate(&state, request, access.now(&state), cost).await?,
    };
    let is_authenticated = matches!(request.extensions().get(), Some(Identity::Person(_)));
    let mut response = match access.is_repeatable() {
        true => idempotency::answer(&state, request, next).await?,
        false => next.run(request).await,
    };
    if let Some(error) = response.extensions_mut().get_mut::<Error>() {
        error.set_upgrade_url(state.upgrade_url.as_deref());
    }
    if access.is_personal() || is_authenticated || cost == RouteCost::SignIn {
        response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    Ok(response)
}

fn describe_access(operation: &mut Operation, method: &Method, cost: RouteCost, access: Access) {
    let has_input =
        operation.request_body.is_some() || operation.parameters.as_ref().is_some_and(|all| !all.is_empty());
    let mut add = |status: &str, description: &str| {
        let response = RefOr::T(error_response(description));
        operation.responses.responses.entry(status.to_owned()).or_insert(response);
    };
    if has_input && cost != RouteCost::Static {
        add("400", "The request is malformed; the message says how.");
    }
    if cost != RouteCost::Static && access != Access::OneTimeToken {
        add("401", "Authentication is required, or the `Authorization` of the request proves nothing.");
    }
    add(
        "403",
        match access {
            Access::Own => "The client's address is denied, or the key gets no account.",
            _ => "The client's address is denied, or the account is disabled or banned.",
        },
    );
    if !matches!(access, Access::Open | Access::OneTimeToken) {
        add("410", "The account is being deleted.");
        let mut forms = ["bearer", "nostr"].map(|name| SecurityRequirement::new::<_, _, &str>(name, [])).to_vec();
        if access.is_for_readers() {
            // While everybody is served, none is needed.
            forms.push(SecurityRequirement::default());
        }
        operation.security = Some(forms);
    }
    if access == Access::Member || access.is_for_readers() {
        add("428", "The policies in `details.required` have to be accepted first.");
    }
    if access.is_repeatable() && method == Method::POST {
        add("409", "The `Idempotency-Key` belongs to another request, or to one that is being worked on.");
        operation.parameters.get_or_insert_default().push(RefOr::T(idempotency::parameter()));
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
