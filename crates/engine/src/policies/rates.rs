//! How often a client may ask: counted by the networks of its address and, once it has authenticated, by each of its keys
//! (W-4, Y-1); how many topics a peer may make known (T-4). Events that are never purged to make room are counted by their
//! author as well (P-6).

use std::{net::IpAddr, num::NonZeroU32, sync::Arc};

use arc_swap::ArcSwapOption;
use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use kukuri_domain::{AddressDigest, Event, PublicKey};

use super::{Client, Context, Policy, ReadKind, ReadRequest};
use crate::{
    backlog::{Backlog, BacklogLevel},
    config::{EngineConfig, Rate, Rates, TopicIntake},
    networks::{LEVELS, Network, factor_of, networks_of},
    recent::RecentIds,
    refused::{ConnectRefused, PublishRefused, ReadRefused, TooFast},
};

/// While the outbox consumers are far behind, an event of a client counts as this many (O-9).
const RATE_CUT: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// A message counts once more for each of these many bytes: large ones cost more.
const WEIGHT_BYTES: usize = 16 * 1024;
/// A deletion request counts once more for each of these many targets: each leaves a tombstone.
const WEIGHT_TARGETS: usize = 50;
/// Keys that are remembered at least: an event of one of them is not counted as a new key.
const RECENT_KEYS: usize = 16_384;
/// Looks at the status page, health and metrics by one address: enough for several monitors that look every second.
const STATUS_RATE: Rate = Rate { per_minute: NonZeroU32::new(300).unwrap(), burst: NonZeroU32::new(100).unwrap() };
const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The network, key or peer that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Network(Network),
    Key(PublicKey),
    Peer([u8; 32]),
}

impl Subject {
    /// Its limiter: a wider network has a looser one.
    fn level(self) -> usize {
        match self {
            Self::Network(network) => network.level(),
            Self::Key(_) | Self::Peer(_) => 0,
        }
    }
}

/// The act that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A new connection.
    Connect,
    /// An event, or an AUTH, which costs a signature as well.
    Publish,
    /// A message that is neither an event nor an AUTH, before it is parsed.
    Request,
    /// A REQ that pages back, a COUNT, a NEG-OPEN, a page over HTTP.
    Backfill,
    /// Opening a topic by its first use (T-8), or making one known by a peer's event (T-4).
    OpenTopic,
    /// A deletion or vanish request (kinds 5, 62).
    Deletion,
    /// An event of a replaceable or addressable kind whose key was not seen lately.
    NewKey,
    /// A look at the status page, health or metrics (Y-4).
    Status,
    /// An attempt to sign in over HTTP (U-3).
    SignIn,
}

/// The rate limiters of a node. They start empty again when the rates are configured differently.
pub(crate) struct RatePolicy {
    limiters: ArcSwapOption<RateLimiters>,
    recent_keys: RecentIds<AddressDigest>,
    backlog: Arc<Backlog>,
}

impl RatePolicy {
    pub(crate) fn new(config: &EngineConfig, backlog: Arc<Backlog>) -> Self {
        let recent_keys = RecentIds::new(RECENT_KEYS);
        let policy = Self { limiters: ArcSwapOption::empty(), recent_keys, backlog };
        policy.set_rates(config);
        policy
    }

    pub(crate) fn set_rates(&self, config: &EngineConfig) {
        let quotas = config.rates.as_ref().map(|rates| quotas(rates, &config.topics));
        if self.limiters.load().as_ref().map(|limiters| limiters.quotas) != quotas {
            self.limiters.store(quotas.map(|quotas| Arc::new(RateLimiters::new(quotas))));
        }
    }

    /// Drops the counters of clients that are back to a full burst, so that memory does not grow with strangers.
    pub(crate) fn forget_idle(&self) {
        for limiter in self.limiters.load().iter().flat_map(|limiters| limiters.by_act.iter().flatten()) {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }

    /// Counts an act of the client at an address with these keys.
    pub(crate) fn check(&self, act: Act, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        self.check_weighted(act, ONE, ip, keys)
    }

    /// Counts an act of a key, whose address was counted before.
    pub(crate) fn check_key(&self, act: Act, key: &PublicKey) -> Result<(), TooFast> {
        let check = |limiters: &Arc<RateLimiters>| limiters.check_subject(act, ONE, Subject::Key(*key));
        self.limiters.load().as_ref().map_or(Ok(()), check)
    }

    /// Counts topics that an event of a peer makes known (T-4).
    pub(crate) fn check_new_topics(&self, topics: NonZeroU32, peer: [u8; 32]) -> Result<(), TooFast> {
        let check = |limiters: &Arc<RateLimiters>| limiters.check_subject(Act::OpenTopic, topics, Subject::Peer(peer));
        self.limiters.load().as_ref().map_or(Ok(()), check)
    }

    /// Counts a verified event of the client at an address, if it is of a class that is never purged to make room (P-6), by
    /// the address and by its author.
    ///
    /// Only the writer can tell whether the store knows a key, and telling it would change every outcome on the way. So a
    /// key counts as new if it was not seen lately: a client that keeps updating its events is counted seldom, and a
    /// flood of new keys in full.
    pub(crate) fn check_permanent(&self, event: &Event, ip: IpAddr) -> Result<(), TooFast> {
        let limiters = self.limiters.load();
        let Some(limiters) = limiters.as_ref() else { return Ok(()) };
        if event.kind.is_request() {
            return limiters.check(Act::Deletion, weight_of_request(event), ip, &[event.pubkey]);
        }
        let Some(key) = event.address().map(|address| address.digest()) else { return Ok(()) };
        if !self.recent_keys.contains(&key) {
            limiters.check(Act::NewKey, ONE, ip, &[event.pubkey])?;
            self.recent_keys.insert(key);
        }
        Ok(())
    }

    /// Counts a text of this many bytes, before it is parsed.
    pub(crate) fn check_text(&self, act: Act, bytes: usize, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        self.check_weighted(act, weight_of(bytes), ip, keys)
    }

    fn check_weighted(&self, act: Act, weight: NonZeroU32, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        self.limiters.load().as_ref().map_or(Ok(()), |limiters| limiters.check(act, weight, ip, keys))
    }
}

impl Policy for Arc<RatePolicy> {
    fn check_connect(&self, _: &Context<'_>, ip: IpAddr) -> Result<(), ConnectRefused> {
        self.check(Act::Connect, ip, &[]).map_err(|_| ConnectRefused::TooFast)
    }

    fn check_read(&self, _: &Context<'_>, request: &ReadRequest<'_>) -> Result<(), ReadRefused> {
        match request.kind {
            // Its text was counted before it was parsed.
            ReadKind::Recent => Ok(()),
            ReadKind::History => Ok(self.check(Act::Backfill, request.client.ip, &request.client.keys)?),
        }
    }

    fn check_event_text(&self, _: &Context<'_>, client: &Client, bytes: usize) -> Result<(), PublishRefused> {
        let weight = weight_of(bytes);
        if self.backlog.level() < BacklogLevel::Cutting {
            return Ok(self.check_weighted(Act::Publish, weight, client.ip, &client.keys)?);
        }
        let weight = weight.saturating_mul(RATE_CUT);
        self.check_weighted(Act::Publish, weight, client.ip, &client.keys).map_err(|_| PublishRefused::RateCut)
    }
}

/// By `Act`.
type Quotas = [Quota; 9];

fn quotas(rates: &Rates, topics: &TopicIntake) -> Quotas {
    let quota = |rate: Rate| Quota::per_minute(rate.per_minute).allow_burst(rate.burst);
    let topics_per_hour = match topics {
        TopicIntake::Closed => TopicIntake::DEFAULT_OPENED_PER_HOUR,
        TopicIntake::Open { opened_per_hour, .. } => *opened_per_hour,
    };
    [
        quota(rates.new_connections),
        quota(rates.events),
        quota(rates.requests),
        quota(rates.backfill),
        Quota::per_hour(topics_per_hour),
        quota(rates.deletions),
        quota(rates.new_keys),
        quota(STATUS_RATE),
        quota(rates.sign_ins),
    ]
}

struct RateLimiters {
    quotas: Quotas,
    /// By act and level.
    by_act: [[DefaultKeyedRateLimiter<Subject>; LEVELS]; 9],
    clock: DefaultClock,
}

impl RateLimiters {
    fn new(quotas: Quotas) -> Self {
        let by_level =
            |quota| std::array::from_fn(|level| DefaultKeyedRateLimiter::keyed(scaled(quota, factor_of(level))));
        Self { quotas, by_act: quotas.map(by_level), clock: DefaultClock::default() }
    }

    fn check(&self, act: Act, weight: NonZeroU32, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        let mut subjects = networks_of(ip).map(Subject::Network).chain(keys.iter().copied().map(Subject::Key));
        subjects.try_for_each(|subject| self.check_subject(act, weight, subject))
    }

    fn check_subject(&self, act: Act, weight: NonZeroU32, subject: Subject) -> Result<(), TooFast> {
        let what = match act {
            Act::Connect => "connections",
            Act::Publish => "events",
            Act::Request => "requests",
            Act::Backfill => "requests for history",
            Act::OpenTopic => "new topics",
            Act::Deletion => "deletion and vanish requests",
            Act::NewKey => "new replaceable or addressable events",
            Act::Status => "requests for the state of the node",
            Act::SignIn => "attempts to sign in",
        };
        let limiter = &self.by_act[act as usize][subject.level()];
        // An act heavier than the whole burst is counted as the whole burst; it could never pass otherwise.
        let largest = self.quotas[act as usize].burst_size();
        let checked = limiter.check_key_n(&subject, weight).or_else(|_| limiter.check_key_n(&subject, largest));
        let Ok(checked) = checked else { return Err(TooFast { what, seconds: 60 }) };
        checked.map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            TooFast { what, seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0) }
        })
    }
}

fn weight_of(bytes: usize) -> NonZeroU32 {
    ONE.saturating_add(u32::try_from(bytes / WEIGHT_BYTES).unwrap_or(u32::MAX))
}

fn weight_of_request(event: &Event) -> NonZeroU32 {
    let targets = event.tags.iter().filter(|tag| matches!(tag.name(), Some("e" | "a"))).count();
    ONE.saturating_add(u32::try_from(targets / WEIGHT_TARGETS).unwrap_or(u32::MAX))
}

/// A quota of some times the rate and the burst.
fn scaled(quota: Quota, factor: u32) -> Quota {
    let burst = quota.burst_size().saturating_mul(NonZeroU32::new(factor).unwrap_or(ONE));
    Quota::with_period(quota.replenish_interval() / factor.max(1)).map_or(quota, |quota| quota.allow_burst(burst))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn each_act_has_its_own_count_by_address_and_by_key() {
        let rates = Rates { events: Rate::new(1, 2), requests: Rate::new(1, 1), ..Rates::default() };
        let limiters = RateLimiters::new(quotas(&rates, &TopicIntake::default()));
        let publish = |weight, ip, keys: &[PublicKey]| limiters.check(Act::Publish, weight, ip, keys);
        assert_eq!(publish(ONE, ADDRESS, &[]), Ok(()));
        assert_eq!(publish(ONE, ADDRESS, &[]), Ok(()));
        let refused = publish(ONE, ADDRESS, &[]).unwrap_err().to_string();
        assert!(refused.starts_with("rate-limited: too many events; try again in "), "{refused}");
        assert_eq!(limiters.check(Act::Request, ONE, ADDRESS, &[]), Ok(()), "another count");

        let key = [PublicKey::from_bytes([1; 32])];
        let address = |n| IpAddr::from([192, 0, 2, n]);
        assert_eq!(publish(ONE, address(2), &key), Ok(()));
        assert_eq!(publish(ONE, address(3), &key), Ok(()));
        assert!(publish(ONE, address(4), &key).is_err(), "one key, many addresses");
        assert_eq!(publish(weight_of(90 * 1024), address(9), &[]), Ok(()), "it uses the whole burst");
        assert!(publish(ONE, address(9), &[]).is_err(), "a large event counts as several");
    }

    #[test]
    fn permanent_events_are_counted_by_address_author_and_targets() {
        // P-6, Y-1
        use kukuri_store::conformance::build::{ALICE, BOB, CAROL, article, deletion, note};
        let rates = Rates { deletions: Rate::new(1, 4), new_keys: Rate::new(1, 2), ..Rates::default() };
        let config = EngineConfig { rates: Some(rates), ..EngineConfig::default() };
        let policy = RatePolicy::new(&config, Arc::default());
        let address = |n| IpAddr::from([192, 0, 2, n]);
        let check = |event: Event, n| policy.check_permanent(&event, address(n));
        let refused = |result: Result<(), TooFast>| result.unwrap_err().to_string();

        let targets = |count: usize| {
            (0..count).fold(deletion(), |draft, n| draft.tag(["e", &format!("{n:064x}")])).at(count as u64)
        };
        assert_eq!(check(targets(100).build(), 1), Ok(()), "it counts as three");
        assert_eq!(check(targets(1).by(BOB).build(), 1), Ok(()));
        let text = refused(check(targets(2).by(CAROL).build(), 1));
        assert!(text.starts_with("rate-limited: too many deletion and vanish requests; try again in "), "{text}");
        assert_eq!(check(targets(3).build(), 2), Ok(()), "the fourth of this author");
        refused(check(targets(4).build(), 3));
        assert_eq!(check(targets(5).by(CAROL).build(), 3), Ok(()), "another author");

        let of_alice = |identifier: &str| article(identifier, "text").by(ALICE).build();
        assert_eq!(check(of_alice("one"), 4), Ok(()));
        assert_eq!(check(of_alice("two"), 4), Ok(()));
        let text = refused(check(of_alice("three"), 4));
        assert!(text.starts_with("rate-limited: too many new replaceable or addressable events; "), "{text}");
        assert_eq!(check(of_alice("one"), 4), Ok(()), "a key that was seen lately");
        refused(check(of_alice("three"), 5));
        assert_eq!(check(note("regular").build(), 4), Ok(()), "a regular event");

        policy.set_rates(&EngineConfig::default());
        assert_eq!(check(of_alice("four"), 4), Ok(()), "without rates");
    }

    #[test]
    fn wider_ipv6_networks_have_looser_rates() {
        // Y-1: a /48 is 65,536 networks of one client each.
        let rates = Rates { requests: Rate::new(1, 2), ..Rates::default() };
        let limiters = RateLimiters::new(quotas(&rates, &TopicIntake::default()));
        let passed = |third: u16, networks: std::ops::Range<u16>| {
            let address = |number| IpAddr::from([0x2001, 0xdb8, third, number, 0, 0, 0, 1]);
            let ask = |number: &u16| limiters.check(Act::Request, ONE, address(*number), &[]).is_ok();
            networks.filter(ask).count()
        };
        assert_eq!(passed(1, 0..1) + passed(1, 0..1) + passed(1, 0..1), 2, "a /64");
        assert_eq!(passed(1, 1..0x100), 6, "its /56 has 8 in all");
        assert_eq!(passed(1, 0x100..0x2000), 24, "its /48 has 32 in all");
        assert_eq!(passed(2, 0..1), 1, "another /48");
    }
}
