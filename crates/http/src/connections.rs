//! How many connections there are, over all and by address (W-4).

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use kukuri_engine::{ConnectRefused, Engine, network_of};
use parking_lot::Mutex;

#[derive(Default)]
pub(crate) struct ConnectionCounter {
    open: AtomicUsize,
    by_network: Mutex<HashMap<IpAddr, usize>>,
}

/// A counted connection. Dropped, it is no longer counted.
pub(crate) struct ConnectionPermit {
    counter: Arc<ConnectionCounter>,
    network: Option<IpAddr>,
}

impl ConnectionCounter {
    /// Counts a connection if there are fewer than `max`. Its address may become known later.
    pub(crate) fn acquire(self: &Arc<Self>, max: usize) -> Result<ConnectionPermit, ConnectRefused> {
        let permit = ConnectionPermit { counter: Arc::clone(self), network: None };
        if self.open.fetch_add(1, Ordering::Relaxed) >= max {
            return Err(ConnectRefused::Full);
        }
        Ok(permit)
    }
}

impl ConnectionPermit {
    /// The address becomes known: it is counted, and the policies are asked.
    pub(crate) fn set_address(&mut self, ip: IpAddr, engine: &Engine) -> Result<(), ConnectRefused> {
        if let Some(rates) = &engine.config().rates {
            let network = network_of(ip);
            let mut networks = self.counter.by_network.lock();
            let count = networks.entry(network).or_default();
            if *count >= rates.connections_per_ip {
                return Err(ConnectRefused::TooMany);
            }
            *count += 1;
            self.network = Some(network);
        }
        engine.check_connection(ip)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.counter.open.fetch_sub(1, Ordering::Relaxed);
        let Some(network) = self.network else { return };
        let mut networks = self.counter.by_network.lock();
        if let Some(count) = networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                networks.remove(&network);
            }
        }
    }
}
