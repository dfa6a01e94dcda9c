//! Which events may come in at all (T, E, X-1): what can be seen in the event and in where it came from.
//!
//! An event passes through three types: [`Event`] is well-formed, [`Screened`] has passed every cheap check,
//! [`Admitted`] is verified too and may be given to a store.

use std::sync::Arc;

use crate::{
    event::{Event, decimal},
    id::PublicKey,
    json::Encoded,
    kind::{Kind, KindClass},
    limits::Limits,
    refusal::Refusal,
    time::Millis,
    topic::{TopicId, TopicRules, TopicsMode},
    vanish::RelayUrls,
    verify::{Verified, encode_true},
};

/// Where an event came from. Origins differ in this value, not in their way through the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A client of this relay, with the keys it has authenticated as.
    Client {
        /// None for a stranger.
        authenticated: Arc<[PublicKey]>,
    },
    /// A peer, over a gossip topic.
    Gossip {
        /// The peer's key.
        peer: [u8; 32],
        /// The topic it came over.
        topic: TopicId,
    },
    /// A peer, asked for what was missed.
    Sync {
        /// The peer's key.
        peer: [u8; 32],
    },
    /// The operator, from a file.
    Import,
}

/// The kind of an [`Origin`], as a store remembers it.
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
}

impl Origin {
    /// A client that has not authenticated.
    pub fn stranger() -> Self {
        Self::Client { authenticated: Arc::default() }
    }

    /// Its kind.
    pub fn source(&self) -> Source {
        match self {
            Self::Client { .. } => Source::Client,
            Self::Gossip { .. } => Source::Gossip,
            Self::Sync { .. } => Source::Sync,
            Self::Import => Source::Import,
        }
    }
}

/// What this node admits: configuration.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Sizes and times.
    pub limits: Limits,
    /// How topics are read.
    pub topics: TopicRules,
    /// What this relay is called.
    pub relay_urls: RelayUrls,
}

/// An event that has passed every check that costs little; its signature comes next.
#[derive(Clone, Debug)]
pub struct Screened {
    event: Event,
    topics: Box<[TopicId]>,
    origin: Origin,
    vanishes: bool,
    event_bytes: usize,
    /// Once it was found true to its id.
    encoded: Option<Encoded>,
}

/// An event that may be decided on: verified, bound to its topics. What a store takes in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admitted(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    verified: Verified,
    topics: Box<[TopicId]>,
    source: Source,
    vanishes: bool,
}

impl Admission {
    /// From a text to a verified event, in the order of what the steps cost (E-9).
    pub fn admit(&self, json: &[u8], origin: Origin, now: Millis) -> Result<Admitted, Refusal> {
        self.limits.check_text(json)?;
        self.screen(Event::from_json(json)?, origin, now)?.verify()
    }

    /// Every check but the signature.
    pub fn screen(&self, event: Event, origin: Origin, now: Millis) -> Result<Screened, Refusal> {
        self.limits.check(&event, now)?;
        check_kind(event.kind)?;
        let topics = self.topics.bind(&event)?;
        self.limits.check_topics(topics.len())?;
        check_form(&event)?;
        if event.is_expired(now) {
            return Err(Refusal::Expired);
        }
        self.check_origin(&event, &topics, &origin)?;
        let vanishes = event.kind == Kind::VANISH && self.relay_urls.are_named_by(&event)?;
        Ok(Screened { event, topics, origin, vanishes, event_bytes: self.limits.event_bytes, encoded: None })
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
            Origin::Import => Ok(()),
        }
    }
}

/// Kinds that are never taken in (E-6, E-10).
pub(crate) fn check_kind(kind: Kind) -> Result<(), Refusal> {
    if kind.is_p2p_only() {
        return Err(Refusal::P2pOnly);
    }
    if kind == Kind::AUTHENTICATION {
        return Err(Refusal::Authentication);
    }
    Ok(())
}

/// Tags that must be there (E-4, E-7).
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

/// A protected event comes only from its author (E-10).
fn check_protection(event: &Event, authenticated: &[PublicKey]) -> Result<(), Refusal> {
    if !event.is_protected() || authenticated.contains(&event.pubkey) {
        Ok(())
    } else if authenticated.is_empty() {
        Err(Refusal::ProtectedUnauthenticated)
    } else {
        Err(Refusal::Protected)
    }
}

/// Protected and private events do not pass between nodes (E-10).
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

    /// The topics it is bound to.
    pub fn topics(&self) -> &[TopicId] {
        &self.topics
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        self.origin.source()
    }

    /// A client's event needs every topic of it enabled, a peer's one of them; a request needs none (T-4, T-8, T-9).
    pub fn check_enabled(&self, is_enabled: impl Fn(&TopicId) -> bool) -> Result<(), Refusal> {
        let has_enough = match self.source() {
            Source::Client => self.topics.iter().all(is_enabled),
            Source::Gossip | Source::Sync => self.topics.iter().any(is_enabled),
            Source::Import => true,
        };
        if has_enough || self.event.kind.is_request() { Ok(()) } else { Err(Refusal::TopicNotEnabled) }
    }

    /// Whether what would be stored is small enough and the id true: enough to answer for an event whose id is known, at a
    /// fraction of a signature's cost.
    pub fn check_id(&mut self) -> Result<(), Refusal> {
        if self.encoded.is_none() {
            self.encoded = Some(encode_true(self.event_bytes, &self.event)?);
        }
        Ok(())
    }

    /// The same, then the signature, the one step that costs.
    pub fn verify(mut self) -> Result<Admitted, Refusal> {
        self.check_id()?;
        let Self { event, topics, origin, vanishes, encoded, .. } = self;
        let encoded = encoded.ok_or(Refusal::WrongId)?;
        Ok(Admitted::new(Verified::check_signature(event, encoded)?, topics, &origin, vanishes))
    }

    /// Takes id and signature at their word: see [`Verified::trusted`].
    pub fn trusted(self) -> Admitted {
        Admitted::new(Verified::trusted(self.event), self.topics, &self.origin, self.vanishes)
    }
}

impl Admitted {
    fn new(verified: Verified, topics: Box<[TopicId]>, origin: &Origin, vanishes: bool) -> Self {
        Self(Arc::new(Parts { verified, topics, source: origin.source(), vanishes }))
    }

    /// What a store was given, wrote down and reads back: with what was found out about it then, taken at its word.
    pub fn restored(event: Event, topics: Box<[TopicId]>, source: Source, vanishes: bool) -> Self {
        Self(Arc::new(Parts { verified: Verified::trusted(event), topics, source, vanishes }))
    }

    /// The event.
    pub fn event(&self) -> &Event {
        self.0.verified.event()
    }

    /// Its JSON as it is kept and served.
    pub fn json(&self) -> &bytes::Bytes {
        self.0.verified.json()
    }

    /// The topics it is bound to, at least one.
    pub fn topics(&self) -> &[TopicId] {
        &self.0.topics
    }

    /// Where it came from.
    pub fn source(&self) -> Source {
        self.0.source
    }

    /// Whether it is a vanish request meant for this relay (D-12).
    pub fn vanishes(&self) -> bool {
        self.0.vanishes
    }
}
