//! How fast a client may ask: by its address and, once it has authenticated, by its keys as well (W-4).

use std::{
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};

use governor::{
    DefaultKeyedRateLimiter, Quota,
    clock::{Clock, DefaultClock},
};
use kukuri_domain::PublicKey;

use crate::config::{Rate, Rates, TopicIntake};

/// Who is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Address(IpAddr),
    Key(PublicKey),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A new connection.
    Connect,
    /// An event.
    Publish,
    /// A REQ.
    Request,
    /// A REQ that pages back, a COUNT, a NEG-OPEN.
    Backfill,
    /// Opening a topic by its first use (T-8).
    OpenTopic,
}

/// Too fast: the text is what the client reads, with the machine-readable prefix.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate-limited: too many {what}; try again in {seconds} s")]
pub struct TooFast {
    what: &'static str,
    pub(crate) seconds: u64,
}

/// A client that is counted: its address and its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'k> {
    pub(crate) ip: IpAddr,
    pub(crate) keys: &'k [PublicKey],
}

/// The counters of all clients.
pub(crate) struct RateLimits {
    connect: DefaultKeyedRateLimiter<Who>,
    publish: DefaultKeyedRateLimiter<Who>,
    request: DefaultKeyedRateLimiter<Who>,
    backfill: DefaultKeyedRateLimiter<Who>,
    open_topic: DefaultKeyedRateLimiter<Who>,
    clock: DefaultClock,
    event_burst: NonZeroU32,
}

impl RateLimits {
    /// The most that may be counted at once.
    fn most(&self, act: Act) -> NonZeroU32 {
        if act == Act::Publish { self.event_burst } else { NonZeroU32::MIN }
    }

    pub(crate) fn new(rates: &Rates, topics: &TopicIntake) -> Self {
        let limiter =
            |rate: Rate| DefaultKeyedRateLimiter::keyed(Quota::per_minute(rate.per_minute).allow_burst(rate.burst));
        let per_hour = match topics {
            TopicIntake::Closed => NonZeroU32::MIN,
            TopicIntake::Open { per_hour, .. } => *per_hour,
        };
        Self {
            connect: limiter(rates.new_connections),
            publish: limiter(rates.events),
            request: limiter(rates.requests),
            backfill: limiter(rates.backfill),
            open_topic: DefaultKeyedRateLimiter::keyed(Quota::per_hour(per_hour)),
            clock: DefaultClock::default(),
            event_burst: rates.events.burst,
        }
    }

    /// Counts an act, or says how long to wait. A heavy one counts as several.
    pub(crate) fn check(&self, act: Act, weight: NonZeroU32, who: Counted<'_>) -> Result<(), TooFast> {
        let (limiter, what) = match act {
            Act::Connect => (&self.connect, "connections"),
            Act::Publish => (&self.publish, "events"),
            Act::Request => (&self.request, "requests"),
            Act::Backfill => (&self.backfill, "requests for history"),
            Act::OpenTopic => (&self.open_topic, "new topics"),
        };
        let address = Who::Address(network_of(who.ip));
        for who in std::iter::once(address).chain(who.keys.iter().copied().map(Who::Key)) {
            // What is heavier than all that may come at once waits for as long as that takes.
            let checked = limiter.check_key_n(&who, weight).or_else(|_| limiter.check_key_n(&who, self.most(act)));
            let Ok(checked) = checked else { return Err(TooFast { what, seconds: 60 }) };
            checked.map_err(|until| {
                let wait = until.wait_time_from(self.clock.now());
                TooFast { what, seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0) }
            })?;
        }
        Ok(())
    }

    /// Forgets those who have been slow for long enough, so that strangers do not add up.
    pub(crate) fn forget_slow(&self) {
        for limiter in [&self.connect, &self.publish, &self.request, &self.backfill, &self.open_topic] {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

/// What most acts count as.
pub(crate) const ONE: NonZeroU32 = NonZeroU32::MIN;

/// What a text of so many bytes counts as: large events are not as cheap as small ones.
pub(crate) fn weight_of(bytes: usize) -> NonZeroU32 {
    const UNIT: usize = 16 * 1024;
    ONE.saturating_add(u32::try_from(bytes / UNIT).unwrap_or(u32::MAX))
}

/// How often to forget.
pub(crate) const FORGET_EVERY: Duration = Duration::from_secs(60);

/// What counts as one client: a customer of an IPv6 provider has a /64 to choose addresses from.
pub(crate) fn network_of(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn each_act_has_its_own_count_by_address_and_by_key() {
        let rates = Rates { events: Rate::new(1, 2), requests: Rate::new(1, 1), ..Rates::default() };
        let limits = RateLimits::new(&rates, &TopicIntake::default());
        let stranger = Counted { ip: ADDRESS, keys: &[] };
        assert_eq!(limits.check(Act::Publish, ONE, stranger), Ok(()));
        assert_eq!(limits.check(Act::Publish, ONE, stranger), Ok(()));
        let refused = limits.check(Act::Publish, ONE, stranger).unwrap_err().to_string();
        assert!(refused.starts_with("rate-limited: too many events; try again in "), "{refused}");
        assert_eq!(limits.check(Act::Request, ONE, stranger), Ok(()), "another count");

        let key = [PublicKey::from_bytes([1; 32])];
        let elsewhere = |n| Counted { ip: IpAddr::from([192, 0, 2, n]), keys: &key };
        assert_eq!(limits.check(Act::Publish, ONE, elsewhere(2)), Ok(()));
        assert_eq!(limits.check(Act::Publish, ONE, elsewhere(3)), Ok(()));
        assert!(limits.check(Act::Publish, ONE, elsewhere(4)).is_err(), "one key, many addresses");
        let heavy = Counted { ip: IpAddr::from([192, 0, 2, 9]), keys: &[] };
        assert_eq!(limits.check(Act::Publish, weight_of(90 * 1024), heavy), Ok(()), "it takes all there is");
        assert!(limits.check(Act::Publish, ONE, heavy).is_err(), "a large event counts as several");
    }

    #[test]
    fn an_ipv6_network_counts_as_one_client() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network_of(ip("2001:db8:1:2:3::4")), network_of(ip("2001:db8:1:2:ffff::1")));
        assert_ne!(network_of(ip("2001:db8:1:2::1")), network_of(ip("2001:db8:1:3::1")));
        assert_eq!(network_of(ip("::ffff:192.0.2.1")), ADDRESS);
    }
}
