//! Followers of the feed that are killed and resumed at random, while the store changes: in the end each holds exactly
//! the effective events of the topic (W-8, O-8).

use std::{cell::Cell, collections::BTreeSet, time::Duration};

use crate::support::{Answer, Message, Node, Stream, clock, seq_of, set_clock};
use kukuri_domain::{
    Event, EventId, Kind,
    retention::{Keep, Retention},
    topic::TopicsMode,
};
use kukuri_store::{
    SnapshotCursor,
    conformance::build::{
        BOB, Draft, OTHER_TOPIC, RELAY, TOPIC, article, bare, deletion, event, later, note, profile, topic,
    },
    port::*,
};
use proptest::{
    option,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use serde_json::Value;

/// Their streams share outbox reads, and must not disturb each other.
const FOLLOWERS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
    Note(u8),
    Elsewhere(u8),
    Both(u8),
    Article(u8, u8),
    Profile(u8),
    Private(u8),
    Expiring(u8),
    Delete(u8),
    Vanish(u8),
    /// Seconds pass, then the store expires events.
    Expire(u8),
    Purge,
    /// The outbox is truncated.
    Truncate,
    /// Follower, number of pages, their limit.
    Pages(usize, u8, u8),
    /// Follower, number of batches of a stream; if there is a number, the follower dies after that many messages of the
    /// last batch.
    Stream(usize, u8, Option<usize>),
    /// Follower, number of stored sequences that it loses.
    Kill(usize, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let byte = any::<u8>;
    let step = prop_oneof![
        4 => byte().prop_map(Step::Note),
        2 => byte().prop_map(Step::Elsewhere),
        2 => byte().prop_map(Step::Both),
        4 => (0_u8..3, 0_u8..20).prop_map(|(key, version)| Step::Article(key, version)),
        2 => (0_u8..20).prop_map(Step::Profile),
        1 => byte().prop_map(Step::Private),
        2 => (1_u8..100).prop_map(Step::Expiring),
        4 => byte().prop_map(Step::Delete),
        1 => (0_u8..20).prop_map(Step::Vanish),
        2 => (0_u8..40).prop_map(Step::Expire),
        1 => Just(Step::Purge),
        1 => Just(Step::Truncate),
        5 => (0..FOLLOWERS, 1_u8..4, 1_u8..6).prop_map(|(who, pages, limit)| Step::Pages(who, pages, limit)),
        6 => (0..FOLLOWERS, 1_u8..4, option::of(0_usize..6)).prop_map(|(who, pieces, rest)| Step::Stream(who, pieces, rest)),
        2 => (0..FOLLOWERS, 0_u8..10).prop_map(|(who, back)| Step::Kill(who, back)),
    ];
    proptest::collection::vec(step, 1..80)
}

/// The stored state of a follower.
#[derive(Default)]
struct Follower {
    held: BTreeSet<EventId>,
    /// The sequence it has read; `None`: in a snapshot, or before one.
    at: Option<u64>,
    /// Sequences it has read, in order.
    places: Vec<u64>,
    /// The snapshot being read, and its cursor.
    next: (BTreeSet<EventId>, Option<String>),
    rebuilt: u32,
    /// The open stream.
    open: Option<Stream>,
    /// Changes received by streams.
    streamed: u32,
}

fn id_of(value: &Value) -> EventId {
    EventId::from_hex(value.as_str().unwrap()).unwrap()
}

impl Follower {
    fn apply(&mut self, change: &Value) {
        let id = id_of(&change["event_id"]);
        assert!(!Kind(change["kind"].as_u64().unwrap() as u16).is_private(), "E-10");
        match change["op"].as_str().unwrap() {
            "upsert" => {
                assert_eq!(id_of(&change["event"]["id"]), id);
                self.held.insert(id);
            }
            _ => {
                assert!(change["reason"].is_string());
                self.held.remove(&id);
            }
        }
    }

    fn move_to(&mut self, place: u64) {
        assert!(self.at.is_none_or(|at| at <= place), "a sequence never moves back");
        self.at = Some(place);
        self.places.push(place);
    }

    /// Begins again after a 410.
    fn begin_again(&mut self, answer: &Answer) {
        assert_eq!(answer.code(), (410, "GONE".to_owned()), "{answer:?}");
        self.at = None;
        self.next = Default::default();
    }

    /// One page of a snapshot or of changes.
    async fn read_page(&mut self, node: &Node, limit: u8) {
        self.open = None;
        let Some(after) = self.at else { return self.read_snapshot(node, limit).await };
        let answer =
            node.get(&format!("/v1/topics/{TOPIC}/changes?after={}&limit={limit}", node.position(after))).await;
        if answer.status != 200 {
            return self.begin_again(&answer);
        }
        let page = answer.json();
        page["items"].as_array().unwrap().iter().for_each(|change| self.apply(change));
        self.move_to(seq_of(&page["next"]));
    }

    async fn read_snapshot(&mut self, node: &Node, limit: u8) {
        let cursor = self.next.1.as_ref().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = node.get(&format!("/v1/topics/{TOPIC}/snapshot?limit={limit}{cursor}")).await.json();
        self.next.0.extend(page["items"].as_array().unwrap().iter().map(|event| id_of(&event["id"])));
        self.next.1 = page["cursor"].as_str().map(str::to_owned);
        if self.next.1.is_none() {
            self.held = std::mem::take(&mut self.next.0);
            self.places.clear();
            self.move_to(seq_of(&page["seq"]));
            self.rebuilt += 1;
        }
    }

    /// Loses the last sequences: the follower applies their changes again.
    fn die(&mut self, back: usize) {
        self.open = None;
        let kept = self.places.len().saturating_sub(back);
        self.places.truncate(kept.max(1));
        self.at = self.at.and(self.places.last().copied());
    }

    fn receive(&mut self, message: &Message) {
        if let Some(change) = &message.data {
            self.apply(change);
            self.streamed += 1;
        }
        message.id.into_iter().for_each(|id| self.move_to(id));
    }

    async fn read_stream(&mut self, node: &Node, pieces: u8, rest: Option<usize>) {
        let Some(after) = self.at else { return };
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => match node.stream(TOPIC, after).await {
                Ok(stream) => stream,
                Err(answer) => return self.begin_again(&answer),
            },
        };
        for piece in 1..=pieces {
            // A stream that ends is behind the outbox: opening it again gets 410.
            let Some(messages) = stream.next().await else { return };
            let received = rest.filter(|_| piece == pieces).unwrap_or(messages.len());
            messages.iter().take(received).for_each(|message| self.receive(message));
        }
        self.open = rest.is_none().then_some(stream);
    }

    /// Reads to the end of the outbox.
    async fn catch_up(&mut self, node: &Node, by_stream: bool) {
        let head = node.head().await.0;
        while self.at != Some(head) {
            if by_stream && self.at.is_some() {
                self.read_stream(node, 2, None).await;
            } else {
                self.read_page(node, 3).await;
            }
        }
    }
}

fn draft(step: &Step, sent: &[Event]) -> Option<Draft> {
    let text = |number: &u8| number.to_string();
    Some(match step {
        Step::Note(number) => note(&text(number)),
        Step::Elsewhere(number) => bare(1).tag(["t", OTHER_TOPIC]).content(&text(number)),
        Step::Both(number) => note(&text(number)).tag(["t", OTHER_TOPIC]).by(BOB),
        Step::Article(key, version) => article(&text(key), &text(version)).at((*version).into()),
        Step::Profile(version) => profile(&text(version)).at((*version).into()),
        Step::Private(number) => event(4).content(&text(number)),
        Step::Expiring(seconds) => note("brief").until((*seconds).into()),
        Step::Delete(which) if !sent.is_empty() => {
            let target = &sent[usize::from(*which) % sent.len()];
            deletion().by(target.pubkey).of(target).at(900)
        }
        Step::Vanish(second) => event(62).tag(["relay", RELAY]).by(BOB).at((*second).into()),
        _ => return None,
    })
}

async fn run(steps: Vec<Step>, by_stream: bool) -> [Follower; FOLLOWERS] {
    let node = Node::new(TopicsMode::Required);
    let mut followers: [Follower; FOLLOWERS] = Default::default();
    let (mut sent, mut second) = (Vec::new(), 0);
    set_clock(later(0));
    for step in steps {
        if let Some(draft) = draft(&step, &sent) {
            let event = draft.build();
            node.send(std::slice::from_ref(&event)).await;
            sent.push(event);
        }
        match step {
            Step::Expire(seconds) => {
                second += u64::from(seconds);
                set_clock(later(second));
                node.store.expire(clock()).await.unwrap();
            }
            Step::Purge | Step::Truncate => {
                let short = Keep::For(Duration::from_secs(20));
                let retention = match step {
                    Step::Purge => Retention { regular: short, ..Retention::default() },
                    _ => Retention { outbox: Keep::For(Duration::from_secs(5)), ..Retention::default() },
                };
                node.store.purge(&retention, clock()).await.unwrap();
            }
            Step::Pages(who, pages, limit) => {
                for _ in 0..pages {
                    followers[who].read_page(&node, limit).await;
                }
            }
            Step::Stream(who, pieces, rest) => followers[who].read_stream(&node, pieces, rest).await,
            Step::Kill(who, back) => followers[who].die(back.into()),
            _ => {}
        }
    }
    // All expirations have passed, so that the clock no longer matters.
    set_clock(later(second + 200));
    node.store.expire(clock()).await.unwrap();
    let page = node.store.snapshot(SnapshotCursor::default(), usize::MAX).await.unwrap();
    let is_shown = |event: &Event| !event.kind.is_private();
    let effective = page.events.iter().filter(|bound| bound.topics.contains(&topic()));
    let expected: BTreeSet<EventId> =
        effective.map(|bound| bound.event.event().unwrap()).filter(is_shown).map(|event| event.id).collect();
    for follower in &mut followers {
        follower.catch_up(&node, by_stream).await;
        assert_eq!(follower.held, expected);
    }
    followers
}

#[test]
fn killed_and_resumed_followers_end_with_the_effective_events_of_the_topic() {
    // W-8, O-8
    let seen = Cell::new((0, 0));
    let config = Config { cases: kukuri_testing::long::scaled(400), source_file: Some(file!()), ..Config::default() };
    let lived = TestRunner::new(config).run(&(steps(), any::<bool>()), |(steps, by_stream)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        for follower in runtime.block_on(run(steps, by_stream)) {
            let (rebuilt, streamed) = seen.get();
            seen.set((rebuilt + u32::from(follower.rebuilt > 1), streamed + u32::from(follower.streamed > 5)));
        }
        Ok(())
    });
    lived.unwrap_or_else(|failure| panic!("{failure}"));
    let (rebuilt, streamed) = seen.get();
    assert!(rebuilt > 40 && streamed > 40, "too few hard cases: {rebuilt} rebuilt, {streamed} by stream");
}
