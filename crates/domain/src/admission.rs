//! Admission of events (T, E, X-1): the checks that need only the event and its origin.
//!
//! An event passes through three types: [`Event`] is well-formed, [`Screened`] has passed every cheap check,
//! [`Admitted`] is also verified and may be given to a store.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    event::{Event, decimal},
    id::PublicKey,
    json::Encoded,
    kind::{Kind, KindClass},
    limits::{Limit, Limits, within},
    refusal::Refusal,
    relay_urls::RelayUrls,
    time::Millis,
    topic::{TopicId, TopicRules, TopicsMode},
    verify::{check_signature, encode_true},
};

/// The origin of an event. Events of all origins take the same path through the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client of this relay.
    Client {
        /// The keys of its NIP-42 authentication; empty without one.
        authenticated: Arc<[PublicKey]>,
    },
    /// A peer, over a gossip topic.
    Gossip {
        /// The peer's key.
        peer: [u8; 32],
        /// The gossip topic of the message.
        topic: TopicId,
    },
    /// A peer, through catch-up.
    Sync {
        /// The peer's key.
        peer: [u8; 32],
    },
    /// The operator, from a file.
    Import,
    /// This node itself: events that it signs (B-2).
    Node,
}

/// The kind of an [`Origin`], as a store records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A client of this relay.
    Client,
    /// A gossip topic.
    Gossip,
    /// Catch-up with a peer.
    Sync,
    /// A file.
    Import,
    /// This node itself.
    Node,
}

impl Origin {
    /// A client that has not authenticated.
    pub fn unauthenticated_client() -> Self {
        Self::Client { authenticated: Arc::default() }
    }

    /// The kind of this origin.
    pub fn source(&self) -> Source {
        match self {
            Self::Client { .. } => Source::Client,
            Self::Gossip { .. } => Source::Gossip,
            Self::Sync { .. } => Source::Sync,
            Self::Import => Source::Import,
            Self::Node => Source::Node,
        }
    }
}

/// The configuration of admission.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Limits on sizes and times.
    pub limits: Limits,
    /// Rules for reading topics.
    pub topics: TopicRules,
    /// The URLs of this relay.
    pub relay_urls: RelayUrls,
}

/// An event that has passed every cheap check, but not that of the signature.
#[derive(Clone, Debug)]
pub struct Screened {
    event: Event,
    topics: Box<[TopicId]>,
    origin: Origin,
    vanishes: bool,
    event_bytes: usize,
    /// The encoded event, once the id is checked.
    encoded: Option<Encoded>,
}

/// A verified event, bound to its topics: the input of a store's decision. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admitted(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    event: Event,
    json: Bytes,
    topics: Box<[TopicId]>,
    source: Source,
    vanishes: bool,
}

impl Admission {
    /// Parses, screens and verifies, cheap steps first (E-9).
    pub fn admit(&self, json: &[u8], origin: Origin, now: Millis) -> Result<Admitted, Refusal> {
        self.limits.check_text(json)?;
        self.screen(Event::from_json(json)?, origin, now)?.verify()
    }

    /// Runs every check except those of encoded size, id and signature.
    pub fn screen(&self, event: Event, origin: Origin, now: Millis) -> Result<Screened, Refusal> {
        self.limits.check(&event, now)?;
        check_kind(event.kind)?;
        let topics = self.bind(&event, &origin)?;
        within(Limit::TopicsPerEvent, topics.len(), self.limits.topics_per_event)?;
        check_form(&event)?;
        if event.is_expired(now) {
            return Err(Refusal::Expired);
        }
        self.check_origin(&event, &topics, &origin)?;
        let vanishes = event.kind == Kind::VANISH && self.relay_urls.are_named_by(&event)?;
        Ok(Screened { event, topics, origin, vanishes, event_bytes: self.limits.event_bytes, encoded: None })
    }

    /// The topics that an event names. A request of another node or of the operator needs none (T-9).
    fn bind(&self, event: &Event, origin: &Origin) -> Result<Box<[TopicId]>, Refusal> {
        let needs_none = event.kind.is_request() && matches!(origin, Origin::Sync { .. } | Origin::Import);
        match self.topics.bind(event) {
            Err(Refusal::MissingTopic) if needs_none => Ok([TopicId::global()].into()),
            bound => bound,
        }
    }

    fn check_origin(&self, event: &Event, topics: &[TopicId], origin: &Origin) -> Result<(), Refusal> {
        match origin {
            Origin::Client { authenticated } => check_protection(event, authenticated),
            Origin::Gossip { topic, .. } => {
                check_between_nodes(event)?;
                let carries_all = self.topics.mode == TopicsMode::Global && *topic == TopicId::global();
                if carries_all || topics.contains(topic) { Ok(()) } else { Err(Refusal::WrongTopic) }
            }
            Origin::Sync { .. } => check_between_nodes(event),
            Origin::Import | Origin::Node => Ok(()),
        }
    }
}

/// Refuses kinds that are never admitted (E-6, E-10).
pub(crate) fn check_kind(kind: Kind) -> Result<(), Refusal> {
    if kind.is_p2p_only() {
        return Err(Refusal::P2pOnly);
    }
    if kind == Kind::AUTHENTICATION {
        return Err(Refusal::Authentication);
    }
    Ok(())
}

/// Checks required tags (E-4, E-7).
fn check_form(event: &Event) -> Result<(), Refusal> {
    if event.kind.class() == KindClass::Addressable && event.identifier().is_none() {
        return Err(Refusal::MissingIdentifier);
    }
    let is_scoped = event.tags.values("scope").any(|scope| scope != "public");
    let is_epoch = |value: &str| decimal(value).is_some_and(|epoch| epoch > 0);
    if is_scoped && !event.tags.values("epoch").any(is_epoch) {
        return Err(Refusal::MissingEpoch);
    }
    Ok(())
}

/// Accepts a protected event only from its author (E-10).
fn check_protection(event: &Event, authenticated: &[PublicKey]) -> Result<(), Refusal> {
    if !event.is_protected() || authenticated.contains(&event.pubkey) {
        Ok(())
    } else if authenticated.is_empty() {
        Err(Refusal::ProtectedUnauthenticated)
    } else {
        Err(Refusal::Protected)
    }
}

/// Refuses protected and private events from other nodes (E-10).
pub(crate) fn check_between_nodes(event: &Event) -> Result<(), Refusal> {
    if event.is_protected() {
        return Err(Refusal::Protected);
    }
    if event.kind.is_private() {
        return Err(Refusal::PrivateBetweenNodes);
    }
    Ok(())
}

impl Screened {
    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// The topics the event names, or [`TopicId::global`] if it names none.
    pub fn topics(&self) -> &[TopicId] {
        &self.topics
    }

    /// The kind of its origin.
    pub fn source(&self) -> Source {
        self.origin.source()
    }

    /// The origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Checks that enough topics of the event are enabled: all for a client's event, one for a peer's event, none for a
    /// request, an import or the node's own event (T-4, T-8, B-2). A client's deletion request needs one topic that is
    /// enabled or holds events (T-9).
    pub fn check_enabled(
        &self,
        is_enabled: impl Fn(&TopicId) -> bool,
        holds_events: impl Fn(&TopicId) -> bool,
    ) -> Result<(), Refusal> {
        let is_request = self.event.kind.is_request();
        let has_enough = match self.source() {
            Source::Client if self.event.kind == Kind::DELETION => {
                self.topics.iter().any(|topic| is_enabled(topic) || holds_events(topic))
            }
            Source::Client => is_request || self.topics.iter().all(is_enabled),
            Source::Gossip | Source::Sync => is_request || self.topics.iter().any(is_enabled),
            Source::Import | Source::Node => true,
        };
        if has_enough { Ok(()) } else { Err(Refusal::TopicNotEnabled) }
    }

    /// Whether the event makes its topics known: any stored event but a request, which is bound to known topics only
    /// (T-4, T-9).
    pub fn makes_topics_known(&self) -> bool {
        !self.event.kind.is_request() && self.event.kind.class() != KindClass::Ephemeral
    }

    /// Checks the encoded size and the id: enough to answer an event whose id is known, at a fraction of the cost of a
    /// signature check.
    pub fn check_id(&mut self) -> Result<(), Refusal> {
        if self.encoded.is_none() {
            self.encoded = Some(encode_true(self.event_bytes, &self.event)?);
        }
        Ok(())
    }

    /// Checks the id, then the signature, the one expensive step.
    pub fn verify(mut self) -> Result<Admitted, Refusal> {
        self.check_id()?;
        let Self { event, topics, origin, vanishes, encoded, .. } = self;
        let json = encoded.ok_or(Refusal::WrongId)?.into_json();
        check_signature(&event)?;
        Ok(Admitted(Arc::new(Parts { event, json, topics, source: origin.source(), vanishes })))
    }

    /// Skips the checks of id and signature: for tests and benchmarks.
    pub fn admit_unchecked(self) -> Admitted {
        Admitted::restored(self.event, self.topics, self.origin.source(), self.vanishes)
    }
}

impl Admitted {
    /// Restores an admitted event that a store reads back, without checking it again.
    pub fn restored(event: Event, topics: Box<[TopicId]>, source: Source, vanishes: bool) -> Self {
        let json = event.to_json();
        Self(Arc::new(Parts { event, json, topics, source, vanishes }))
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.0.event
    }

    /// The JSON as stored and served.
    pub fn json(&self) -> &Bytes {
        &self.0.json
    }

    /// The topics the event names, at least one: [`TopicId::global`] if it names none. [`topic::bound`](crate::topic::bound)
    /// tells which of them a request is bound to (T-9).
    pub fn topics(&self) -> &[TopicId] {
        &self.0.topics
    }

    /// The kind of its origin.
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// Whether the event is a vanish request for this relay (D-12).
    pub fn vanishes(&self) -> bool {
        self.0.vanishes
    }
}
