//! Topics with too few neighbours are joined anew, with all peers that are known: the library does not do so by itself.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    bridge::Shared,
    dialling::Dialling,
    net::Net,
    peer::PeerId,
    swarm::Joined,
    watchdog::{Wedged, patiently},
};

const LOOK_EVERY: Duration = Duration::from_millis(250);
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// A peer that was connected for this long has let us in. Whoever does not, closes what seemed to be open a moment later.
const STAYS: Duration = Duration::from_secs(3);
/// Topics that are joined anew at a time: a peer with thousands of them comes back piece by piece.
const AT_ONCE: usize = 512;
/// Up to this many known peers, all of them should be neighbours: in a small swarm nobody else brings them back.
const SMALL: usize = 4;
/// In a larger one so many neighbours are enough. The library keeps five, and exchanges them by itself.
const ENOUGH: usize = 3;
/// Peers that topics are joined with.
pub(crate) const MOST_CANDIDATES: usize = 16;

/// When to try next.
#[derive(Debug)]
pub(crate) struct Backoff {
    delay: Duration,
    next: Instant,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { delay: FIRST, next: jittered(Instant::now(), FIRST) }
    }
}

impl Backoff {
    /// For a first try without a wait.
    pub(crate) fn at_once() -> Self {
        Self { delay: FIRST, next: Instant::now() }
    }

    /// Something has changed: the next try is soon.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Somebody has come: the next try is now.
    fn hurry(&mut self) {
        *self = Self::at_once();
    }

    /// Whether to try now. If so, the next try is later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.delay = (self.delay * 2).min(LONGEST);
            self.next = jittered(now, self.delay);
        }
        is_due
    }
}

/// Somewhere between half of it and one and a half: topics and nodes do not act in step.
pub(crate) fn jittered(now: Instant, delay: Duration) -> Instant {
    now + delay / 2 + delay * u32::try_from(random(1_000)).unwrap_or_default() / 1_000
}

/// A number below `below`: for jitter, not for secrets.
pub(crate) fn random(below: u64) -> u64 {
    RandomState::new().hash_one(0) % below.max(1)
}

/// Joins anew for as long as gossip moves.
pub(crate) async fn rejoin(shared: &Shared, net: &Net) -> Wedged {
    let (mut dialling, mut arrived) = (Dialling::default(), BTreeSet::new());
    loop {
        if let Err(wedged) = look(shared, net, &mut dialling, &arrived).await {
            return wedged;
        }
        arrived = tokio::select! {
            arrived = net.door.arrivals() => arrived,
            () = sleep(LOOK_EVERY) => BTreeSet::new(),
        };
    }
}

async fn look(shared: &Shared, net: &Net, dialling: &mut Dialling, arrived: &BTreeSet<PeerId>) -> Result<(), Wedged> {
    dialling.hand_over(net).await?;
    let known = shared.book.candidates(&BTreeSet::new(), MOST_CANDIDATES);
    let connected = net.door.connected();
    let hurries = |peer: &PeerId| arrived.contains(peer) && dialling.is_hurried_by(*peer);
    let hurrying: BTreeSet<PeerId> = known.iter().copied().filter(hurries).collect();
    let came_lately = |peer: &PeerId| connected.get(peer).is_some_and(|since| since.elapsed() < STAYS);
    let mut lately: BTreeSet<PeerId> = known.iter().copied().filter(came_lately).collect();
    let (mut tried, mut wanted) = (0, BTreeSet::new());
    for joined in shared.swarm.all() {
        let neighbours = joined.around.neighbours();
        lately.retain(|peer| !neighbours.contains(peer));
        let missing = missing(&known, &neighbours);
        let (there, away): (Vec<PeerId>, Vec<PeerId>) =
            missing.into_iter().partition(|peer| connected.contains_key(peer));
        wanted.extend(away);
        if there.iter().any(|peer| hurrying.contains(peer)) {
            joined.around.backoff().hurry();
        }
        if there.is_empty() || tried >= AT_ONCE || !joined.around.backoff().is_due(Instant::now()) {
            continue;
        }
        tried += 1;
        shared.figures.rejoins.increment(1);
        join(&joined, there).await?;
    }
    dialling.forget_all_but(&wanted, &lately);
    dialling.dial(net, &wanted);
    Ok(())
}

async fn join(joined: &Joined, peers: Vec<PeerId>) -> Result<(), Wedged> {
    // An error means that the topic, or all of gossip, is being left.
    patiently("no answer to join", joined.sender.join_peers(peers)).await.map(drop)
}

/// Whom of the known a topic with these neighbours should be joined with.
fn missing(known: &[PeerId], neighbours: &BTreeSet<PeerId>) -> Vec<PeerId> {
    let others: Vec<PeerId> = known.iter().filter(|peer| !neighbours.contains(*peer)).copied().collect();
    let is_small = others.len() + neighbours.len() <= SMALL;
    if is_small || neighbours.len() < ENOUGH { others } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use iroh::SecretKey;

    use super::*;

    fn id(number: u8) -> PeerId {
        SecretKey::from_bytes(&[number; 32]).public()
    }

    #[test]
    fn a_small_swarm_keeps_everyone_and_a_large_one_enough() {
        for (known, neighbours, missing_count, why) in [
            (0, 0, 0, "nobody is known"),
            (2, 0, 2, "all that are known"),
            (2, 1, 1, "the one that is missing"),
            (4, 3, 1, "five members keep everyone"),
            (4, 4, 0, "all are there"),
            (9, 3, 0, "enough of many"),
            (9, 2, 7, "too few of many"),
        ] {
            let known: Vec<PeerId> = (1..=known).map(id).collect();
            let neighbours = (1..=neighbours).map(id).collect();
            assert_eq!(missing(&known, &neighbours).len(), missing_count, "{why}");
        }
    }

    #[test]
    fn tries_become_rarer_until_something_changes() {
        let mut backoff = Backoff::default();
        let mut now = Instant::now();
        assert!(!backoff.is_due(now));
        let mut waited = Vec::new();
        for _ in 0..12 {
            let before = now;
            while !backoff.is_due(now) {
                now += Duration::from_millis(100);
            }
            waited.push(now - before);
        }
        assert!(waited[0] <= FIRST * 2);
        assert!(waited[11] >= LONGEST / 2 && waited[11] <= LONGEST * 2, "{waited:?}");
        backoff.reset();
        assert!(backoff.is_due(Instant::now() + FIRST * 2));
    }
}
