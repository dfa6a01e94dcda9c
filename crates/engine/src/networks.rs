//! Addresses that count as one client, and what each holds of something that clients share (Y-1).

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    ops::RangeInclusive,
    sync::Arc,
};

use parking_lot::Mutex;

/// Networks that one address is counted in.
pub(crate) const LEVELS: usize = 3;
/// The bits of an IPv6 prefix, and how many times the limit of one address it may use: a customer has a /64 or a /56 to choose
/// addresses from, a free tunnel is a /48, and several customers share the wider ones.
const IPV6_LEVELS: [(u32, u32); LEVELS] = [(64, 1), (56, 4), (48, 16)];

/// A network whose addresses are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    prefix: IpAddr,
    level: usize,
}

impl Network {
    /// The narrowest network is level 0.
    pub(crate) fn level(self) -> usize {
        self.level
    }
}

/// How many times the limit of one address a network of this level may use.
pub(crate) fn factor_of(level: usize) -> u32 {
    IPV6_LEVELS.get(level).map_or(1, |(_, factor)| *factor)
}

/// The networks that an address is counted in, the narrowest first: an IPv4 address alone; the /64, /56 and /48 of an IPv6
/// address.
pub fn networks_of(ip: IpAddr) -> impl Iterator<Item = Network> {
    let ip = ip.to_canonical();
    let levels = match ip {
        IpAddr::V4(_) => &IPV6_LEVELS[..1],
        IpAddr::V6(_) => &IPV6_LEVELS[..],
    };
    levels.iter().enumerate().map(move |(level, (bits, _))| Network { prefix: prefix_of(ip, *bits), level })
}

fn prefix_of(ip: IpAddr, bits: u32) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> (128 - bits) << (128 - bits))),
        v4 => v4,
    }
}

/// What all clients hold of something that is bounded.
#[derive(Default)]
pub struct Shares(Mutex<Held>);

#[derive(Default)]
struct Held {
    total: usize,
    by_network: HashMap<Network, usize>,
}

/// How much may be held.
#[derive(Clone, Copy, Debug)]
pub struct ShareLimits {
    /// By one address.
    pub address: AddressLimit,
    /// By all clients together.
    pub total: usize,
}

/// How much one address may hold. A wider IPv6 network may hold some times as much.
#[derive(Clone, Copy, Debug)]
pub enum AddressLimit {
    /// As much as there is.
    Unlimited,
    /// This much.
    Fixed(usize),
    /// What is free, divided by this: however many addresses take their share, the next one finds something.
    PartOfFree(usize),
    /// The less of both.
    FixedOrPartOfFree(usize, usize),
}

/// Why nothing is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareRefused {
    /// The address, or a network around it, holds as much as it may.
    Address,
    /// All clients together do.
    Node,
}

/// What one client holds. Dropped, it is given back.
pub struct Share {
    shares: Arc<Shares>,
    ip: IpAddr,
    amount: usize,
}

impl Shares {
    /// Takes as much of `wanted` as the limits leave, at least its start.
    pub fn acquire(
        self: &Arc<Self>,
        ip: IpAddr,
        wanted: RangeInclusive<usize>,
        limits: ShareLimits,
    ) -> Result<Share, ShareRefused> {
        let mut held = self.0.lock();
        let free = limits.total.saturating_sub(held.total);
        if free < *wanted.start() {
            return Err(ShareRefused::Node);
        }
        let (max, max_of_free) = match limits.address {
            AddressLimit::Unlimited => (None, None),
            AddressLimit::Fixed(max) => (Some(max), None),
            AddressLimit::PartOfFree(parts) => (None, Some(free / parts.max(1))),
            AddressLimit::FixedOrPartOfFree(max, parts) => (Some(max), Some(free / parts.max(1))),
        };
        let left_of = |max: Option<usize>| {
            let Some(max) = max else { return free };
            let left = networks_of(ip).map(|network| {
                let held = held.by_network.get(&network).copied().unwrap_or_default();
                max.saturating_mul(factor_of(network.level) as usize).saturating_sub(held)
            });
            left.fold(free, usize::min)
        };
        let (left, left_of_free) = (left_of(max), left_of(max_of_free));
        if left < *wanted.start() || max.is_none() && left_of_free < *wanted.start() {
            return Err(ShareRefused::Address);
        }
        if left_of_free < *wanted.start() {
            return Err(ShareRefused::Node);
        }
        let left = left.min(left_of_free);
        let amount = left.min(*wanted.end());
        held.total += amount;
        for network in networks_of(ip) {
            *held.by_network.entry(network).or_default() += amount;
        }
        Ok(Share { shares: Arc::clone(self), ip, amount })
    }

    /// What all clients hold together.
    pub fn total(&self) -> usize {
        self.0.lock().total
    }
}

impl Share {
    /// How much it is.
    pub fn amount(&self) -> usize {
        self.amount
    }

    /// Adds another share of the same address.
    pub fn merge(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.shares, &other.shares) && self.ip == other.ip);
        self.amount += std::mem::take(&mut other.amount);
    }

    /// Gives all but `amount` back.
    pub fn shrink_to(&mut self, amount: usize) {
        let surplus = self.amount.saturating_sub(amount);
        self.amount -= surplus;
        let mut held = self.shares.0.lock();
        held.total -= surplus;
        for network in networks_of(self.ip) {
            if let Some(amount) = held.by_network.get_mut(&network) {
                *amount -= surplus;
                if *amount == 0 {
                    held.by_network.remove(&network);
                }
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn fixed(per_address: usize) -> ShareLimits {
        ShareLimits { address: AddressLimit::Fixed(per_address), total: 1_000 }
    }

    #[test]
    fn an_ipv6_address_counts_by_its_64_and_by_wider_networks() {
        // Y-1
        let networks = |text| networks_of(ip(text)).collect::<Vec<_>>();
        let shared = |one, other| networks(one).iter().zip(networks(other)).map(|(one, other)| *one == other).collect();
        for (one, other, expected) in [
            ("2001:db8:1:2:3::4", "2001:db8:1:2:ffff::1", vec![true, true, true]),
            ("2001:db8:1:2::1", "2001:db8:1:3::1", vec![false, true, true]),
            ("2001:db8:1:2::1", "2001:db8:1:102::1", vec![false, false, true]),
            ("2001:db8:1:2::1", "2001:db8:2:2::1", vec![false, false, false]),
            ("::ffff:192.0.2.1", "192.0.2.1", vec![true]),
            ("192.0.2.1", "192.0.2.2", vec![false]),
        ] {
            let found: Vec<bool> = shared(one, other);
            assert_eq!(found, expected, "{one} {other}");
        }
        let zero = networks("2001:db8::1");
        assert!(zero[0] != zero[1] && zero[1] != zero[2], "the same prefix at another level is another network");
    }

    #[test]
    fn wider_ipv6_networks_hold_4_and_16_times_as_much() {
        // Y-1
        let shares = Arc::new(Shares::default());
        let mut held = Vec::new();
        let mut refused_after = |prefix: &str, networks: std::ops::Range<u32>| {
            let before = held.len();
            for number in networks {
                match shares.acquire(ip(&format!("{prefix}{number:x}::1")), 1..=1, fixed(1)) {
                    Ok(share) => held.push(share),
                    Err(refused) => assert_eq!(refused, ShareRefused::Address),
                }
            }
            held.len() - before
        };
        assert_eq!(refused_after("2001:db8:1:", 0..0x100), 4, "a /56");
        assert_eq!(refused_after("2001:db8:1:", 0x100..0x10000), 12, "the rest of its /48");
        assert_eq!(refused_after("2001:db8:2:", 0..1), 1, "another /48");
        assert_eq!(refused_after("2001:db8:2:", 0..1), 0, "the same /64");
    }

    #[test]
    fn shares_are_bounded_by_address_and_over_all_and_given_back() {
        let shares = Arc::new(Shares::default());
        let limits = ShareLimits { address: AddressLimit::Fixed(6), total: 10 };
        let take = |address: &str, wanted| shares.acquire(ip(address), wanted, limits);
        let mut first = take("192.0.2.1", 1..=4).unwrap();
        assert_eq!(take("192.0.2.1", 3..=3).err(), Some(ShareRefused::Address));
        let second = take("192.0.2.1", 1..=4).unwrap();
        assert_eq!((first.amount(), second.amount()), (4, 2));
        assert_eq!(take("192.0.2.2", 5..=5).err(), Some(ShareRefused::Node));
        first.shrink_to(1);
        drop(second);
        assert_eq!((shares.total(), take("192.0.2.2", 5..=5).unwrap().amount()), (1, 5));
        drop(first);
        assert!(shares.0.lock().by_network.is_empty());
    }

    #[test]
    fn wide_networks_that_take_all_they_may_leave_some_for_others() {
        // Y-1
        let shares = Arc::new(Shares::default());
        let limits = ShareLimits { address: AddressLimit::FixedOrPartOfFree(50, 4), total: 2_000 };
        let mut held = Vec::new();
        let mut take = |address: &str| {
            let share = shares.acquire(ip(address), 1..=1, limits);
            share.map(|share| held.push(share))
        };
        for subnet in 0..0x400 {
            for network in 1..=3 {
                while take(&format!("2001:db8:{network}:{subnet:x}::1")).is_ok() {}
            }
        }
        assert_eq!(take("2001:db8:1:1::1"), Err(ShareRefused::Address), "its /48 holds as much as it may");
        assert_eq!(take("192.0.2.1"), Ok(()), "another address finds something");
    }

    #[test]
    fn the_next_address_always_finds_a_part_of_what_is_free() {
        // Y-1
        let shares = Arc::new(Shares::default());
        let limits = ShareLimits { address: AddressLimit::PartOfFree(4), total: 1_000_000 };
        let mut held = Vec::new();
        for number in 0..20 {
            let before = held.len();
            while let Ok(share) = shares.acquire(IpAddr::from([192, 0, 2, number]), 1..=200_000, limits) {
                held.push(share);
            }
            assert!(held.len() > before, "address {number}");
        }
    }
}
