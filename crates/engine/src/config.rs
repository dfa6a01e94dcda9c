//! The engine's configuration. All of it can change while the engine runs.

use std::{collections::HashSet, net::IpAddr, num::NonZeroU32, ops::RangeInclusive, path::PathBuf, time::Duration};

use ipnet::IpNet;
use kukuri_domain::{
    Admission, Event, Kind, Millis, PublicKey,
    capacity::{Capacity, PermanentShare},
    retention::Retention,
};

/// The engine's configuration.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Rules of admission: limits, topics, the URLs of this relay.
    pub admission: Admission,
    /// How much a client may ask for.
    pub requests: RequestLimits,
    /// Whether a topic is enabled by its first use (T-8).
    pub topics: TopicIntake,
    /// How long events are kept.
    pub retention: Retention,
    /// The capacity that the store was opened with.
    pub capacity: Capacity,
    /// How much of it events that are never purged may fill, as the store was opened with.
    pub permanent: PermanentShare,
    /// Whether clients have to authenticate (W-7).
    pub auth: Auth,
    /// How often a client may ask. `None`: no limit.
    pub rates: Option<Rates>,
    /// Authors, kinds and addresses that are kept out.
    pub deny: Deny,
    /// The disk whose free space is watched.
    pub disk: Option<Disk>,
    /// How far outbox consumers may be behind.
    pub backlog: BacklogLimits,
}

/// How much one client may ask for (W-4).
#[derive(Clone, Debug)]
pub struct RequestLimits {
    /// Connections of all clients together.
    pub connections: usize,
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Filters in a request.
    pub filters: usize,
    /// Values in the lists of one filter.
    pub filter_values: usize,
    /// Subscriptions of one connection.
    pub subscriptions: usize,
    /// Stored events per filter; more is clamped.
    pub limit: usize,
    /// Bytes of JSON that one request is answered with; more is left out, as by a limit.
    pub answer_bytes: usize,
    /// Rows that one query may look at, over all its filters (Y-2).
    pub query_rows: usize,
    /// Time that one query may take, over all its filters (Y-2).
    pub query_time: Duration,
    /// Costly queries that run at a time, and as many searches (Y-1). `None`: one for each core.
    pub costly_queries: Option<usize>,
    /// Filters of one REQ that may search.
    pub search_filters: usize,
    /// Bytes of all answers and live events that wait to be read; an address may hold a part of what is free (Y-2).
    pub answer_memory: usize,
    /// Events of one connection that wait for their answer; more are not read until then.
    pub in_flight: usize,
    /// A client that sends nothing for this long is pinged, and closed after as long again.
    pub idle: Duration,
    /// Live filters of one address, if rates are limited; one with many values counts as several (Y-3).
    pub live_filters_per_address: usize,
    /// Live filters of all clients together.
    pub live_filters: usize,
    /// Reconciliations (NIP-77) of one connection.
    pub sync_sessions: usize,
    /// Events one reconciliation may cover.
    pub sync_events: usize,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            message_bytes: 512 * 1024,
            filters: 20,
            filter_values: 2_000,
            subscriptions: 64,
            limit: 500,
            answer_bytes: 8 << 20,
            query_rows: 1_000_000,
            query_time: Duration::from_secs(10),
            costly_queries: None,
            search_filters: 4,
            answer_memory: 128 << 20,
            in_flight: 1_024,
            idle: Duration::from_secs(60),
            live_filters_per_address: 5_000,
            live_filters: 200_000,
            sync_sessions: 4,
            sync_events: 200_000,
        }
    }
}

impl RequestLimits {
    /// Costly queries that run at a time.
    pub fn max_costly_queries(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        self.costly_queries.unwrap_or_else(cores).max(1)
    }
}

/// How topics become enabled (T-8).
#[derive(Clone, Debug)]
pub enum TopicIntake {
    /// By an operator only.
    Closed,
    /// By their first use.
    Open {
        /// Topics that may be enabled at a time.
        max: usize,
        /// Time without an event after which a topic is closed again.
        idle: Duration,
        /// Topics that one address, or one author, may open in an hour, if rates are limited.
        opened_per_hour: NonZeroU32,
    },
}

impl TopicIntake {
    /// The default of `topics.max`.
    pub const DEFAULT_MAX: usize = 1_000;
    /// The default of `topics.idle`.
    pub const DEFAULT_IDLE: Duration = Duration::from_secs(7 * 24 * 3_600);
    /// The default of `topics.opened_per_hour`.
    pub const DEFAULT_OPENED_PER_HOUR: NonZeroU32 = NonZeroU32::new(20).unwrap();
}

impl Default for TopicIntake {
    fn default() -> Self {
        Self::Open { max: Self::DEFAULT_MAX, idle: Self::DEFAULT_IDLE, opened_per_hour: Self::DEFAULT_OPENED_PER_HOUR }
    }
}

/// Whether clients have to authenticate (W-7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// They may.
    #[default]
    Off,
    /// They must.
    Required {
        /// From then on. Connections made before have until the end of the grace.
        enforce_at: Millis,
        /// How long older connections may stay.
        grace: Duration,
        /// How long a new connection may take.
        timeout: Duration,
    },
}

impl Auth {
    /// Whether a connection made then is served only if it has authenticated.
    pub fn is_demanded(&self, connected_at: Millis, now: Millis) -> bool {
        match *self {
            Self::Off => false,
            Self::Required { enforce_at, grace, .. } => connected_at >= enforce_at || now >= enforce_at.after(grace),
        }
    }

    /// Enforcement as a connection made before it sees it; `None` for a connection made later, and if nobody has to authenticate.
    pub fn transition(&self, connected_at: Millis) -> Option<Transition> {
        match *self {
            Self::Required { enforce_at, grace, .. } if connected_at < enforce_at => {
                Some(Transition { begins_at: enforce_at, ends_at: enforce_at.after(grace) })
            }
            _ => None,
        }
    }

    /// When a connection made then is closed if it has not authenticated.
    pub fn deadline(&self, connected_at: Millis) -> Option<Millis> {
        match *self {
            Self::Off => None,
            Self::Required { enforce_at, timeout, .. } if connected_at >= enforce_at => {
                Some(connected_at.after(timeout))
            }
            Self::Required { enforce_at, grace, .. } => Some(enforce_at.after(grace)),
        }
    }
}

/// The grace of connections that were made before enforcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Such a connection is told to authenticate.
    pub begins_at: Millis,
    /// It is judged like a new one, and closed if it has not authenticated.
    pub ends_at: Millis,
}

/// How often one address, and one authenticated key, may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Connections that one address may have at once.
    pub connections_per_ip: usize,
    /// Connections that one address may make.
    pub new_connections: Rate,
    /// Events.
    pub events: Rate,
    /// REQ, COUNT and NEG messages, and what can't be read.
    pub requests: Rate,
    /// REQs that page back (`until`), COUNT and NEG-OPEN, besides their count as requests.
    pub backfill: Rate,
    /// Deletion and vanish requests (kinds 5, 62).
    pub deletions: Rate,
    /// New keys of replaceable and addressable events.
    pub new_keys: Rate,
    /// Attempts to sign in over HTTP.
    pub sign_ins: Rate,
}

/// A rate: a number per minute, and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Allowed per minute.
    pub per_minute: NonZeroU32,
    /// Allowed at once after a pause.
    pub burst: NonZeroU32,
}

impl Rate {
    /// A rate; zero is taken for one.
    pub fn new(per_minute: u32, burst: u32) -> Self {
        let at_least_one = |number| NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN);
        Self { per_minute: at_least_one(per_minute), burst: at_least_one(burst) }
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            connections_per_ip: 50,
            new_connections: Rate::new(120, 120),
            events: Rate::new(600, 300),
            requests: Rate::new(600, 120),
            backfill: Rate::new(120, 60),
            deletions: Rate::new(60, 60),
            new_keys: Rate::new(120, 120),
            sign_ins: Rate::new(20, 20),
        }
    }
}

/// Authors, kinds and addresses that are kept out.
#[derive(Clone, Debug, Default)]
pub struct Deny {
    /// Authors whose events are refused, and who can't authenticate.
    pub pubkeys: HashSet<PublicKey>,
    /// Kinds that are refused.
    pub kinds: Vec<RangeInclusive<u16>>,
    /// Addresses that can't connect.
    pub ips: Vec<IpNet>,
}

impl Deny {
    /// Whether an event is kept out by its author or its kind. Nobody is denied to vanish (NIP-62).
    pub fn covers_event(&self, event: &Event) -> bool {
        let Kind(kind) = event.kind;
        event.kind != Kind::VANISH
            && (self.pubkeys.contains(&event.pubkey) || self.kinds.iter().any(|kinds| kinds.contains(&kind)))
    }

    /// Whether an address is kept out.
    pub fn covers_ip(&self, ip: IpAddr) -> bool {
        self.ips.iter().any(|net| net.contains(&ip))
    }
}

/// A disk, and the free bytes below which the stages of P-6 begin.
#[derive(Clone, Debug)]
pub struct Disk {
    /// A directory on it.
    pub path: PathBuf,
    /// Below this no history is taken in.
    pub live_only: u64,
    /// Below this topics of the lowest priority refuse.
    pub shedding: u64,
    /// Below this nothing but requests of authors with another event here is taken in.
    pub full: u64,
}

/// The backlogs, in outbox rows, from which less is taken in (O-9).
#[derive(Clone, Debug)]
pub struct BacklogLimits {
    /// From here on no history is taken in.
    pub live_only: u64,
    /// From here on topics of the lowest priority refuse.
    pub shedding: u64,
    /// From here on clients may publish only slowly.
    pub cutting: u64,
}

impl Default for BacklogLimits {
    fn default() -> Self {
        Self { live_only: 100_000, shedding: 500_000, cutting: 2_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_connections_have_a_time_out_and_old_ones_a_grace() {
        // W-7
        let auth = Auth::Required {
            enforce_at: Millis(100_000),
            grace: Duration::from_secs(300),
            timeout: Duration::from_secs(10),
        };
        for (connected_at, now, demanded, deadline, why) in [
            (100_000, 100_000, true, 110_000, "a new connection"),
            (99_999, 100_000, false, 400_000, "an old one, within the grace"),
            (99_999, 400_000, true, 400_000, "an old one, after it"),
            (0, 50_000, false, 400_000, "before it begins"),
        ] {
            assert_eq!(auth.is_demanded(Millis(connected_at), Millis(now)), demanded, "{why}");
            assert_eq!(auth.deadline(Millis(connected_at)), Some(Millis(deadline)), "{why}");
        }
        let grace = Transition { begins_at: Millis(100_000), ends_at: Millis(400_000) };
        assert_eq!(auth.transition(Millis(99_999)), Some(grace), "an old connection");
        assert_eq!(auth.transition(Millis(100_000)), None, "a new one");
        assert_eq!((Auth::Off.deadline(Millis(0)), Auth::Off.transition(Millis(0))), (None, None));
        assert!(!Auth::Off.is_demanded(Millis(0), Millis(1)));
    }
}
