//! Crash test: a store that is killed while it writes keeps everything that it acknowledged (P-3, O-3).
//!
//! The test runs itself as a child process, which ingests batch after batch and prints an acknowledgement after each.
//! The parent kills the child at a random moment, opens the store, and compares it with the model. Then the next child
//! continues.

use std::{
    env,
    fmt::Display,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use kukuri_domain::{Event, Millis};
use kukuri_testing::long::scaled;
use proptest::{
    collection::vec,
    prelude::{Strategy, any},
    sample::Index,
    strategy::ValueTree,
    test_runner::TestRunner,
};

use super::{
    block_on,
    build::{NOW, admitted},
    fold::{self, Follower},
    probe::Portrait,
    world::{Recipe, recipes},
};
use crate::{ingest::StoreRules, model::ModelStore, port::*};

/// Environment variable: the path of the child's store. A process in which it is set is a child.
const PLACE: &str = "KUKURI_CRASH_PLACE";
/// Environment variable: the number of the child's first batch.
const FIRST: &str = "KUKURI_CRASH_FIRST";
/// Environment variable: the number of batches that the child ingests unless it is killed first.
const COUNT: &str = "KUKURI_CRASH_COUNT";
/// Number of kills; ten times as many in a long run.
const ROUNDS: u32 = 50;
/// The line that the child prints after a batch, followed by the batch number.
pub(super) const ACKNOWLEDGEMENT: &str = "acknowledged ";

/// In the parent, kills children and checks the store for all rounds; in a child, ingests batches.
///
/// `test` is the full name of the test that calls this; that test must do nothing else. `place` is the location of the
/// store, in a form that `open` understands. `open` opens the store there with [`StoreRules::default`], as durable as
/// on a node.
pub fn everything_acknowledged_survives_a_kill(test: &str, place: &str, open: impl AsyncFn(&str) -> Arc<dyn Store>) {
    match env::var(PLACE) {
        Ok(place) => block_on(async { work(&*open(&place).await).await }),
        Err(_) => Parent::new(test, place).kill_children(open),
    }
}

/// The command that runs the test `test` as a child, which ingests the first `count` batches into the store at `place`.
pub fn child(test: &str, place: &str, count: u64) -> Command {
    child_from(test, place, 0, count)
}

fn child_from(test: &str, place: &str, first: u64, count: u64) -> Command {
    let mut command = Command::new(env::current_exe().expect("the running test"));
    command.args(["--exact", test, "--nocapture"]);
    command.env(PLACE, place).env(FIRST, first.to_string()).env(COUNT, count.to_string());
    command
}

/// The child: ingests batches and acknowledges each on stdout.
async fn work(store: &dyn Store) {
    let (first, count) = (number(FIRST, 0), number(COUNT, u64::MAX));
    let mut history = History::default();
    for _ in 0..first {
        history.next();
    }
    let mut stdout = std::io::stdout();
    // The test harness may have printed an incomplete line.
    stdout.write_all(b"\n").expect("a listening parent");
    for batch in (first..).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        let events = history.next().iter().map(admitted).collect();
        store.ingest(events, moment_of(batch)).await.expect("a batch");
        stdout.write_all(format!("{ACKNOWLEDGEMENT}{batch}\n").as_bytes()).expect("a listening parent");
        stdout.flush().expect("a listening parent");
    }
}

fn number(variable: &str, default: u64) -> u64 {
    env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn moment_of(batch: u64) -> Millis {
    Millis(NOW.0 + batch)
}

/// A pseudo-random sequence of batches, identical in every process.
struct History {
    runner: TestRunner,
    events: Vec<Event>,
    batches: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { runner: TestRunner::deterministic(), events: Vec::new(), batches: 0 }
    }
}

impl History {
    /// Requests name events among the last this many, so that their targets still exist.
    const REACH: usize = 40;

    fn next(&mut self) -> Vec<Event> {
        // `created_at` advances, so that a vanish request does not cover all later events.
        let shift = self.batches / 2;
        self.batches += 1;
        let (recipes, repeats) = draw(&(vec(recipes(), 1..12), vec(any::<Index>(), 0..3)), &mut self.runner);
        let batch: Vec<Event> = recipes.iter().map(|recipe| self.make(recipe, shift)).collect();
        let repeats: Vec<Event> = repeats.iter().map(|index| index.get(&self.events).clone()).collect();
        batch.into_iter().chain(repeats).collect()
    }

    fn make(&mut self, recipe: &Recipe, shift: u64) -> Event {
        let event = recipe.build(&self.events[self.events.len().saturating_sub(Self::REACH)..], shift);
        self.events.push(event.clone());
        event
    }
}

fn draw<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    strategy.new_tree(runner).expect("a strategy that rejects nothing").current()
}

/// Kills children and compares their store with the model.
struct Parent<'p> {
    test: &'p str,
    place: &'p str,
    model: ModelStore,
    history: History,
    /// Number of batches that the model has ingested.
    taken: u64,
    /// Randomness that, unlike the history, differs from run to run.
    dice: TestRunner,
}

impl<'p> Parent<'p> {
    fn new(test: &'p str, place: &'p str) -> Self {
        let model = ModelStore::new(StoreRules::default());
        Self { test, place, model, history: History::default(), taken: 0, dice: TestRunner::default() }
    }

    fn kill_children(mut self, open: impl AsyncFn(&str) -> Arc<dyn Store>) {
        let rounds = u64::from(scaled(ROUNDS));
        for round in 0..rounds {
            let acknowledged = self.run_and_kill();
            block_on(async {
                let store = open(self.place).await;
                self.compare(&*store, acknowledged, round).await;
            });
        }
        assert!(self.taken > rounds, "{rounds} children took in {} batches: too few to show anything", self.taken);
    }

    /// Runs a child and kills it at a random moment. Returns the total number of acknowledged batches.
    fn run_and_kill(&mut self) -> u64 {
        let (after, microseconds) = draw(&(0..12u64, 0..4_000u64), &mut self.dice);
        let mut command = child_from(self.test, self.place, self.taken, u64::MAX);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a child");
        let mut said = BufReader::new(child.stdout.take().expect("its output"));
        let mut acknowledged = self.taken;
        while acknowledged < self.taken + after {
            match next_acknowledgement(&mut said) {
                Some(batch) => acknowledged = batch + 1,
                None => fail(child, "ended by itself"),
            }
        }
        // With `after == 0` the child is killed while it starts.
        thread::sleep(Duration::from_micros(microseconds * if after == 0 { 10 } else { 1 }));
        child.kill().expect("a child to kill");
        while let Some(batch) = next_acknowledgement(&mut said) {
            acknowledged = batch + 1;
        }
        let status = child.wait().expect("its end");
        assert!(status.code().is_none(), "the child ended by itself: {status}");
        acknowledged
    }

    /// Checks that the store holds every acknowledged batch and at most one more: one that was committed before the
    /// kill but not acknowledged.
    async fn compare(&mut self, store: &dyn Store, acknowledged: u64, round: u64) {
        while self.taken < acknowledged {
            self.take_in().await;
        }
        let mut differences = self.differences(store).await;
        if !differences.is_empty() {
            self.take_in().await;
            if self.differences(store).await.is_empty() {
                differences.clear();
            }
        }
        assert!(differences.is_empty(), "round {round}, {acknowledged} batches acknowledged:{differences}");

        let events: Vec<_> = self.history.events.iter().collect();
        let expected = Some(fold::held_by(store, &fold::topics_of(&events)).await);
        assert_eq!(fold::from_start(store).await, expected, "round {round}: all rows from the start");
        let follower = Follower::begin(store, 50).await;
        assert_eq!(follower.catch_up(store).await, expected, "round {round}: a snapshot");
        let problems = store.check().await.expect("a check").problems;
        assert!(problems.is_empty(), "round {round}: {problems:#?}");
    }

    async fn take_in(&mut self) {
        let events = self.history.next().iter().map(admitted).collect();
        self.model.ingest(events, moment_of(self.taken)).await.expect("a batch");
        self.taken += 1;
    }

    async fn differences(&self, store: &dyn Store) -> String {
        let events = &self.history.events;
        let found = Portrait::of(store, events, NOW).await.without_counts();
        found.differences(&Portrait::of(&self.model, events, NOW).await.without_counts())
    }
}

/// The number of the next batch that the child acknowledges. An incomplete line does not count.
fn next_acknowledgement(said: &mut BufReader<ChildStdout>) -> Option<u64> {
    loop {
        let mut line = String::new();
        said.read_line(&mut line).expect("a pipe");
        let line = line.strip_suffix('\n')?;
        if let Some(batch) = line.strip_prefix(ACKNOWLEDGEMENT) {
            return Some(batch.parse().expect("the number of a batch"));
        }
    }
}

fn fail(mut child: Child, why: impl Display) -> ! {
    let status = child.wait();
    panic!("the child {why}: {status:?}");
}
