//! The relay's information document (NIP-11): name, supported NIPs and the real limits.

use kukuri_domain::{PublicKey, retention::Keep};
use kukuri_engine::{
    clock,
    config::{Auth, EngineConfig, TopicIntake},
};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{message::SubscriptionId, relay::Relay};

/// The NIPs this relay implements.
const NIPS: [u16; 11] = [1, 9, 11, 40, 42, 45, SEARCH_NIP, 62, 67, 70, 77];
/// Implemented only if there is a search index.
const SEARCH_NIP: u16 = 50;

/// How the relay presents itself.
#[derive(Clone, Debug, Serialize)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// How to reach its operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// The operator's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pubkey: Option<PublicKey>,
    /// The relay's own key.
    #[serde(rename = "self", skip_serializing_if = "Option::is_none")]
    pub own_key: Option<PublicKey>,
    /// The URL of a picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    /// The languages spoken here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub language_tags: Vec<String>,
    /// The URL of the rules for posting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posting_policy: Option<String>,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            name: "kukuri-node".to_owned(),
            description: "A community node".to_owned(),
            contact: None,
            pubkey: None,
            own_key: None,
            icon: None,
            language_tags: Vec::new(),
            posting_policy: None,
        }
    }
}

/// The document of a relay.
pub fn document(relay: &Relay) -> Value {
    let config = relay.engine.config();
    let EngineConfig { requests, admission, auth, retention, .. } = &*config;
    let limits = &admission.limits;
    let has_search = relay.engine.reads().has_search();
    let nips: Vec<u16> = NIPS.into_iter().filter(|nip| has_search || *nip != SEARCH_NIP).collect();
    let auth_required = match auth {
        Auth::Off => false,
        Auth::Required { enforce_at, .. } => clock::now() >= *enforce_at,
    };
    let mut document = json!({
        "supported_nips": nips,
        "software": "kukuri-node",
        "version": env!("CARGO_PKG_VERSION"),
        "limitation": {
            "max_message_length": requests.message_bytes,
            "max_subscriptions": requests.subscriptions,
            "max_filters": requests.filters,
            "max_limit": requests.limit,
            "default_limit": requests.limit,
            "max_subid_length": SubscriptionId::MAX_CHARS,
            "max_event_tags": limits.tag_count,
            "max_content_length": limits.content_bytes,
            "created_at_upper_limit": limits.created_at_ahead.as_secs(),
            "auth_required": auth_required,
            "payment_required": false,
            // A topic that nobody enabled is refused.
            "restricted_writes": matches!(config.topics, TopicIntake::Closed),
        },
        "retention": [
            { "kinds": [0, 3, [10_000, 19_999], [30_000, 39_999]], "time": seconds(retention.current) },
            { "kinds": [5, 62], "time": seconds(retention.requests) },
            { "time": seconds(retention.regular) },
        ],
    });
    if let (Some(fields), Ok(Value::Object(info))) = (document.as_object_mut(), serde_json::to_value(&*relay.info())) {
        fields.extend(info);
    }
    document
}

/// `null` is forever.
fn seconds(keep: Keep) -> Value {
    match keep {
        Keep::For(duration) => duration.as_secs().into(),
        Keep::Forever => Value::Null,
    }
}
