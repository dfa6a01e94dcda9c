//! `GET /.well-known/kukuri/community-node.json`: the node for people and programs that know its host name only (B-4).

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::HeaderMap, response::Response};
use kukuri_bootstrap::Profile;
use kukuri_domain::{nip19::npub, retention::Keep};
use serde::Serialize;
use utoipa::ToSchema;

use super::PUBLIC;
use crate::{
    Api, ApiState,
    conditional::{Validators, respond},
    error::Error,
    people::policies::url_of,
};

/// The name of the form of the document.
const SCHEMA: &str = "kukuri-community-node-v1";

#[derive(Serialize, ToSchema)]
pub(crate) struct CommunityNode {
    /// `kukuri-community-node-v1`.
    schema: &'static str,
    /// The public key that signs for the node.
    node_id: String,
    /// The key in NIP-19 form.
    npub: String,
    name: String,
    description: String,
    #[schema(required = true)]
    contact: Option<String>,
    operator: Operator,
    /// The parts of the node that are switched on.
    capabilities: Vec<&'static str>,
    endpoints: NodeEndpoints,
    policies: Vec<PolicyLink>,
    /// A page that says what may be posted.
    #[schema(required = true)]
    posting_policy: Option<String>,
    /// How long events are kept, in seconds; null: for ever.
    retention: RetentionSeconds,
    /// Keys of services of this node that sign events of their own.
    service_keys: Vec<ServiceKey>,
    shutdown_notice: ShutdownNotice,
}

#[derive(Serialize, ToSchema)]
struct Operator {
    #[schema(required = true)]
    name: Option<String>,
    #[schema(required = true)]
    pubkey: Option<String>,
    /// The country whose law applies.
    #[schema(required = true)]
    jurisdiction: Option<String>,
    /// Where abuse is reported.
    #[schema(required = true)]
    abuse_contact: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct NodeEndpoints {
    http: String,
    ws: String,
    /// For other nodes: `id@address`.
    #[schema(required = true)]
    p2p: Option<String>,
}

/// A policy in effect.
#[derive(Serialize, ToSchema)]
struct PolicyLink {
    #[serde(rename = "type")]
    policy_type: &'static str,
    version: String,
    url: String,
}

#[derive(Serialize, ToSchema)]
struct RetentionSeconds {
    #[schema(required = true)]
    regular: Option<u64>,
    #[schema(required = true)]
    current: Option<u64>,
    #[schema(required = true)]
    replaced: Option<u64>,
    #[schema(required = true)]
    requests: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct ServiceKey {
    service: &'static str,
    pubkey: String,
}

#[derive(Serialize, ToSchema)]
struct ShutdownNotice {
    /// `active`, `winding_down` or `retired`.
    status: &'static str,
    #[schema(required = true)]
    effective_at: Option<u64>,
    #[schema(required = true)]
    message: Option<String>,
    /// Nodes to go to.
    alternatives: Vec<String>,
}

impl CommunityNode {
    fn of(api: &Api, profile: &Profile) -> Self {
        let (operator, endpoints, shutdown) = (&profile.operator, &profile.endpoints, &profile.shutdown);
        let policies = api.control.people().published().current;
        let seconds = |keep| match keep {
            Keep::For(time) => Some(Duration::as_secs(&time)),
            Keep::Forever => None,
        };
        Self {
            schema: SCHEMA,
            node_id: profile.node.to_string(),
            npub: npub(&profile.node),
            name: profile.name.clone(),
            description: profile.description.clone(),
            contact: profile.contact.clone(),
            operator: Operator {
                name: operator.name.clone(),
                pubkey: operator.pubkey.map(|key| key.to_string()),
                jurisdiction: operator.jurisdiction.clone(),
                abuse_contact: operator.abuse_contact.clone(),
            },
            capabilities: profile.capabilities.clone(),
            endpoints: NodeEndpoints {
                http: endpoints.http.clone(),
                ws: endpoints.ws.clone(),
                p2p: endpoints.p2p.clone(),
            },
            policies: policies
                .into_iter()
                .map(|policy| PolicyLink {
                    policy_type: policy.policy_type.name(),
                    url: url_of(api, &policy),
                    version: policy.version,
                })
                .collect(),
            posting_policy: profile.posting_policy.clone(),
            retention: RetentionSeconds {
                regular: seconds(profile.retention.regular),
                current: seconds(profile.retention.current),
                replaced: seconds(profile.retention.replaced),
                requests: seconds(profile.retention.requests),
            },
            // No service signs yet.
            service_keys: Vec::new(),
            shutdown_notice: ShutdownNotice {
                status: shutdown.status.name(),
                effective_at: shutdown.effective_at,
                message: shutdown.message.clone(),
                alternatives: shutdown.alternatives.clone(),
            },
        }
    }
}

/// The node: who runs it, what it does, and where. It never requires authentication.
#[utoipa::path(get, path = "/.well-known/kukuri/community-node.json", responses(
    (status = 200, description = "The document.", body = CommunityNode),
    (status = 304, description = "Nothing has changed."),
))]
pub(crate) async fn read_community_node(
    State(api): State<Arc<ApiState>>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let document = CommunityNode::of(&api, &(api.bootstrap)());
    let json = serde_json::to_vec(&document).map_err(|error| {
        tracing::error!(%error, "can't write the document of the node");
        Error::Internal
    })?;
    let etag = Validators::etag_of([json]);
    let modified_at = Some(api.list_changes.modified_at(SCHEMA, &etag, api.now()));
    Ok(respond(&headers, &Validators { etag, modified_at }, PUBLIC, &document))
}
