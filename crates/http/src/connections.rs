//! How many connections there are, over all and by address (W-4).

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kukuri_engine::{
    ConnectRefused, Engine,
    networks::{AddressLimit, Share, ShareLimits, Shares},
};

#[derive(Default)]
pub(crate) struct ConnectionCounter {
    open: AtomicUsize,
    /// Those whose address is known.
    by_network: Arc<Shares>,
}

/// A counted connection. Dropped, it is no longer counted.
pub(crate) struct ConnectionPermit {
    counter: Arc<ConnectionCounter>,
    share: Option<Share>,
}

impl ConnectionCounter {
    /// Counts a connection if there are fewer than `max`. Its address may become known later.
    pub(crate) fn acquire(self: &Arc<Self>, max: usize) -> Result<ConnectionPermit, ConnectRefused> {
        let permit = ConnectionPermit { counter: Arc::clone(self), share: None };
        if self.open.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(ConnectRefused::Full);
        }
        Ok(permit)
    }

    /// How many connections are counted.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl ConnectionCounter {
    /// Counts a connection, or a request through a proxy, among those of its address.
    pub(crate) fn count(&self, ip: IpAddr, engine: &Engine) -> Result<Share, ConnectRefused> {
        let per_address = engine.config().rates.as_ref().map(|rates| AddressLimit::Fixed(rates.connections_per_ip));
        let limits = ShareLimits { address: per_address.unwrap_or(AddressLimit::Unlimited), total: usize::MAX };
        self.by_network.acquire(ip, 1..=1, limits).map_err(|_| ConnectRefused::TooMany)
    }
}

impl ConnectionPermit {
    /// The address becomes known: it is counted, and the policies are asked.
    pub(crate) fn set_address(&mut self, ip: IpAddr, engine: &Engine) -> Result<(), ConnectRefused> {
        self.share = Some(self.counter.count(ip, engine)?);
        engine.check_connection(ip)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.counter.open.fetch_sub(1, Ordering::Relaxed);
    }
}
