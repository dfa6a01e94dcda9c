//! How often a client may ask: counted by its address and, once it has authenticated, by each of its keys (W-4).

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::Arc,
};

use arc_swap::ArcSwapOption;
use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use kukuri_domain::PublicKey;

use super::{Client, Context, Policy, ReadKind, ReadRequest};
use crate::{
    backlog::{Backlog, BacklogLevel},
    config::{EngineConfig, Rate, Rates, TopicIntake},
    refused::{ConnectRefused, PublishRefused, ReadRefused, TooFast},
};

/// While the outbox consumers are far behind, an event of a client counts as this many (O-9).
const RATE_CUT: NonZeroU32 = NonZeroU32::new(10).unwrap();
/// An event counts once more for each of these many bytes: large events cost more.
const WEIGHT_BYTES: usize = 16 * 1024;
const ONE: NonZeroU32 = NonZeroU32::MIN;

/// The address or key that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Network(IpAddr),
    Key(PublicKey),
}

/// The act that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A new connection.
    Connect,
    /// An event, or an AUTH, which costs a signature as well.
    Publish,
    /// A REQ.
    Request,
    /// A REQ that pages back, a COUNT, a NEG-OPEN, a page over HTTP.
    Backfill,
    /// Opening a topic by its first use (T-8).
    OpenTopic,
}

/// The rate limiters of a node. They start empty again when the rates are configured differently.
pub(crate) struct RatePolicy {
    limiters: ArcSwapOption<RateLimiters>,
    backlog: Arc<Backlog>,
}

impl RatePolicy {
    pub(crate) fn new(config: &EngineConfig, backlog: Arc<Backlog>) -> Self {
        let policy = Self { limiters: ArcSwapOption::empty(), backlog };
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
        for limiter in self.limiters.load().iter().flat_map(|limiters| &limiters.by_act) {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }

    /// Counts an act of the client at an address with these keys.
    pub(crate) fn check(&self, act: Act, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        self.check_weighted(act, ONE, ip, keys)
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
        let act = match request.kind {
            ReadKind::Recent => Act::Request,
            ReadKind::History => Act::Backfill,
        };
        Ok(self.check(act, request.client.ip, &request.client.keys)?)
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
type Quotas = [Quota; 5];

fn quotas(rates: &Rates, topics: &TopicIntake) -> Quotas {
    let quota = |rate: Rate| Quota::per_minute(rate.per_minute).allow_burst(rate.burst);
    let topics_per_hour = match topics {
        TopicIntake::Closed => NonZeroU32::MIN,
        TopicIntake::Open { opened_per_hour, .. } => *opened_per_hour,
    };
    [
        quota(rates.new_connections),
        quota(rates.events),
        quota(rates.requests),
        quota(rates.backfill),
        Quota::per_hour(topics_per_hour),
    ]
}

struct RateLimiters {
    quotas: Quotas,
    by_act: [DefaultKeyedRateLimiter<Subject>; 5],
    clock: DefaultClock,
}

impl RateLimiters {
    fn new(quotas: Quotas) -> Self {
        Self { quotas, by_act: quotas.map(DefaultKeyedRateLimiter::keyed), clock: DefaultClock::default() }
    }

    fn check(&self, act: Act, weight: NonZeroU32, ip: IpAddr, keys: &[PublicKey]) -> Result<(), TooFast> {
        let limiter = &self.by_act[act as usize];
        let what = match act {
            Act::Connect => "connections",
            Act::Publish => "events",
            Act::Request => "requests",
            Act::Backfill => "requests for history",
            Act::OpenTopic => "new topics",
        };
        let network = Subject::Network(network_of(ip));
        for subject in std::iter::once(network).chain(keys.iter().copied().map(Subject::Key)) {
            // An act heavier than the whole burst is counted as the whole burst; it could never pass otherwise.
            let largest = self.quotas[act as usize].burst_size();
            let checked = limiter.check_key_n(&subject, weight).or_else(|_| limiter.check_key_n(&subject, largest));
            let Ok(checked) = checked else { return Err(TooFast { what, seconds: 60 }) };
            checked.map_err(|until| {
                let wait = until.wait_time_from(self.clock.now());
                TooFast { what, seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0) }
            })?;
        }
        Ok(())
    }
}

fn weight_of(bytes: usize) -> NonZeroU32 {
    ONE.saturating_add(u32::try_from(bytes / WEIGHT_BYTES).unwrap_or(u32::MAX))
}

/// The addresses that count as one client: a customer of an IPv6 provider has a /64 to choose from.
pub fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
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
    fn an_ipv6_network_counts_as_one_client() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network_of(ip("2001:db8:1:2:3::4")), network_of(ip("2001:db8:1:2:ffff::1")));
        assert_ne!(network_of(ip("2001:db8:1:2::1")), network_of(ip("2001:db8:1:3::1")));
        assert_eq!(network_of(ip("::ffff:192.0.2.1")), ADDRESS);
    }
}
