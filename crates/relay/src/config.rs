//! What an operator sets for the relay. All of it can change while the relay runs.

use std::{collections::HashSet, net::IpAddr, num::NonZeroU32, ops::RangeInclusive, path::PathBuf, time::Duration};

use ipnet::IpNet;
use kukuri_domain::{Admission, Event, Kind, Millis, PublicKey, retention::Retention};

/// The relay's configuration.
#[derive(Clone, Debug, Default)]
pub struct RelayConfig {
    /// What is admitted: limits, topics, what this relay is called.
    pub admission: Admission,
    /// How it presents itself (NIP-11).
    pub info: Info,
    /// How much a client may ask for.
    pub requests: RequestLimits,
    /// Whether a topic is enabled by its first use (T-8).
    pub topics: TopicIntake,
    /// How long things are kept.
    pub retention: Retention,
    /// Whether clients have to say who they are (W-7).
    pub auth: Auth,
    /// How fast a client may ask. `None`: as fast as it likes.
    pub rates: Option<Rates>,
    /// Who and what is kept out.
    pub deny: Deny,
    /// A reverse proxy that says who the client is.
    pub proxy: Option<Proxy>,
    /// The disk whose free space is watched.
    pub disk: Option<Disk>,
    /// How far those may be behind who follow the outbox.
    pub backlog: Backlog,
}

/// How the relay presents itself.
#[derive(Clone, Debug)]
pub struct Info {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// How to reach its operator.
    pub contact: Option<String>,
    /// The operator's key.
    pub pubkey: Option<PublicKey>,
    /// The relay's own key.
    pub own_key: Option<PublicKey>,
    /// The URL of a picture.
    pub icon: Option<String>,
    /// The languages spoken here.
    pub language_tags: Vec<String>,
    /// The URL of the rules for posting.
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
    /// Events of one connection that wait for their answer; more are not read until then.
    pub in_flight: usize,
    /// A connection that is silent for this long is asked, and closed if it stays silent as long again.
    pub silence: Duration,
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
            in_flight: 1_024,
            silence: Duration::from_secs(60),
            sync_sessions: 4,
            sync_events: 200_000,
        }
    }
}

/// How topics become enabled.
#[derive(Clone, Debug)]
pub enum TopicIntake {
    /// By an operator only.
    Closed,
    /// By their first use.
    Open {
        /// As long as fewer than this are enabled.
        most: usize,
        /// Closed again after this long without an event.
        idle: Duration,
        /// How many one address, or one author, may open in an hour, if rates are limited.
        per_hour: NonZeroU32,
    },
}

impl Default for TopicIntake {
    fn default() -> Self {
        // Of a constant: were it zero, this would not compile.
        const PER_HOUR: NonZeroU32 = NonZeroU32::new(20).unwrap();
        Self::Open { most: 1_000, idle: Duration::from_secs(7 * 24 * 3_600), per_hour: PER_HOUR }
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

/// How fast one address, and one authenticated key, may ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Connections that one address may have at once.
    pub connections_per_ip: usize,
    /// Connections that one address may make.
    pub new_connections: Rate,
    /// Events.
    pub events: Rate,
    /// REQs.
    pub requests: Rate,
    /// REQs that page back (`until`), COUNT and NEG-OPEN.
    pub backfill: Rate,
}

/// So many a minute, and so many at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// A minute.
    pub per_minute: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

impl Rate {
    /// A rate; what is zero is taken for one.
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
        }
    }
}

/// Who and what is kept out.
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

/// A reverse proxy in front of this node.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The header in which it names the client, in lower case.
    pub header: String,
    /// From which addresses that header is believed.
    pub trusted: Vec<IpNet>,
}

impl Proxy {
    /// Whether what comes from there comes through the proxy.
    pub fn is_at(&self, ip: IpAddr) -> bool {
        self.trusted.iter().any(|net| net.contains(&ip))
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
    /// Below this nothing but requests is taken in.
    pub full: u64,
}

/// The backlogs, in rows of the outbox, at which less is taken in (O-9).
#[derive(Clone, Debug)]
pub struct Backlog {
    /// From here on no history is taken in.
    pub live_only: u64,
    /// From here on topics of the lowest priority refuse.
    pub shedding: u64,
    /// From here on clients may publish only slowly.
    pub cutting: u64,
}

impl Default for Backlog {
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
        assert_eq!(Auth::Off.deadline(Millis(0)), None);
        assert!(!Auth::Off.is_demanded(Millis(0), Millis(1)));
    }
}
