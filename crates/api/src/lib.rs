//! The HTTP API: search, the changes of a topic as pages and as a stream, and accounts.
//!
//! # Layout
//!
//! - [`routes`]: the list of endpoints. Each handler carries its description; together they are `/v1/openapi.json`.
//! - [`gate`]: rates, identity and account, asked before every handler. The node implements the rates; `credentials` reads the
//!   header `Authorization`.
//! - `search`: hits, looked up in the store (C-1).
//! - `feed`: pages of changes (W-8); `stream`: the same as server-sent events; `changes`: reading them from the outbox;
//!   `tail`: outbox rows shared by streams; `snapshot`: the start of a follower (O-8).
//! - `topics`: topics by name (S-8); `trending`: topics by what happens in them.
//! - `reader`: whether the caller may read topics (S-5); `quota`: units of a plan; `idempotency`: requests that are sent again.
//! - `bootstrap`: what nodes tell of themselves (B-3, B-4). `conditional`: answers that a client may have already.
//! - `people`: sign-in, accounts, own data, policies and consents, requests for topics.
//! - [`extract`]: query, path and body; `cursor`: places in lists; `position`: sequences with their epoch (Y-5); `answer`: parts of answers; [`mod@error`]: errors.
//! - `layers`: request ids, CORS, time limits, panics, logs.
//! - `fuzzing` (a feature): what must hold for any parameters.

mod answer;
mod bootstrap;
mod changes;
mod conditional;
mod credentials;
mod cursor;
pub mod error;
pub mod extract;
mod feed;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod gate;
mod idempotency;
mod layers;
mod people;
mod position;
mod quota;
mod reader;
mod search;
mod snapshot;
mod stream;
mod tail;
mod topics;
mod trending;

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::any,
};
use kukuri_bootstrap::Profile;
use kukuri_control::{
    Control,
    request::{RequestLimits, Service},
};
use kukuri_domain::{
    Millis, RelayUrls, Timestamp, TopicId, Visibility,
    topic::{TopicPatterns, TopicRules, TopicValue},
};
use kukuri_search::Finder;
use kukuri_store::Store;
use tokio::sync::watch;
use utoipa::{
    Modify, OpenApi,
    openapi::{
        OpenApi as Document,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};
use utoipa_axum::{router::OpenApiRouter, routes as handlers};

use bootstrap::ChangeTimes;
pub use error::Error;
use error::ErrorBody;
pub use error::NotAdmitted;
use gate::{Access, gated};
pub use gate::{Gate, Identity, RouteCost, StreamPermit, StreamTurn};
use tail::OutboxTail;
use trending::Trending;

/// The longest name of a topic, in characters.
const MAX_NAME_CHARS: usize = 200;
/// Characters of a reason that may repeat a parameter.
const MAX_REASON_CHARS: usize = 300;

/// The parts of a node that the API reads.
pub struct Api {
    /// The events.
    pub store: Arc<dyn Store>,
    /// `None`: search is switched off.
    pub finder: Option<Finder>,
    /// The rules of topics now; a reload may change them (T-6).
    pub topics: Box<dyn Fn() -> TopicRules + Send + Sync>,
    /// The visibility now; moderation may change it (M-5).
    pub visibility: Box<dyn Fn() -> Visibility + Send + Sync>,
    /// Admits requests.
    pub gate: Arc<dyn Gate>,
    /// What is known of people.
    pub control: Arc<Control>,
    /// The URLs by which signed events may name this node. The first is the issuer of tokens, and URLs in answers begin with it.
    pub relay_urls: Box<dyn Fn() -> RelayUrls + Send + Sync>,
    /// The network whose names of topics are hashed (T-2).
    pub topic_network: String,
    /// The services that this node runs, which people may ask for. The relay is always one.
    pub services: Vec<Service>,
    /// How much people may ask for (S-4).
    pub request_limits: RequestLimits,
    /// The node's profile, from the current configuration.
    pub bootstrap: Box<dyn Fn() -> Arc<Profile> + Send + Sync>,
    /// Topics that people can't ask for (S-2).
    pub forbidden_topics: TopicPatterns,
    /// A page about larger plans, which refusals by a plan name.
    pub upgrade_url: Option<String>,
    /// The time now.
    pub clock: fn() -> Millis,
    /// `true` once the node stops: streams end. They also end when the sender is dropped.
    pub stopping: watch::Receiver<bool>,
}

impl Api {
    /// The time now, in seconds.
    fn now(&self) -> Timestamp {
        (self.clock)().seconds()
    }

    /// A URL of this node for people's browsers and clients.
    fn http_url(&self, path: &str) -> String {
        (self.relay_urls)().http_url() + path
    }

    /// Reads a parameter that names a topic, by its id or its name (U-6).
    fn read_topic(&self, parameter: &str, text: &str) -> Result<TopicId, Error> {
        Ok(self.read_named_topic(parameter, text)?.0)
    }

    /// Reads a topic given by id or name. Returns the name as well, unless it is an id (T-2).
    fn read_named_topic(&self, parameter: &str, text: &str) -> Result<(TopicId, Option<String>), Error> {
        let name = read_name(parameter, text)?;
        let topic = TopicId::from_name(&self.topic_network, name, &(self.topics)());
        let topic = topic.map_err(|error| {
            let reason: String = error.to_string().chars().take(MAX_REASON_CHARS).collect();
            Error::invalid_parameter(parameter, reason)
        })?;
        let is_id = topic.as_str() == name;
        Ok((topic, (!is_id).then(|| name.to_owned())))
    }

    /// Reads a topic id that this node wrote.
    fn read_topic_id(&self, text: &str) -> Option<TopicId> {
        match (self.topics)().read(text) {
            TopicValue::Topic(topic) => Some(topic),
            TopicValue::Hashtag | TopicValue::Malformed => None,
        }
    }
}

/// A name of a topic, or a part of one, as a parameter.
fn read_name<'t>(parameter: &str, text: &'t str) -> Result<&'t str, Error> {
    let name = text.trim();
    if name.chars().count() > MAX_NAME_CHARS || name.contains(char::is_control) {
        let reason = format!("must have at most {MAX_NAME_CHARS} characters, in one line");
        return Err(Error::invalid_parameter(parameter, reason));
    }
    Ok(name)
}

/// The state of all handlers.
struct ApiState {
    api: Api,
    tail: OutboxTail,
    list_changes: ChangeTimes,
    trending: Trending,
    /// `/v1/openapi.json`
    description: OnceLock<String>,
}

impl Deref for ApiState {
    type Target = Api;

    fn deref(&self) -> &Api {
        &self.api
    }
}

#[derive(OpenApi)]
#[openapi(
    info(title = "kukuri-node", description = "Search, the changes of a topic, and accounts, beside a Nostr relay."),
    components(schemas(ErrorBody)),
    modifiers(&Credentials)
)]
struct Description;

/// The description of both forms of `Authorization`.
struct Credentials;

impl Modify for Credentials {
    fn modify(&self, document: &mut Document) {
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT");
        let nostr = ApiKeyValue::with_description(
            "Authorization",
            "`Nostr <base64 of a signed event>`: an event of kind 27235 for this request (NIP-98).",
        );
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer.build()));
        components.add_security_scheme("nostr", SecurityScheme::ApiKey(ApiKey::Header(nostr)));
    }
}

/// All endpoints, to be merged with other routes. A new endpoint is a handler in its own file, its `mod` above, and its
/// line here.
pub fn routes(api: Api) -> Router {
    use RouteCost::{Control, Listing, Read, Search, SignIn, Static};
    let state = Arc::new(ApiState {
        api,
        tail: OutboxTail::default(),
        list_changes: ChangeTimes::default(),
        trending: Trending::default(),
        description: OnceLock::new(),
    });
    let gated = |cost, access, handlers| gated(&state, cost, access, handlers);
    let (router, description) = OpenApiRouter::with_openapi(Description::openapi())
        .routes(gated(Search, Access::Reader, handlers!(search::search)))
        .routes(gated(Read, Access::Reader, handlers!(feed::list_changes)))
        .routes(gated(Read, Access::Reader, handlers!(snapshot::read_snapshot)))
        .routes(gated(Read, Access::Reader, handlers!(topics::list_topics)))
        .routes(gated(Read, Access::Reader, handlers!(topics::suggest_communities)))
        .routes(gated(Read, Access::Reader, handlers!(trending::list_trending)))
        .routes(gated(Static, Access::Open, handlers!(openapi)))
        .routes(gated(Static, Access::Open, handlers!(bootstrap::community_node::read_community_node)))
        .routes(gated(Listing, Access::Open, handlers!(bootstrap::nodes::list_nodes)))
        .routes(gated(Listing, Access::ListReader, handlers!(bootstrap::services::list_services)))
        .routes(gated(SignIn, Access::Open, handlers!(people::sign_in::make_challenge)))
        .routes(gated(SignIn, Access::Open, handlers!(people::sign_in::verify_answer)))
        .routes(gated(SignIn, Access::Open, handlers!(people::invites::redeem_invite)))
        .routes(gated(Control, Access::Account, handlers!(people::sign_in::end_session)))
        .routes(gated(Control, Access::Account, handlers!(people::me::read_account)))
        .routes(gated(Control, Access::Open, handlers!(people::policies::list_current_policies)))
        .routes(gated(Control, Access::Open, handlers!(people::policies::read_policy)))
        .routes(gated(Control, Access::Account, handlers!(people::consents::read_consents)))
        .routes(gated(Control, Access::Account, handlers!(people::consents::give_consents)))
        .routes(gated(
            Control,
            Access::Member,
            handlers!(people::topic_requests::create_topic_request, people::topic_requests::list_topic_requests),
        ))
        .routes(gated(
            Control,
            Access::Member,
            handlers!(people::topic_requests::read_topic_request, people::topic_requests::cancel_topic_request),
        ))
        .routes(gated(Control, Access::Member, handlers!(people::topic_subscriptions::list_topic_subscriptions)))
        .routes(gated(Control, Access::Account, handlers!(people::topic_subscriptions::end_topic_subscription)))
        .routes(gated(SignIn, Access::Own, handlers!(people::personal_data::request_export)))
        .routes(gated(Control, Access::Own, handlers!(people::personal_data::list_exports)))
        .routes(gated(Control, Access::Own, handlers!(people::personal_data::read_export)))
        .routes(gated(Control, Access::OneTimeToken, handlers!(people::personal_data::download_export)))
        .routes(gated(SignIn, Access::Own, handlers!(people::personal_data::request_deletion)))
        .routes(gated(Control, Access::OneTimeToken, handlers!(people::personal_data::read_deletion)))
        .split_for_parts();
    let router = router
        .route("/v1/", any(not_found))
        .route("/v1/{*path}", any(not_found))
        .method_not_allowed_fallback(async || Error::MethodNotAllowed);
    // A description is plain data: writing it does not fail.
    state.description.get_or_init(|| description.to_json().unwrap_or_default());
    layers::layered(router).with_state(state)
}

/// This description.
#[utoipa::path(get, path = "/v1/openapi.json", responses(
    (status = 200, description = "An OpenAPI document.", body = Object, content_type = "application/json"),
))]
async fn openapi(State(state): State<Arc<ApiState>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], state.description.get().cloned().unwrap_or_default()).into_response()
}

async fn not_found() -> Error {
    Error::NotFound
}
