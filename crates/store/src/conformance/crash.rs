//! A store that is killed in the middle of its work keeps everything it acknowledged (P-3, O-3).
//!
//! The test runs itself again as a child process, which takes in batch after batch and says so after each. The parent
//! kills it at a random moment, opens what it left, and compares that with the model. Then the next child goes on.

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
use crate::{ingest::StoreRules, model::ModelStore, port::Store};

/// Where the child's store is. A process that has it is a child.
const PLACE: &str = "KUKURI_CRASH_PLACE";
/// The batch with which the child begins.
const FIRST: &str = "KUKURI_CRASH_FIRST";
/// How many batches it takes in, if it is not killed before.
const COUNT: &str = "KUKURI_CRASH_COUNT";
/// How often a child is killed.
const ROUNDS: &str = "KUKURI_TEST_CRASH_ROUNDS";
/// What the child says after a batch, with its number.
pub(super) const ACKNOWLEDGEMENT: &str = "acknowledged ";

/// Kills children until it is convinced; in a child, does the child's work.
///
/// `test` is the full name of the test that calls this, and does nothing else; `place` says where the store is, in
/// words that `open` understands. `open` opens the store there with [`StoreRules::default`], as durable as on a node.
pub fn everything_acknowledged_survives_a_kill(test: &str, place: &str, open: impl AsyncFn(&str) -> Arc<dyn Store>) {
    match env::var(PLACE) {
        Ok(place) => block_on(async { work(&*open(&place).await).await }),
        Err(_) => Parent::new(test, place).kill_children(open),
    }
}

/// A run of the test `test` as a child that takes in `count` batches from the first on, in the store at `place`.
pub fn child(test: &str, place: &str, count: u64) -> Command {
    child_from(test, place, 0, count)
}

fn child_from(test: &str, place: &str, first: u64, count: u64) -> Command {
    let mut command = Command::new(env::current_exe().expect("the running test"));
    command.args(["--exact", test, "--nocapture"]);
    command.env(PLACE, place).env(FIRST, first.to_string()).env(COUNT, count.to_string());
    command
}

/// What a child does.
async fn work(store: &dyn Store) {
    let (first, count) = (number(FIRST, 0), number(COUNT, u64::MAX));
    let mut history = History::default();
    for _ in 0..first {
        history.next();
    }
    let mut stdout = std::io::stdout();
    // The test harness may have left a line unfinished.
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

/// Batches that are random and yet the same in every process.
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
    /// Requests name events among the last this many, so that there is something to take away.
    const REACH: usize = 40;

    fn next(&mut self) -> Vec<Event> {
        // Time goes on, so that a vanish request does not take all that is to come.
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

/// Kills children and compares what they leave with the model.
struct Parent<'p> {
    test: &'p str,
    place: &'p str,
    model: ModelStore,
    history: History,
    /// Batches that the model has taken in.
    taken: u64,
    /// Chance: unlike the history it differs from run to run.
    dice: TestRunner,
}

impl<'p> Parent<'p> {
    fn new(test: &'p str, place: &'p str) -> Self {
        let model = ModelStore::new(StoreRules::default());
        Self { test, place, model, history: History::default(), taken: 0, dice: TestRunner::default() }
    }

    fn kill_children(mut self, open: impl AsyncFn(&str) -> Arc<dyn Store>) {
        let rounds = number(ROUNDS, 50);
        for round in 0..rounds {
            let acknowledged = self.run_and_kill();
            block_on(async {
                let store = open(self.place).await;
                self.compare(&*store, acknowledged, round).await;
            });
        }
        assert!(self.taken > rounds, "{rounds} children took in {} batches: too few to show anything", self.taken);
    }

    /// The number of batches acknowledged in all, when a child was killed at a random moment.
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
        // A child that is not waited for at all is killed while it starts.
        thread::sleep(Duration::from_micros(microseconds * if after == 0 { 10 } else { 1 }));
        child.kill().expect("a child to kill");
        while let Some(batch) = next_acknowledgement(&mut said) {
            acknowledged = batch + 1;
        }
        let status = child.wait().expect("its end");
        assert!(status.code().is_none(), "the child ended by itself: {status}");
        acknowledged
    }

    /// What was acknowledged is there, and at most one batch more: committed, and killed before it could say so.
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

/// The number of the next batch that the child tells of. A line that was cut short is none.
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
