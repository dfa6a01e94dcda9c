//! An index behind a consumer of a changing store: after crashes, replays and rebuilds it holds exactly the effective events of
//! the indexed kinds (O-6 to O-8, C-1).

use std::{cell::Cell, collections::BTreeSet, sync::Arc, time::Duration};

use kukuri_domain::{
    Event, EventId, Kind, Millis, PublicKey, TopicId,
    retention::{Keep, Retention},
};
use kukuri_outbox::{Consumer, ConsumerSettings, Handle, State};
use kukuri_store::{
    SnapshotCursor, StoreRules,
    conformance::build::{self, ALICE, BOB, Draft, OTHER_TOPIC, admitted},
    model::ModelStore,
    port::*,
};
use proptest::{collection::vec, prelude::*, sample::select};
use tokio::time::{Instant, sleep};

use crate::{IndexSink, Search, SearchIndex, SearchQuery, document::DEFAULT_KINDS, index_consumer::CONSUMER};

/// Longer than all retries and leases. Time is simulated.
const SETTLE_TIME: Duration = Duration::from_secs(120);
/// In every text, so that one search finds all.
const WORD: &str = "猫の話";

/// An event to make. Reactions are not indexed.
#[derive(Clone, Debug)]
enum Recipe {
    Note { number: u8, ends: Option<u64> },
    Reaction(u8),
    Profile(u8),
    Article(u8, u8),
    Deletion { of: u8, by_address: bool },
    Vanish(u8),
}

#[derive(Clone, Debug)]
enum StoreStep {
    Send(Vec<(Recipe, PublicKey)>),
    Expire,
    Purge {
        regular: u64,
        outbox: u64,
    },
    Rest(Duration),
    /// The consumer is aborted and started again.
    Crash,
    /// Consumer and index are dropped and opened again.
    Restart,
    Replay(u8),
    Rebuild,
}

/// Steps on a store and its consumer.
#[derive(Clone, Debug)]
pub struct StoreHistory {
    steps: Vec<StoreStep>,
}

/// Random histories.
pub fn store_histories() -> impl Strategy<Value = StoreHistory> {
    let recipe = prop_oneof![
        6 => (any::<u8>(), proptest::option::weighted(0.3, 1_u64..200)).prop_map(|(number, ends)| Recipe::Note { number, ends }),
        1 => any::<u8>().prop_map(Recipe::Reaction),
        2 => any::<u8>().prop_map(Recipe::Profile),
        4 => (0_u8..3, any::<u8>()).prop_map(|(key, version)| Recipe::Article(key, version)),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(of, by_address)| Recipe::Deletion { of, by_address }),
        1 => any::<u8>().prop_map(Recipe::Vanish),
    ];
    let author = select(vec![ALICE, ALICE, BOB]);
    let rest = prop_oneof![
        3 => (0_u64..300).prop_map(Duration::from_millis),
        1 => (1_u64..100).prop_map(Duration::from_secs),
    ];
    let step = prop_oneof![
        8 => vec((recipe, author), 1..6).prop_map(StoreStep::Send),
        1 => Just(StoreStep::Expire),
        1 => (1_u64..200, 1_u64..200).prop_map(|(regular, outbox)| StoreStep::Purge { regular, outbox }),
        5 => rest.prop_map(StoreStep::Rest),
        1 => Just(StoreStep::Crash),
        1 => Just(StoreStep::Restart),
        1 => any::<u8>().prop_map(StoreStep::Replay),
        1 => Just(StoreStep::Rebuild),
    ];
    vec(step, 1..40).prop_map(|steps| StoreHistory { steps })
}

/// Runs a history and compares index and store at the end. `open` opens the same index each time, after the last instance was
/// dropped. Needs a single-threaded runtime of its own with paused time.
pub async fn run_store_history(history: StoreHistory, mut open: impl AsyncFnMut() -> Arc<dyn SearchIndex>) {
    START.set(Some(Instant::now()));
    let mut run = Run::begin(open().await);
    for step in history.steps {
        match step {
            StoreStep::Send(recipes) => run.send(recipes).await,
            StoreStep::Expire => drop(run.store.expire(clock()).await.expect("a sweep")),
            StoreStep::Purge { regular, outbox } => run.purge(regular, outbox).await,
            StoreStep::Rest(time) => sleep(time).await,
            StoreStep::Crash => {
                run.consumer.abort().await;
                run.consumer = start(&run.store, &run.index);
            }
            StoreStep::Restart => {
                let Run { store, index, consumer, sent } = run;
                consumer.abort().await;
                drop(index);
                // Paused time does not advance before blocking work of the old index has ended.
                sleep(Duration::from_millis(1)).await;
                let index = open().await;
                run = Run { consumer: start(&store, &index), store, index, sent };
            }
            StoreStep::Replay(back) => {
                let offset = run.consumer.status().borrow().offset.0;
                run.consumer.replay(kukuri_store::Seq(offset.saturating_sub(back.into()))).await;
            }
            StoreStep::Rebuild => run.consumer.rebuild().await.expect("a rebuild"),
        }
    }
    run.end().await;
}

struct Run {
    store: Arc<ModelStore>,
    index: Arc<dyn SearchIndex>,
    consumer: Handle,
    sent: Vec<Event>,
}

impl Run {
    fn begin(index: Arc<dyn SearchIndex>) -> Self {
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        Self { consumer: start(&store, &index), store, index, sent: Vec::new() }
    }

    async fn send(&mut self, recipes: Vec<(Recipe, PublicKey)>) {
        let before = self.sent.len();
        for (recipe, author) in recipes {
            let event = recipe.draft(&self.sent).by(author).build();
            self.sent.push(event);
        }
        self.store.ingest(self.sent[before..].iter().map(admitted).collect(), clock()).await.expect("events");
    }

    async fn purge(&self, regular: u64, outbox: u64) {
        let seconds = |seconds| Keep::For(Duration::from_secs(seconds));
        let retention = Retention { regular: seconds(regular), outbox: seconds(outbox), ..Retention::default() };
        self.store.purge(&retention, clock()).await.expect("a purge");
    }

    async fn end(self) {
        sleep(SETTLE_TIME).await;
        // Expired events get their outbox rows by a sweep (X-3).
        self.store.expire(clock()).await.expect("a sweep");
        let head = self.store.stats().await.expect("figures").head;
        if !self.consumer.caught_up(head).await {
            // The purge removed rows that the consumer needs (O-8).
            let state = self.consumer.status().borrow().state.clone();
            assert!(matches!(state, State::TooFarBehind { .. }), "{state:?}");
            self.consumer.rebuild().await.expect("a rebuild");
            sleep(SETTLE_TIME).await;
            assert!(self.consumer.caught_up(head).await);
        }
        assert_eq!(self.index.reached().await.expect("a position").map(|position| position.seq), Some(head));
        let (all, in_other_topic) = self.effective().await;
        let ids = self.index.ids(None, usize::MAX).await.expect("ids");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), all, "C-1");
        assert_eq!(self.found(None).await, all, "a search finds all of them");
        assert_eq!(self.found(Some(OTHER_TOPIC)).await, in_other_topic, "and by each of their topics");
        self.consumer.stop().await;
    }

    /// Effective events of indexed kinds: all of them, and the subset in the other topic.
    async fn effective(&self) -> (BTreeSet<EventId>, BTreeSet<EventId>) {
        let page = self.store.snapshot(SnapshotCursor::default(), usize::MAX).await.expect("a snapshot");
        let kinds = DEFAULT_KINDS.map(Kind);
        let indexed = page.events.iter().filter(|bound| kinds.contains(&bound.event.event().expect("an event").kind));
        let ids = |other_only: bool| {
            let is_in = move |topics: &[TopicId]| !other_only || topics.contains(&build::other_topic());
            indexed.clone().filter(|bound| is_in(&bound.topics)).map(|bound| bound.event.id).collect()
        };
        (ids(false), ids(true))
    }

    async fn found(&self, topic: Option<&str>) -> BTreeSet<EventId> {
        let query = SearchQuery::parse(WORD).expect("a query");
        let topics = topic.map(|topic| vec![TopicId::new_unchecked(topic)]);
        let search = Search { topics, ..Search::new(query, clock().seconds(), 10_000) };
        self.index.search(&search).await.expect("hits").into_iter().map(|hit| hit.id).collect()
    }
}

impl Recipe {
    fn draft(&self, sent: &[Event]) -> Draft {
        match self {
            Self::Note { number, ends } => {
                let note = build::note(&format!("{WORD} {number}")).at(u64::from(*number));
                let note = if number % 3 == 0 { note.tag(["t", OTHER_TOPIC]) } else { note };
                ends.iter().fold(note, |note, seconds| note.until(*seconds))
            }
            Self::Reaction(number) => build::event(7).content(&format!("{WORD} {number}")),
            Self::Profile(version) => {
                build::profile(&format!(r#"{{"about":"{WORD} {version}"}}"#)).at(u64::from(*version))
            }
            Self::Article(key, version) => {
                build::article(&key.to_string(), &format!("{WORD} {version}")).at(u64::from(*version))
            }
            Self::Deletion { of, by_address } => {
                let deletion = build::deletion().at(200);
                match sent.get(usize::from(*of) % sent.len().max(1)) {
                    Some(target) if *by_address && target.address().is_some() => deletion.of_key(target),
                    Some(target) => deletion.of(target),
                    None => deletion,
                }
            }
            Self::Vanish(until) => build::vanish().at(u64::from(*until)),
        }
    }
}

fn start(store: &Arc<ModelStore>, index: &Arc<dyn SearchIndex>) -> Handle {
    // Small batches, so that steps fall between any two rows.
    let settings = ConsumerSettings { batch_rows: 3, clock, ..ConsumerSettings::default() };
    let sink = IndexSink::with_default_kinds(Arc::clone(index), Arc::clone(store) as _);
    Consumer::start(CONSUMER, Arc::clone(store) as _, Arc::new(sink), settings)
}

thread_local!(static START: Cell<Option<Instant>> = const { Cell::new(None) });

/// The simulated time of the runtime.
fn clock() -> Millis {
    let since = START.get().map_or(Duration::ZERO, |start| Instant::now().saturating_duration_since(start));
    Millis(build::NOW.0 + since.as_millis() as u64)
}
