//! One endpoint after the other: each is worked with for as long as its gossip moves, and then replaced.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use iroh::{TransportAddr, endpoint::TransportAddrUsage};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::{
    bridge::{Shared, stopped},
    following,
    net::{Net, Setup},
    peer::PeerId,
    rejoining,
    watchdog::{self, Wedged},
};

/// A peer that comes up in many topics at once is noted once.
const MEET_EVERY: Duration = Duration::from_secs(5);
/// A port may be held for a moment by what was left behind.
const BIND_AGAIN: Duration = Duration::from_millis(500);
/// A port that nobody chose is given up after so many tries.
const BIND_TRIES: u32 = 20;

/// Runs one endpoint after the other.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) setup: Setup,
    pub(crate) trouble: mpsc::Receiver<Wedged>,
    pub(crate) met: mpsc::Receiver<PeerId>,
}

impl Supervisor {
    /// Until the bridge is to stop.
    pub(crate) async fn run(mut self, first: Net, mut stopping: watch::Receiver<bool>) {
        let mut net = first;
        loop {
            let listening = net.listening();
            let wedged = tokio::select! {
                () = stopped(&mut stopping) => {
                    self.shared.swarm.clear();
                    self.shared.endpoint().take();
                    return net.close().await;
                }
                wedged = self.run_one(&net) => wedged,
            };
            tracing::warn!(why = wedged.0, "the endpoint of gossip is replaced");
            self.shared.figures.rebuilds.increment(1);
            self.shared.health.rebuilds.fetch_add(1, Ordering::Relaxed);
            self.shared.health.is_replacing.store(true, Ordering::Relaxed);
            self.shared.endpoint().take();
            self.shared.swarm.clear();
            net.abandon().await;
            net = tokio::select! {
                () = stopped(&mut stopping) => return,
                net = self.bind_again(listening) => net,
            };
            while self.trouble.try_recv().is_ok() {}
            *self.shared.endpoint() = Some(net.endpoint.clone());
            self.shared.health.is_replacing.store(false, Ordering::Relaxed);
            tracing::info!("gossip runs again");
        }
    }

    /// Works with an endpoint for as long as its gossip moves.
    async fn run_one(&mut self, net: &Net) -> Wedged {
        let Self { shared, trouble, met, .. } = self;
        tokio::select! {
            wedged = following::follow(shared, net) => wedged,
            wedged = rejoining::rejoin(shared, net) => wedged,
            wedged = watchdog::watch(&net.gossip) => wedged,
            Some(wedged) = trouble.recv() => wedged,
            () = note_meetings(shared, net, met) => Wedged("nothing"),
        }
    }

    /// The same key on the same port: whoever knows the old endpoint knows the new one.
    async fn bind_again(&self, listening: Option<SocketAddr>) -> Net {
        let set = self.shared.settings.listen;
        let mut tries = 0;
        loop {
            let address = listening.filter(|_| set.port() != 0 || tries < BIND_TRIES).unwrap_or(set);
            match self.setup.bind(address).await {
                Ok(net) => return net,
                Err(error) => tracing::warn!(%error, "it is tried again"),
            }
            tries += 1;
            sleep(BIND_AGAIN).await;
        }
    }
}

/// Notes who is there, and where. Ends with the bridge.
async fn note_meetings(shared: &Shared, net: &Net, met: &mut mpsc::Receiver<PeerId>) {
    let mut noted: HashMap<PeerId, Instant> = HashMap::new();
    while let Some(peer) = met.recv().await {
        noted.retain(|_, at| at.elapsed() < MEET_EVERY);
        if noted.insert(peer, Instant::now()).is_some() {
            continue;
        }
        let info = net.endpoint.remote_info(peer).await;
        let addresses = info.into_iter().flat_map(|info| info.into_addrs()).filter_map(|info| match info.addr() {
            TransportAddr::Ip(address) if matches!(info.usage(), TransportAddrUsage::Active) => Some(*address),
            _ => None,
        });
        shared.book.met(peer, addresses);
    }
}
