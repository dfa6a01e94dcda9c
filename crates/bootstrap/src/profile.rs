//! The profile of a node: what its configuration says about it.

use kukuri_domain::{Millis, PublicKey, retention::Retention};
use serde::Serialize;

use crate::statement::Role;

/// The profile of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The key that signs for the node.
    pub node: PublicKey,
    /// Whether the node signs and publishes events about itself.
    pub is_published: bool,
    /// The name.
    pub name: String,
    /// The purpose of the node.
    pub description: String,
    /// How to reach the operator.
    pub contact: Option<String>,
    /// The operator of the node.
    pub operator: Operator,
    /// The roles in which it serves its topics.
    pub roles: Vec<Role>,
    /// The parts of the node that are switched on, by name.
    pub capabilities: Vec<&'static str>,
    /// Where it is reached.
    pub endpoints: Endpoints,
    /// A page that says what may be posted.
    pub posting_policy: Option<String>,
    /// How long it keeps events.
    pub retention: Retention,
    /// Whether it will be shut down.
    pub shutdown: Shutdown,
    /// Other nodes that its lists name.
    pub known: Vec<PublicKey>,
    /// The readers that its lists are for.
    pub access: ListAccess,
}

impl Profile {
    /// The profile of a node that says nothing but where it is.
    pub fn new(node: PublicKey, endpoints: Endpoints) -> Self {
        Self {
            node,
            is_published: true,
            name: String::new(),
            description: String::new(),
            contact: None,
            operator: Operator::default(),
            roles: vec![Role::Bootstrap, Role::Relay],
            capabilities: Vec::new(),
            endpoints,
            posting_policy: None,
            retention: Retention::default(),
            shutdown: Shutdown::default(),
            known: Vec::new(),
            access: ListAccess::Open,
        }
    }
}

/// The operator of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operator {
    /// A person or an organisation.
    pub name: Option<String>,
    /// Their public key.
    pub pubkey: Option<PublicKey>,
    /// The country whose law applies.
    pub jurisdiction: Option<String>,
    /// Where abuse is reported.
    pub abuse_contact: Option<String>,
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Endpoints {
    /// The base of its HTTP API.
    pub http: String,
    /// Its relay.
    pub ws: String,
    /// Its gossip endpoint, as peers name it. `None`: peers that it does not know can't reach it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p2p: Option<String>,
}

/// Whether a node goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownStatus {
    /// It does.
    #[default]
    Active,
    /// It will be shut down.
    WindingDown,
    /// It takes in nothing new, and will be gone.
    Retired,
}

impl ShutdownStatus {
    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::WindingDown => "winding_down",
            Self::Retired => "retired",
        }
    }
}

/// The notice that a node will be shut down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shutdown {
    /// Whether it goes on.
    pub status: ShutdownStatus,
    /// When it ends, in unix seconds.
    pub effective_at: Option<u64>,
    /// A text for people.
    pub message: Option<String>,
    /// Nodes to go to.
    pub alternatives: Vec<String>,
}

/// The readers that the lists of nodes and of services are for (B-5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListAccess {
    /// Everybody.
    #[default]
    Open,
    /// From then on, members only. A request has no connection that is older, so there is no grace.
    MembersFrom(Millis),
}

impl ListAccess {
    /// Whether only members may read the lists now.
    pub fn is_for_members(self, now: Millis) -> bool {
        matches!(self, Self::MembersFrom(from) if from <= now)
    }
}
