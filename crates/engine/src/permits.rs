//! Permits for reads: a bounded number at a time, a part of them for each address, and turns by network (Y-1).
//!
//! A client that asks for much waits behind its own requests, not in front of other clients' requests.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use kukuri_store::{ReadGate, ReadPermit, ReadStage};
use metrics::Gauge;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::{
    engine::Shared,
    metrics::PermitKind,
    networks::{AddressLimit, Network, Share, ShareLimits, ShareRefused, Shares, networks_of},
};

/// A semaphore whose waiters take turns by network, in rounds: a network has one turn in each round.
#[derive(Default)]
pub(crate) struct FairSemaphore {
    shares: Arc<Shares>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// By round, then by arrival.
    waiting: BTreeMap<Turn, Waiter>,
    /// The round of each network's last waiter.
    last_rounds: HashMap<Network, u64>,
    /// The round of the last permit that was given to a waiter.
    round: u64,
    arrivals: u64,
}

/// Round and arrival of a waiter.
type Turn = (u64, u64);

struct Waiter {
    ip: IpAddr,
    limits: ShareLimits,
    permit: oneshot::Sender<FairPermit>,
}

/// Dropped, it is passed on to the next waiter.
pub(crate) struct FairPermit {
    semaphore: Arc<FairSemaphore>,
    share: Option<Share>,
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        self.share = None;
        self.semaphore.give_permits();
    }
}

/// Takes a waiter out of the queue that no longer waits.
struct Waiting<'s> {
    semaphore: &'s FairSemaphore,
    turn: Turn,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.semaphore.queue.lock().waiting.remove(&self.turn);
    }
}

impl FairSemaphore {
    /// A permit, if one is free and nobody waits.
    pub(crate) fn try_acquire(self: &Arc<Self>, ip: IpAddr, limits: ShareLimits) -> Option<FairPermit> {
        if !self.queue.lock().waiting.is_empty() {
            return None;
        }
        let share = self.shares.acquire(ip, 1..=1, limits).ok()?;
        Some(FairPermit { semaphore: Arc::clone(self), share: Some(share) })
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(self: &Arc<Self>, ip: IpAddr, limits: ShareLimits) -> FairPermit {
        loop {
            let (permit, given) = oneshot::channel();
            let turn = self.queue.lock().add(Waiter { ip, limits, permit });
            let _waiting = Waiting { semaphore: self, turn };
            self.give_permits();
            // The sender is dropped only with the semaphore's queue.
            if let Ok(permit) = given.await {
                return permit;
            }
        }
    }

    /// Gives permits to waiters in their turn, as long as there are permits. A waiter whose address has its part is passed
    /// over.
    fn give_permits(self: &Arc<Self>) {
        let mut left = Vec::new();
        let mut queue = self.queue.lock();
        let mut after = None;
        while let Some(turn) = queue.next_turn(after) {
            after = Some(turn);
            let Some(waiter) = queue.waiting.get(&turn) else { continue };
            let share = match self.shares.acquire(waiter.ip, 1..=1, waiter.limits) {
                Ok(share) => share,
                Err(ShareRefused::Address) => continue,
                Err(ShareRefused::Node) => break,
            };
            let Some(waiter) = queue.waiting.remove(&turn) else { continue };
            queue.round = turn.0;
            let permit = FairPermit { semaphore: Arc::clone(self), share: Some(share) };
            // A permit whose waiter has left goes to the next waiter when it is dropped, outside the lock.
            left.extend(waiter.permit.send(permit).err());
        }
        if queue.waiting.is_empty() {
            queue.last_rounds.clear();
        }
        drop(queue);
    }
}

impl Queue {
    fn add(&mut self, waiter: Waiter) -> Turn {
        // All addresses of a wide network have one turn together.
        let network = networks_of(waiter.ip).last();
        let last = network.and_then(|network| self.last_rounds.get(&network)).copied();
        let round = last.map_or(self.round, |last| (last + 1).max(self.round));
        self.last_rounds.extend(network.map(|network| (network, round)));
        self.arrivals += 1;
        let turn = (round, self.arrivals);
        self.waiting.insert(turn, waiter);
        turn
    }

    fn next_turn(&self, after: Option<Turn>) -> Option<Turn> {
        let rest = match after {
            Some(turn) => self.waiting.range((Excluded(turn), Unbounded)),
            None => self.waiting.range(..),
        };
        rest.map(|(turn, _)| *turn).next()
    }
}

/// The permits for all reads of an engine.
#[derive(Default)]
pub(crate) struct ReadPermits {
    sessions: Arc<FairSemaphore>,
    costly: Arc<FairSemaphore>,
    searches: Arc<FairSemaphore>,
}

/// The gate of one client.
pub(crate) struct ClientGate {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ip: IpAddr,
}

#[async_trait]
impl ReadGate for ClientGate {
    async fn enter(&self, stage: ReadStage, max: usize, deadline: Option<Instant>) -> Option<ReadPermit> {
        let (permits, config) = (&self.shared.read_permits, self.shared.config.load());
        let costly = config.requests.max_costly_queries();
        let (semaphore, kind, total) = match stage {
            ReadStage::Session => (&permits.sessions, PermitKind::Session, max),
            ReadStage::Costly => (&permits.costly, PermitKind::CostlyQuery, max.min(costly)),
            ReadStage::Search => (&permits.searches, PermitKind::Search, max.min(costly)),
        };
        // One address has half of them: two addresses fill all, and the turns do the rest.
        let address = match &config.rates {
            Some(_) => AddressLimit::Fixed((total / 2).max(1)),
            None => AddressLimit::Unlimited,
        };
        let limits = ShareLimits { address, total: total.max(1) };
        drop(config);
        if let Some(permit) = semaphore.try_acquire(self.ip, limits) {
            return Some(Box::new(permit));
        }
        let _counted = Counted::new(self.shared.metrics.read_permits_waiting.of(kind));
        let permit = semaphore.acquire(self.ip, limits);
        match deadline {
            None => Some(Box::new(permit.await)),
            Some(deadline) => {
                let permit = tokio::time::timeout_at(deadline.into(), permit).await.ok()?;
                Some(Box::new(permit))
            }
        }
    }
}

/// One more in a gauge until it is dropped.
struct Counted<'g>(&'g Gauge);

impl<'g> Counted<'g> {
    fn new(gauge: &'g Gauge) -> Self {
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn limits(per_address: usize, total: usize) -> ShareLimits {
        ShareLimits { address: AddressLimit::Fixed(per_address), total }
    }

    /// Requests of these addresses, in this order of arrival, each held until the next has its permit. Returns the order in
    /// which they got permits.
    async fn order_of(arrivals: &[u8], limits: ShareLimits) -> Vec<u8> {
        let semaphore = Arc::new(FairSemaphore::default());
        let held = semaphore.try_acquire(ip(255), limits).unwrap();
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in arrivals.iter().copied() {
            let (semaphore, done) = (Arc::clone(&semaphore), done.clone());
            tokio::spawn(async move {
                let permit = semaphore.acquire(ip(number), limits).await;
                done.send(number).unwrap();
                tokio::task::yield_now().await;
                drop(permit);
            });
            tokio::task::yield_now().await;
        }
        drop((held, done));
        let mut all = Vec::new();
        while let Some(number) = order.recv().await {
            all.push(number);
        }
        assert_eq!(semaphore.shares.total(), 0, "all permits are given back");
        assert!(semaphore.queue.lock().waiting.is_empty());
        all
    }

    #[tokio::test]
    async fn an_address_with_many_waiting_requests_does_not_delay_others() {
        // Y-1
        let order = order_of(&[1, 1, 1, 1, 1, 1, 2, 2, 3], limits(1, 1)).await;
        assert_eq!(order, [1, 2, 3, 1, 2, 1, 1, 1, 1]);
    }

    #[tokio::test]
    async fn one_address_never_has_all_permits() {
        // Y-1
        let semaphore = Arc::new(FairSemaphore::default());
        let first = semaphore.try_acquire(ip(1), limits(2, 4)).unwrap();
        let second = semaphore.try_acquire(ip(1), limits(2, 4)).unwrap();
        assert!(semaphore.try_acquire(ip(1), limits(2, 4)).is_none());
        let waiting = semaphore.acquire(ip(1), limits(2, 4));
        tokio::pin!(waiting);
        assert!(futures_now(waiting.as_mut()).await.is_none());
        let other = semaphore.acquire(ip(2), limits(2, 4)).await;
        drop(first);
        assert!(futures_now(waiting.as_mut()).await.is_some(), "the next of the same address has its turn");
        drop((second, other));
    }

    #[tokio::test]
    async fn a_permit_for_a_waiter_that_has_left_goes_to_the_next() {
        let semaphore = Arc::new(FairSemaphore::default());
        let held = semaphore.try_acquire(ip(1), limits(1, 1)).unwrap();
        let mut leaving = Box::pin(semaphore.acquire(ip(2), limits(1, 1)));
        assert!(futures_now(leaving.as_mut()).await.is_none());
        let mut waiting = Box::pin(semaphore.acquire(ip(3), limits(1, 1)));
        assert!(futures_now(waiting.as_mut()).await.is_none());
        // The permit is already in the channel of the waiter that leaves.
        drop(held);
        drop(leaving);
        assert!(futures_now(waiting.as_mut()).await.is_some());
        assert_eq!(semaphore.queue.lock().waiting.len(), 0);
    }

    #[tokio::test]
    async fn a_slash_48_has_one_turn_in_a_round() {
        // Y-1
        let semaphore = Arc::new(FairSemaphore::default());
        let limits = ShareLimits { address: AddressLimit::Unlimited, total: 1 };
        let held = semaphore.try_acquire(ip(1), limits).unwrap();
        let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
        for address in ["2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:1:3::1", "192.0.2.9"] {
            let (semaphore, done) = (Arc::clone(&semaphore), done.clone());
            tokio::spawn(async move {
                let permit = semaphore.acquire(address.parse().unwrap(), limits).await;
                done.send(address).unwrap();
                drop(permit);
            });
            tokio::task::yield_now().await;
        }
        drop((held, done));
        assert_eq!(order.recv().await, Some("2001:db8:1:1::1"));
        assert_eq!(order.recv().await, Some("192.0.2.9"));
    }

    async fn futures_now<F: Future + Unpin>(future: F) -> Option<F::Output> {
        tokio::time::timeout(Duration::ZERO, future).await.ok()
    }
}
