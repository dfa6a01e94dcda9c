//! The policies of a node: an ordered list of checks, cheap ones first, that connections, reads and events have to pass.
//!
//! A policy is one file here and one line in [`Policies::new`]. It decides from memory (the configuration, or a snapshot
//! of its own that it swaps on change), never from a database. It refuses with a typed reason.
//!
//! - `auth`: clients that have to authenticate (W-7) · `rates`: how often clients may ask (W-4) · `deny`: authors, kinds and
//!   addresses that the operator keeps out · `filters`: what a filter may ask for (T-6, W-4) · `capacity`: what is taken in
//!   while the disk or the outbox consumers are short of room (P-6, O-9).

mod auth;
mod capacity;
mod deny;
mod filters;
pub(crate) mod rates;

use std::{net::IpAddr, sync::Arc};

use kukuri_domain::{Event, Filter, Millis, Origin, PublicKey, TopicId, Viewer, admission::Screened};

use crate::{
    backlog::Backlog,
    config::EngineConfig,
    disk::DiskWatch,
    live::LiveSubscription,
    refused::{ClientRefused, ConnectRefused, PublishRefused, ReadRefused},
    topics::Topics,
};
use rates::RatePolicy;

/// A client, as policies see it.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub ip: IpAddr,
    /// The keys it has authenticated as.
    pub keys: Arc<[PublicKey]>,
    /// When it connected.
    pub connected_at: Millis,
}

impl Client {
    /// The client as a reader.
    pub fn viewer(&self) -> Viewer {
        Viewer::Client(Arc::clone(&self.keys))
    }
}

/// Configuration and time, for every check.
pub struct Context<'c> {
    /// The configuration.
    pub config: &'c EngineConfig,
    /// The time.
    pub now: Millis,
    pub(crate) topics: &'c Topics,
}

impl Context<'_> {
    /// Whether everybody has this topic (S-6): the global one, and those that were opened by use.
    pub fn is_for_everybody(&self, topic: &TopicId) -> bool {
        topic.is_global() || self.topics.is_kept_by_use(topic)
    }

    /// Whether everybody has every topic of this node, enabled or not.
    pub fn are_all_topics_for_everybody(&self) -> bool {
        self.topics.are_all_for_everybody()
    }
}

/// The cost class of a request to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadKind {
    /// New and recent events: a REQ.
    Recent,
    /// History: a REQ with `until` or words, a COUNT, a NEG-OPEN.
    History,
}

/// A request to read.
pub struct ReadRequest<'r> {
    /// The client.
    pub client: &'r Client,
    /// Its cost class.
    pub kind: ReadKind,
    /// The filters; none for a message that continues a reconciliation (NIP-77).
    pub filters: &'r [Filter],
}

/// One check of a node's list. Each side defaults to letting everything pass.
pub trait Policy: Send + Sync + 'static {
    /// A connection from this address.
    fn check_connect(&self, _context: &Context<'_>, _ip: IpAddr) -> Result<(), ConnectRefused> {
        Ok(())
    }

    /// A client that is connected, after the configuration has changed.
    fn check_client(&self, _context: &Context<'_>, _client: &Client) -> Result<(), ClientRefused> {
        Ok(())
    }

    /// A client that has proven to own this key (NIP-42).
    fn check_auth(&self, _context: &Context<'_>, _key: &PublicKey) -> Result<(), PublishRefused> {
        Ok(())
    }

    /// A request to read.
    fn check_read(&self, _context: &Context<'_>, _request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        Ok(())
    }

    /// An event of a client, before its text is parsed.
    fn check_event_text(&self, _context: &Context<'_>, _client: &Client, _bytes: usize) -> Result<(), PublishRefused> {
        Ok(())
    }

    /// An event of any origin, parsed; nothing else is known of it yet.
    fn check_event(&self, _context: &Context<'_>, _event: &Event, _origin: &Origin) -> Result<(), PublishRefused> {
        Ok(())
    }

    /// An event of any origin that keeps the rules of the domain and whose id is new here (E-9). Its signature is verified
    /// afterwards. `client`: its sender, if that is a client.
    fn check_new_event(
        &self,
        _context: &Context<'_>,
        _screened: &Screened,
        _client: Option<&Client>,
    ) -> Result<(), PublishRefused> {
        Ok(())
    }

    /// A new event of a client, verified, before it is queued for the writer: the last check, for policies that count.
    fn check_admitted(&self, _context: &Context<'_>, _client: &Client, _event: &Event) -> Result<(), PublishRefused> {
        Ok(())
    }

    /// A live subscription, after something has changed. It is asked for all of them: its filters are copied only where they matter.
    fn check_live(
        &self,
        _context: &Context<'_>,
        _client: &Client,
        _live: &LiveSubscription,
    ) -> Result<(), ReadRefused> {
        Ok(())
    }
}

/// The list.
pub struct Policies {
    list: Vec<Box<dyn Policy>>,
}

impl Policies {
    pub(crate) fn new(
        rates: &Arc<RatePolicy>,
        topics: &Arc<Topics>,
        disk: &Arc<DiskWatch>,
        backlog: &Arc<Backlog>,
        others: Vec<Box<dyn Policy>>,
    ) -> Self {
        let mut list: Vec<Box<dyn Policy>> = vec![
            Box::new(deny::DenyPolicy),
            Box::new(auth::AuthPolicy),
            Box::new(Arc::clone(rates)),
            Box::new(filters::FilterPolicy),
            Box::new(capacity::CapacityPolicy {
                topics: Arc::clone(topics),
                disk: Arc::clone(disk),
                backlog: Arc::clone(backlog),
            }),
        ];
        list.extend(others);
        Self { list }
    }

    /// Asks every policy, in order, until one refuses.
    pub(crate) fn ask<E>(&self, ask: impl FnMut(&dyn Policy) -> Result<(), E>) -> Result<(), E> {
        self.list.iter().map(AsRef::as_ref).try_for_each(ask)
    }
}
