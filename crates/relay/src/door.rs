//! Who may connect: how many there are, from where, and how fast they come (W-4).

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    rates::{Act, Counted, network_of},
    relay::Relay,
};

/// Why a connection is not let in. Few values: they are labels of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TurnedAway {
    /// Its address is denied.
    Denied,
    /// The node has all the connections it can serve.
    Full,
    /// Its address has as many as it may.
    TooMany,
    /// Its address connects too often.
    TooFast,
    /// It did not say what it wants in time, or not in HTTP.
    NoHandshake,
    /// It came through the proxy, which did not say from where.
    NoAddress,
}

impl TurnedAway {
    pub(crate) const ALL: [Self; 6] =
        [Self::Denied, Self::Full, Self::TooMany, Self::TooFast, Self::NoHandshake, Self::NoAddress];

    /// As a metric's label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Full => "full",
            Self::TooMany => "too_many",
            Self::TooFast => "too_fast",
            Self::NoHandshake => "no_handshake",
            Self::NoAddress => "no_address",
        }
    }

    /// What the client is told.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Denied => "this address is denied",
            Self::Full => "this node has no room for more connections",
            Self::TooMany => "too many connections from this address",
            Self::TooFast => "too many new connections from this address; try again in a minute",
            Self::NoHandshake => "no request in time",
            Self::NoAddress => "the proxy does not say where this comes from",
        }
    }
}

/// Counts connections.
#[derive(Default)]
pub(crate) struct Door {
    inside: AtomicUsize,
    by_network: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that was let in. Dropped, it has left.
pub(crate) struct Inside {
    door: Arc<Door>,
    network: Option<IpAddr>,
}

impl Door {
    /// Lets a connection in if the node has room for it. Whose it is may be known later.
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Result<Inside, TurnedAway> {
        let inside = Inside { door: Arc::clone(self), network: None };
        if self.inside.fetch_add(1, Ordering::Relaxed) >= most {
            return Err(TurnedAway::Full);
        }
        Ok(inside)
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.by_network.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    /// It turns out where it comes from: that address may be denied, or have too many.
    pub(crate) fn comes_from(&mut self, ip: IpAddr, relay: &Relay) -> Result<(), TurnedAway> {
        let config = relay.config();
        if config.deny.covers_ip(ip) {
            return Err(TurnedAway::Denied);
        }
        let Some(rates) = &config.rates else { return Ok(()) };
        let network = network_of(ip);
        {
            let mut networks = self.door.networks();
            let count = networks.entry(network).or_default();
            if *count >= rates.connections_per_ip {
                return Err(TurnedAway::TooMany);
            }
            *count += 1;
            self.network = Some(network);
        }
        relay.check_rate(Act::Connect, Counted { ip, keys: &[] }).map_err(|_| TurnedAway::TooFast)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.door.inside.fetch_sub(1, Ordering::Relaxed);
        let Some(network) = self.network else { return };
        let mut networks = self.door.networks();
        if let Some(count) = networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                networks.remove(&network);
            }
        }
    }
}
