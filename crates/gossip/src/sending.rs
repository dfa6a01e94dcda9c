//! What goes out: each event that a client of this node published, once on each of its topics (G-2), no faster than it may.
//!
//! The library tells nobody that a message was lost. So a message waits here until its topic has a neighbour, for a while.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use kukuri_domain::{Admitted, KindClass, TopicId, sharing::may_pass_on};
use tokio::{sync::mpsc, time::sleep_until};

use crate::{
    bridge::Shared,
    figures::{NotSent, Sent},
    pace::{Allowance, OUT_BURST},
    watchdog::patiently,
    wire::Message,
};

/// What may wait, in messages and in bytes.
const MOST_WAITING: usize = 16_384;
const MOST_BYTES: usize = 64 << 20;
/// A turn that is further away than this is not waited for.
const FURTHEST_TURN: Duration = Duration::from_secs(30);
/// A topic that was just opened has no neighbours yet.
const WAIT_FOR_NEIGHBOURS: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Topics that are counted one by one; those that rest are forgotten first.
const MOST_COUNTED: usize = 4_096;

/// A message that waits for its turn.
struct Outgoing {
    topic: TopicId,
    content: Bytes,
    what: Sent,
    taken_at: Instant,
}

/// What waits, by its turn.
struct Sending {
    shared: Arc<Shared>,
    waiting: BTreeMap<(Instant, u64), Outgoing>,
    bytes: usize,
    number: u64,
    all: Allowance,
    by_topic: HashMap<TopicId, Allowance>,
}

/// Sends what clients publish, for as long as there is a bridge.
pub(crate) async fn send(shared: Arc<Shared>, mut published: mpsc::Receiver<Admitted>) {
    let all = Allowance::new(shared.settings.limits.to_all, OUT_BURST, Instant::now());
    let mut sending = Sending { shared, waiting: BTreeMap::new(), bytes: 0, number: 0, all, by_topic: HashMap::new() };
    loop {
        while let Ok(admitted) = published.try_recv() {
            sending.accept(&admitted);
        }
        sending.shared.figures.outgoing.set(sending.waiting.len() as f64);
        let next = sending.waiting.keys().next().map(|(turn, _)| *turn);
        match next {
            Some(turn) if turn <= Instant::now() => sending.send_next().await,
            Some(turn) => {
                tokio::select! {
                    admitted = published.recv() => match admitted {
                        Some(admitted) => sending.accept(&admitted),
                        None => return,
                    },
                    () = sleep_until(turn.into()) => {}
                }
            }
            None => match published.recv().await {
                Some(admitted) => sending.accept(&admitted),
                None => return,
            },
        }
    }
}

impl Sending {
    /// Gives each topic of an event its turn.
    fn accept(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        if !may_pass_on(event) {
            return;
        }
        if self.shared.is_alone() {
            return self.shared.figures.not_sent(NotSent::Alone);
        }
        let message = Message::of(event.id, admitted.json());
        let what = match message {
            Message::Event(_) => Sent::Event,
            Message::Announcement(_) => {
                if event.kind.class() == KindClass::Ephemeral {
                    self.shared.large.keep(event.id, admitted.json().clone());
                }
                Sent::Announcement
            }
        };
        for topic in admitted.topics() {
            let outgoing = Outgoing { topic: topic.clone(), content: message.encode(), what, taken_at: Instant::now() };
            if let Err(why) = self.line_up(outgoing) {
                self.shared.figures.not_sent(why);
            }
        }
    }

    /// Finds the turn of a message.
    fn line_up(&mut self, outgoing: Outgoing) -> Result<(), NotSent> {
        let (now, bytes) = (outgoing.taken_at, outgoing.content.len());
        if self.waiting.len() >= MOST_WAITING || self.bytes + bytes > MOST_BYTES {
            return Err(NotSent::Queue);
        }
        if self.by_topic.len() >= MOST_COUNTED {
            self.by_topic.retain(|_, allowance| !allowance.is_rested(now));
        }
        let to_topic = self.shared.settings.limits.to_topic;
        let own =
            self.by_topic.entry(outgoing.topic.clone()).or_insert_with(|| Allowance::new(to_topic, OUT_BURST, now));
        let turn = own.when(now).max(self.all.when(now));
        if turn > now + FURTHEST_TURN {
            return Err(NotSent::Rate);
        }
        own.take(bytes, now);
        self.all.take(bytes, now);
        self.wait(turn, outgoing);
        Ok(())
    }

    fn wait(&mut self, turn: Instant, outgoing: Outgoing) {
        self.number += 1;
        self.bytes += outgoing.content.len();
        self.waiting.insert((turn, self.number), outgoing);
    }

    async fn send_next(&mut self) {
        let Some((_, outgoing)) = self.waiting.pop_first() else { return };
        self.bytes -= outgoing.content.len();
        let joined = self.shared.swarm.get(&outgoing.topic).filter(|joined| !joined.around.is_alone());
        let Some(joined) = joined else {
            if outgoing.taken_at.elapsed() > WAIT_FOR_NEIGHBOURS {
                return self.shared.figures.not_sent(NotSent::NoNeighbour);
            }
            return self.wait(Instant::now() + LOOK_AGAIN, outgoing);
        };
        match patiently("no answer to broadcast", joined.sender.broadcast(outgoing.content.clone())).await {
            Ok(Ok(())) => self.shared.figures.sent(outgoing.what),
            // The topic is being left, or all of gossip replaced: nothing went out.
            Ok(Err(_)) => self.wait(Instant::now() + LOOK_AGAIN, outgoing),
            Err(wedged) => {
                let is_current = self.shared.swarm.get(&outgoing.topic).is_some_and(|now| Arc::ptr_eq(&now, &joined));
                if is_current {
                    self.shared.trouble(wedged);
                }
                self.wait(Instant::now() + LOOK_AGAIN, outgoing);
            }
        }
    }
}
