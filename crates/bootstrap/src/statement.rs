//! The events in which a node tells of itself (B-1, KIP-0001), before they are signed.

use kukuri_domain::{Event, Kind, Timestamp, TopicId, UnsignedEvent};
use secp256k1::Keypair;
use serde::Serialize;

use crate::profile::{Endpoints, Profile};

/// Seconds for which a descriptor is valid: 7 days.
pub const DESCRIPTOR_TTL: u64 = 7 * 24 * 3_600;
/// Seconds for which a topic service is valid: 48 hours.
pub const TOPIC_SERVICE_TTL: u64 = 48 * 3_600;
/// Seconds for which a withdrawn one is: long enough to arrive at other nodes, whose clocks differ.
pub const WITHDRAWN_TTL: u64 = 60;
/// The `d` of a descriptor.
pub const DESCRIPTOR: &str = "descriptor";

const DESCRIPTOR_SCHEMA: &str = "kukuri-node-desc-v1";
const TOPIC_SERVICE_SCHEMA: &str = "kukuri-topic-service-v1";
/// The tags that say until when an event is valid: KIP-0001's, and that of NIP-40, by which relays go.
const VALIDITY: [&str; 2] = ["exp", "expiration"];
/// The only scope of what a relay serves (E-6).
const PUBLIC: &str = "public";

/// A role in which a node serves a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// It says which nodes serve the topic.
    Bootstrap,
    /// It takes in and serves the topic's events.
    Relay,
    /// It searches them.
    Index,
}

impl Role {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Relay => "relay",
            Self::Index => "index",
        }
    }
}

/// One statement of a node about itself, as an event. Signed again later it says the same, for a while longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    kind: Kind,
    /// Without those of [`VALIDITY`].
    tags: Vec<Vec<String>>,
    content: String,
    /// Seconds.
    ttl: u64,
}

#[derive(Serialize)]
struct DescriptorContent<'a> {
    schema: &'static str,
    name: &'a str,
    roles: Vec<&'static str>,
    endpoints: &'a Endpoints,
    pricing: Pricing,
    policy_url: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    jurisdiction: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<&'a str>,
}

/// Nothing costs money.
#[derive(Serialize)]
struct Pricing {}

#[derive(Serialize)]
struct TopicServiceContent<'a> {
    schema: &'static str,
    topic: &'a str,
    role: &'static str,
    scope: &'static str,
}

impl Statement {
    /// The descriptor of a node. It belongs to no topic, so it stands in the global one (B-2).
    pub fn descriptor(profile: &Profile) -> Self {
        let roles: Vec<&'static str> = profile.roles.iter().map(|role| role.name()).collect();
        let jurisdiction = profile.operator.jurisdiction.as_deref();
        let policy_url = profile.policy_url();
        let mut tags = vec![tag(["d", DESCRIPTOR]), tag(["t", TopicId::global().as_str()])];
        tags.extend(roles.iter().map(|role| tag(["role", role])));
        tags.push(tag(["policy", &policy_url]));
        tags.extend(jurisdiction.map(|jurisdiction| tag(["jurisdiction", jurisdiction])));
        let content = DescriptorContent {
            schema: DESCRIPTOR_SCHEMA,
            name: &profile.name,
            roles,
            endpoints: &profile.endpoints,
            pricing: Pricing {},
            policy_url: &policy_url,
            jurisdiction,
            contact: profile.contact.as_deref(),
        };
        Self::new(Kind::NODE_DESCRIPTOR, tags, &content, DESCRIPTOR_TTL)
    }

    /// A topic that a node serves in a role.
    pub fn topic_service(topic: &TopicId, role: Role) -> Self {
        let (topic, role) = (topic.as_str(), role.name());
        let identifier = format!("{}{role}:{PUBLIC}", topic_service_prefix(topic));
        let tags = vec![tag(["d", &identifier]), tag(["t", topic]), tag(["role", role]), tag(["scope", PUBLIC])];
        let content = TopicServiceContent { schema: TOPIC_SERVICE_SCHEMA, topic, role, scope: PUBLIC };
        Self::new(Kind::TOPIC_SERVICE, tags, &content, TOPIC_SERVICE_TTL)
    }

    /// Takes back what a stored event says: a version that says the same, and ends soon. A deletion request would be kept for ever in
    /// the topic, and with it the topic's record (T-10).
    pub fn withdrawal(stored: &Event) -> Self {
        let tags = stored.tags.iter().filter(|tag| !is_validity(tag.name()));
        let tags = tags.map(|tag| tag.items().map(str::to_owned).collect()).collect();
        Self { kind: stored.kind, tags, content: stored.content.clone(), ttl: WITHDRAWN_TTL }
    }

    fn new(kind: Kind, mut tags: Vec<Vec<String>>, content: &impl Serialize, ttl: u64) -> Self {
        tags.extend([tag(["k", "kukuri"]), tag(["ver", "1"])]);
        // Plain data: writing it does not fail.
        Self { kind, tags, content: serde_json::to_string(content).unwrap_or_default(), ttl }
    }

    /// The `d` of its event.
    pub fn identifier(&self) -> &str {
        let mut tags = self.tags.iter().filter(|tag| tag.first().is_some_and(|name| name == "d"));
        tags.next().and_then(|tag| tag.get(1)).map_or("", String::as_str)
    }

    /// Whether an event says this, for whatever time.
    pub fn is_said_by(&self, event: &Event) -> bool {
        let said = event.tags.iter().filter(|tag| !is_validity(tag.name()));
        event.kind == self.kind
            && event.content == self.content
            && said.map(|tag| tag.items().collect::<Vec<_>>()).eq(self.tags.iter().map(|tag| as_texts(tag)))
    }

    /// Signs it.
    pub fn sign(&self, key: &Keypair, created_at: Timestamp) -> Event {
        let end = (created_at.0 + self.ttl).to_string();
        let validity = VALIDITY.map(|name| tag([name, &end]));
        let tags = self.tags.iter().chain(&validity).collect();
        UnsignedEvent { kind: self.kind, tags, content: self.content.clone() }.sign(key, created_at)
    }
}

impl Profile {
    /// Where people read what applies here.
    pub fn policy_url(&self) -> String {
        self.posting_policy.clone().unwrap_or_else(|| format!("{}/v1/policies/current", self.endpoints.http))
    }
}

/// The beginning of the `d` of a topic's services.
pub(crate) fn topic_service_prefix(topic: &str) -> String {
    format!("topic_service:{topic}:")
}

fn tag(items: [&str; 2]) -> Vec<String> {
    items.map(str::to_owned).into()
}

fn as_texts(tag: &[String]) -> Vec<&str> {
    tag.iter().map(String::as_str).collect()
}

fn is_validity(name: Option<&str>) -> bool {
    name.is_some_and(|name| VALIDITY.contains(&name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::{NOW, key, profile, topic};

    /// Reads the event with another library, which checks id and signature.
    fn read(event: &Event) -> nostr::event::Event {
        let read = nostr::event::Event::from_json(event.to_json()).unwrap();
        read.verify().unwrap();
        read
    }

    fn tags(event: &nostr::event::Event) -> Value {
        json!(event.tags.iter().map(|tag| tag.as_slice()).collect::<Vec<_>>())
    }

    #[test]
    fn descriptor_has_the_tags_and_the_content_of_the_kip() {
        // B-1, B-2
        let event = read(&Statement::descriptor(&profile()).sign(&key(), NOW));
        assert_eq!(event.kind.as_u16(), 39000);
        let end = (NOW.0 + 7 * 86_400).to_string();
        assert_eq!(
            tags(&event),
            json!([
                ["d", "descriptor"],
                ["t", "kukuri:global"],
                ["role", "bootstrap"],
                ["role", "relay"],
                ["policy", "https://node.example/v1/policies/current"],
                ["jurisdiction", "JP"],
                ["k", "kukuri"],
                ["ver", "1"],
                ["exp", end],
                ["expiration", end],
            ])
        );
        assert_eq!(
            serde_json::from_str::<Value>(&event.content).unwrap(),
            json!({
                "schema": "kukuri-node-desc-v1", "name": "お茶の間", "roles": ["bootstrap", "relay"],
                "endpoints": { "http": "https://node.example", "ws": "wss://node.example" }, "pricing": {},
                "policy_url": "https://node.example/v1/policies/current", "jurisdiction": "JP",
                "contact": "mailto:operator@node.example",
            })
        );
        let bare = Profile { contact: None, operator: crate::Operator::default(), ..profile() };
        let event = read(&Statement::descriptor(&bare).sign(&key(), NOW));
        assert!(!event.content.contains("contact") && !tags(&event).to_string().contains("jurisdiction"), "{event:?}");
    }

    #[test]
    fn topic_service_names_topic_role_and_scope() {
        // B-1
        let statement = Statement::topic_service(&topic(), Role::Index);
        let event = read(&statement.sign(&key(), NOW));
        let (topic, end) = (topic().to_string(), (NOW.0 + 48 * 3_600).to_string());
        let identifier = format!("topic_service:{topic}:index:public");
        assert_eq!((event.kind.as_u16(), statement.identifier()), (39001, identifier.as_str()));
        assert_eq!(
            tags(&event),
            json!([
                ["d", identifier],
                ["t", topic],
                ["role", "index"],
                ["scope", "public"],
                ["k", "kukuri"],
                ["ver", "1"],
                ["exp", end],
                ["expiration", end],
            ])
        );
        assert_eq!(
            serde_json::from_str::<Value>(&event.content).unwrap(),
            json!({ "schema": "kukuri-topic-service-v1", "topic": topic, "role": "index", "scope": "public" })
        );
    }

    #[test]
    fn event_says_a_statement_whenever_it_was_signed_and_another_one_never() {
        let statement = Statement::descriptor(&profile());
        assert!(statement.is_said_by(&statement.sign(&key(), NOW)));
        assert!(statement.is_said_by(&Statement::withdrawal(&statement.sign(&key(), NOW)).sign(&key(), NOW)));
        let renamed = Profile { name: "another".to_owned(), ..profile() };
        let searching = Profile { roles: vec![Role::Relay], ..profile() };
        for other in [renamed, searching] {
            assert!(!statement.is_said_by(&Statement::descriptor(&other).sign(&key(), NOW)), "{other:?}");
        }
    }
}
