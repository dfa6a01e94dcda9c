//! The relay's information document (NIP-11): who it is, what it can do, and its real limits.

use kukuri_domain::retention::Keep;
use serde_json::{Value, json};

use crate::{
    clock,
    config::{Auth, RelayConfig, TopicIntake},
    message::SubscriptionId,
};

/// What this relay implements.
const NIPS: [u16; 10] = [1, 9, 11, 40, 42, 45, 62, 67, 70, 77];
/// What is there if there is an index.
const SEARCH: u16 = 50;

/// The NIPs that are kept here.
pub(crate) fn nips(has_search: bool) -> Vec<u16> {
    let mut nips: Vec<u16> = NIPS.into_iter().chain(has_search.then_some(SEARCH)).collect();
    nips.sort_unstable();
    nips
}

pub(crate) fn document(config: &RelayConfig, has_search: bool) -> Value {
    let RelayConfig { info, requests, admission, auth, retention, .. } = config;
    let limits = &admission.limits;
    let auth_required = match auth {
        Auth::Off => false,
        Auth::Required { enforce_at, .. } => clock::now() >= *enforce_at,
    };
    let mut document = json!({
        "name": info.name,
        "description": info.description,
        "supported_nips": nips(has_search),
        "software": "kukuri-node",
        "version": env!("CARGO_PKG_VERSION"),
        "limitation": {
            "max_message_length": requests.message_bytes,
            "max_subscriptions": requests.subscriptions,
            "max_filters": requests.filters,
            "max_limit": requests.limit,
            "default_limit": requests.limit,
            "max_subid_length": SubscriptionId::LONGEST,
            "max_event_tags": limits.tag_count,
            "max_content_length": limits.content_bytes,
            "created_at_upper_limit": limits.ahead.as_secs(),
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
    let optional = [
        ("contact", info.contact.clone().map(Value::from)),
        ("pubkey", info.pubkey.map(|key| key.to_string().into())),
        ("self", info.own_key.map(|key| key.to_string().into())),
        ("icon", info.icon.clone().map(Value::from)),
        ("posting_policy", info.posting_policy.clone().map(Value::from)),
        ("language_tags", (!info.language_tags.is_empty()).then(|| info.language_tags.clone().into())),
    ];
    if let Some(fields) = document.as_object_mut() {
        fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
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
