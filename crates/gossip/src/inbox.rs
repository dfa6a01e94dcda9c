//! What comes in: counted, bounded, and given to the relay in batches.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use bytes::Bytes;
use kukuri_domain::{Origin, TopicId};
use kukuri_relay::Refused;
use kukuri_store::Outcome;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    bridge::Shared,
    fetching,
    figures::{Dropped, Figures, fate},
    pace::{Allowance, IN_BURST},
    peer::PeerId,
    settings::{GossipLimits, Rate},
    wire::{Message, Unreadable},
};

/// What may wait for the relay, in messages and in bytes.
const MOST_WAITING: usize = 8_192;
const MOST_BYTES: usize = 64 << 20;
/// What is given to the relay at a time.
const BATCH: usize = 512;
/// Peers that are counted one by one; those that rest are forgotten first.
const MOST_COUNTED: usize = 1_024;

/// The way in.
pub(crate) struct Inbox {
    queue: mpsc::Sender<Arrived>,
    room: Arc<Semaphore>,
    allowances: Mutex<Allowances>,
    figures: Arc<Figures>,
}

/// A message that waits.
pub(crate) struct Arrived {
    peer: PeerId,
    topic: TopicId,
    content: Bytes,
    room: OwnedSemaphorePermit,
}

/// What peers may still send (G-6).
struct Allowances {
    all: Allowance,
    each: Rate,
    by_peer: HashMap<PeerId, Allowance>,
}

impl Allowances {
    fn admit(&mut self, peer: PeerId, bytes: usize, now: Instant) -> bool {
        if self.by_peer.len() >= MOST_COUNTED {
            self.by_peer.retain(|_, allowance| !allowance.is_rested(now));
        }
        let each = self.each;
        let own = self.by_peer.entry(peer).or_insert_with(|| Allowance::new(each, IN_BURST, now));
        // Who is over its own share takes nothing of what all have together.
        own.admit(bytes, now) && self.all.admit(bytes, now)
    }
}

impl Inbox {
    pub(crate) fn new(limits: &GossipLimits, figures: Arc<Figures>) -> (Self, mpsc::Receiver<Arrived>) {
        let (queue, arrived) = mpsc::channel(MOST_WAITING);
        let now = Instant::now();
        let allowances = Allowances {
            all: Allowance::new(limits.from_all, IN_BURST, now),
            each: limits.from_peer,
            by_peer: HashMap::new(),
        };
        let room = Arc::new(Semaphore::new(MOST_BYTES));
        (Self { queue, room, allowances: Mutex::new(allowances), figures }, arrived)
    }

    /// Takes a message, or drops it: nothing waits here, and nothing is answered.
    pub(crate) fn offer(&self, topic: &TopicId, peer: PeerId, content: Bytes) {
        self.figures.received.increment(1);
        if let Err(why) = self.try_offer(topic, peer, content) {
            self.figures.dropped(why);
        }
    }

    fn try_offer(&self, topic: &TopicId, peer: PeerId, content: Bytes) -> Result<(), Dropped> {
        if !self.admits(peer, content.len()) {
            return Err(Dropped::Rate);
        }
        let bytes = u32::try_from(content.len()).map_err(|_| Dropped::Oversize)?;
        let room = Arc::clone(&self.room).try_acquire_many_owned(bytes).map_err(|_| Dropped::Queue)?;
        let arrived = Arrived { peer, topic: topic.clone(), content, room };
        self.queue.try_send(arrived).map_err(|_| Dropped::Queue)
    }

    /// Counts what a peer sends or asks for.
    pub(crate) fn admits(&self, peer: PeerId, bytes: usize) -> bool {
        self.allowances.lock().unwrap_or_else(PoisonError::into_inner).admit(peer, bytes, Instant::now())
    }

    /// How many messages wait.
    pub(crate) fn waiting(&self) -> usize {
        MOST_WAITING - self.queue.capacity()
    }
}

/// Gives the relay what waits, for as long as there is a bridge.
pub(crate) async fn take(shared: Arc<Shared>, mut arrived: mpsc::Receiver<Arrived>) {
    let mut some = Vec::with_capacity(BATCH);
    while arrived.recv_many(&mut some, BATCH).await > 0 {
        let mut batch = Vec::with_capacity(some.len());
        // Room is given back when all of it is decided on.
        let mut held = Vec::with_capacity(some.len());
        for Arrived { peer, topic, content, room } in some.drain(..) {
            held.push(room);
            match Message::decode(content) {
                Ok(Message::Event(json)) => batch.push((json, Origin::Gossip { peer: *peer.as_bytes(), topic })),
                Ok(Message::Announcement(id)) => fetching::fetch_soon(&shared, peer, topic, id),
                Err(Unreadable::Version) => shared.figures.dropped(Dropped::Version),
                Err(Unreadable::Malformed) => shared.figures.dropped(Dropped::Malformed),
            }
        }
        take_in(&shared, batch).await;
    }
}

/// Gives events to the relay, and counts and tells what becomes of them.
pub(crate) async fn take_in(shared: &Shared, batch: Vec<(Bytes, Origin)>) -> Vec<Result<Outcome, Refused>> {
    if batch.is_empty() {
        return Vec::new();
    }
    let answers = shared.relay.take_in(batch).await;
    for answer in &answers {
        match fate(answer) {
            None => shared.figures.accepted.increment(1),
            Some(why) => shared.figures.dropped(why),
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use iroh::SecretKey;

    use super::*;

    #[test]
    fn who_floods_is_cut_off_and_the_others_are_heard() {
        // G-6
        let now = Instant::now();
        let rate = |messages| Rate { messages, bytes: 1 << 30 };
        let mut allowances =
            Allowances { all: Allowance::new(rate(50), IN_BURST, now), each: rate(10), by_peer: HashMap::new() };
        let peer = |number: u16| {
            let mut bytes = [1; 32];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            SecretKey::from_bytes(&bytes).public()
        };
        let mut taken = |number, at| (0..1_000).filter(|_| allowances.admit(peer(number), 1, at)).count();
        assert!((20..=21).contains(&taken(1, now)), "its own burst and no more");
        assert!((20..=21).contains(&taken(2, now)), "another is not held up by it");
        let rest: usize = (3..100).map(|number| taken(number, now)).sum();
        assert!((55..=62).contains(&rest), "all together have a bound too: {rest}");
        let later = now + Duration::from_secs(3_600);
        for number in 0..3_000 {
            allowances.admit(peer(number), 1, later + Duration::from_secs(u64::from(number)));
        }
        assert!(allowances.by_peer.len() <= MOST_COUNTED, "strangers do not add up");
    }
}
