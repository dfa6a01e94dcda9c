//! Jobs (N-3): one worker at a time, whatever dies; states and what they allow.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use kukuri_control::{
    Action, Database,
    actions::{CancelJob, RetryJob},
    audit::{self, Actor},
    job::{
        self, Claim, JobError, JobStatus, MAX_ATTEMPTS, NewJob,
        worker::{Clock, Handler, Worker, WorkerSettings},
    },
};
use kukuri_domain::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::support::{self, Control, START, later, name, on_both};

const KIND: &str = "test";
/// Seconds of a lease.
const LEASE: u64 = 60;
const QUICK: WorkerSettings =
    WorkerSettings { lease: LEASE, renew_interval: Duration::from_millis(5), poll_interval: Duration::from_millis(5) };

/// A clock that a test sets.
#[derive(Clone)]
pub(crate) struct TestClock(Arc<AtomicU64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU64::new(START.0)))
    }

    pub(crate) fn set(&self, time: Timestamp) {
        self.0.store(time.0, SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(SeqCst))
    }

    pub(crate) fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

async fn enqueue(control: &Control) -> String {
    let mut transaction = control.begin().await;
    let job = NewJob { kind: KIND, subject: None, parameters: json!({}), run_at: START };
    let id = job::enqueue(&mut transaction, job, START).await.unwrap();
    transaction.commit().await.unwrap();
    id
}

async fn claim(control: &Control, now: Timestamp) -> Option<Claim> {
    job::claim(&control.database, &[KIND], now, Timestamp(now.0 + LEASE)).await.unwrap()
}

async fn status(control: &Control, id: &str) -> JobStatus {
    job::find(&control.database, id).await.unwrap().unwrap().status
}

fn worker(database: &Database, handler: impl Handler) -> Worker {
    let handlers: [(&'static str, Arc<dyn Handler>); 1] = [(KIND, Arc::new(handler))];
    Worker::new(database.clone(), handlers, QUICK, TestClock::new().clock())
}

async fn perform<A: Action>(control: &Control, action: A) -> String {
    let plane = kukuri_control::Control::open(control.database.clone(), START).await.unwrap();
    name(plane.perform(&action, &Actor::command(), START).await)
}

/// Notes which jobs were run.
#[derive(Clone, Default)]
struct Counting(Arc<Mutex<BTreeMap<String, usize>>>);

#[async_trait]
impl Handler for Counting {
    async fn run(&self, claim: &Claim, _: &Clock) -> Result<(), JobError> {
        *self.0.lock().entry(claim.job.id.clone()).or_default() += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }
}

/// Never ends. Notes that it began, and that it was dropped.
#[derive(Clone, Default)]
struct Endless {
    has_begun: Arc<AtomicBool>,
    is_dropped: Arc<AtomicBool>,
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[async_trait]
impl Handler for Endless {
    async fn run(&self, _: &Claim, _: &Clock) -> Result<(), JobError> {
        let _dropped = SetOnDrop(Arc::clone(&self.is_dropped));
        self.has_begun.store(true, SeqCst);
        pending().await
    }
}

/// Panics the first time.
struct Panicking(AtomicUsize);

#[async_trait]
impl Handler for Panicking {
    async fn run(&self, _: &Claim, _: &Clock) -> Result<(), JobError> {
        assert!(self.0.fetch_add(1, SeqCst) > 0, "the first time");
        Ok(())
    }
}

async fn until(what: &AtomicBool) {
    for _ in 0..2_000 {
        if what.load(SeqCst) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it did not happen");
}

on_both! {
    async fn each_job_is_run_once_by_one_of_many_workers(control) {
        let mut jobs = Vec::new();
        for _ in 0..24 {
            jobs.push(enqueue(control).await);
        }
        let counting = Counting::default();
        let other = control.open_again().await;
        let workers = [&control.database, &control.database, &other, &other].map(|database| {
            let worker = worker(database, counting.clone());
            tokio::spawn(async move { while worker.run_one().await.unwrap() {} })
        });
        for worker in workers {
            worker.await.unwrap();
        }
        let expected: BTreeMap<String, usize> = jobs.iter().map(|id| (id.clone(), 1)).collect();
        assert_eq!(*counting.0.lock(), expected);
        for id in &jobs {
            let job = job::find(&control.database, id).await.unwrap().unwrap();
            assert_eq!((job.status, job.attempts, job.completed_at), (JobStatus::Completed, 1, Some(START)));
        }
        other.close().await;
    }

    async fn job_of_a_dead_worker_is_taken_over_when_its_lease_is_over(control) {
        let id = enqueue(control).await;
        let first = claim(control, START).await.unwrap();
        assert!(claim(control, later(LEASE - 1)).await.is_none());
        assert!(first.renew(&control.database, later(2 * LEASE)).await.unwrap());
        assert!(claim(control, later(LEASE)).await.is_none(), "the lease was extended");
        let second = claim(control, later(2 * LEASE)).await.unwrap();
        assert_eq!((second.job.id.as_str(), second.job.attempts), (id.as_str(), 2));

        assert!(!first.renew(&control.database, later(9 * LEASE)).await.unwrap());
        assert!(matches!(first.begin(&control.database).await, Err(JobError::Lost)), "it writes nothing any more");
        first.complete(&control.database, later(2 * LEASE)).await.unwrap();
        first.fail(&control.database, "late", later(2 * LEASE)).await.unwrap();
        assert_eq!(status(control, &id).await, JobStatus::Running, "nor ends what is not its own");
        let mut transaction = second.begin(&control.database).await.unwrap();
        second.complete_in(&mut transaction, later(2 * LEASE)).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(status(control, &id).await, JobStatus::Completed);
        assert!(claim(control, later(100 * LEASE)).await.is_none());
    }

    async fn job_that_fails_waits_for_its_next_attempt_and_fails_in_the_end(control) {
        let id = enqueue(control).await;
        let mut now = START;
        for attempt in 1..=MAX_ATTEMPTS {
            let failing = claim(control, now).await.unwrap();
            assert_eq!(failing.job.attempts, attempt);
            failing.fail(&control.database, "no\0 luck", now).await.unwrap();
            assert!(claim(control, now).await.is_none(), "not at once");
            now = Timestamp(now.0 + 3_600);
        }
        let failed = job::find(&control.database, &id).await.unwrap().unwrap();
        assert_eq!((failed.status, failed.error.as_deref()), (JobStatus::Failed, Some("no luck")));
        assert!(claim(control, later(1_000_000)).await.is_none());
        assert_eq!(perform(control, RetryJob { id: id.clone() }).await, "ok");
        assert_eq!(claim(control, START).await.unwrap().job.attempts, 1);
    }

    async fn job_whose_worker_dies_in_every_attempt_fails(control) {
        let id = enqueue(control).await;
        for attempt in 0..MAX_ATTEMPTS {
            assert!(claim(control, later(u64::from(attempt) * LEASE)).await.is_some());
        }
        assert!(claim(control, later(u64::from(MAX_ATTEMPTS) * LEASE)).await.is_none());
        assert_eq!(status(control, &id).await, JobStatus::Failed);
    }

    async fn cancelled_job_stops_where_it_is(control) {
        let (id, endless) = (enqueue(control).await, Endless::default());
        let running = worker(&control.database, endless.clone());
        let running = tokio::spawn(async move { running.run_one().await.unwrap() });
        until(&endless.has_begun).await;
        assert_eq!(perform(control, CancelJob { id: id.clone() }).await, "ok");
        until(&endless.is_dropped).await;
        assert!(running.await.unwrap());
        assert_eq!(status(control, &id).await, JobStatus::Cancelled);
        assert!(claim(control, later(10 * LEASE)).await.is_none());
    }

    async fn node_that_stops_gives_its_job_back(control) {
        let (id, endless) = (enqueue(control).await, Endless::default());
        let (stop, stopping) = watch::channel(false);
        let running = tokio::spawn(worker(&control.database, endless.clone()).run(stopping));
        until(&endless.has_begun).await;
        stop.send_replace(true);
        running.await.unwrap();
        let given_back = job::find(&control.database, &id).await.unwrap().unwrap();
        assert_eq!((given_back.status, given_back.attempts), (JobStatus::Queued, 0));
        assert!(claim(control, START).await.is_some(), "at once");
    }

    async fn panic_fails_the_attempt_and_not_the_worker(control) {
        let id = enqueue(control).await;
        let clock = TestClock::new();
        let handlers: [(&'static str, Arc<dyn Handler>); 1] = [(KIND, Arc::new(Panicking(AtomicUsize::new(0))))];
        let worker = Worker::new(control.database.clone(), handlers, QUICK, clock.clock());
        assert!(worker.run_one().await.unwrap());
        assert_eq!(status(control, &id).await, JobStatus::Queued);
        clock.set(later(3_600));
        assert!(worker.run_one().await.unwrap());
        assert_eq!(status(control, &id).await, JobStatus::Completed);
    }

    async fn state_of_a_job_decides_what_can_be_done_with_it(control) {
        // K-1
        for (state, cancel, retry) in [
            ("queued", "ok", "InvalidState"),
            ("running", "ok", "InvalidState"),
            ("completed", "InvalidState", "InvalidState"),
            ("failed", "InvalidState", "ok"),
            ("cancelled", "InvalidState", "ok"),
        ] {
            for (action, expected) in [("cancel", cancel), ("retry", retry)] {
                let id = enqueue(control).await;
                let set = kukuri_control::database::sql("UPDATE cn_admin.jobs SET status = $2 WHERE job_id = $1");
                control.database.change(set.bind(&id).bind(state)).await.unwrap();
                let before = audit::list(&control.database, None, 100).await.unwrap().len();
                let done = match action {
                    "cancel" => perform(control, CancelJob { id: id.clone() }).await,
                    _ => perform(control, RetryJob { id: id.clone() }).await,
                };
                assert_eq!(done, expected, "{action} of a {state} job");
                let rows = audit::list(&control.database, None, 100).await.unwrap();
                assert_eq!(rows.len() - before, usize::from(done == "ok"));
                if done == "ok" {
                    assert_eq!((rows[0].action.clone(), rows[0].target.clone()), (format!("job.{action}"), format!("job:{id}")));
                }
            }
        }
        assert_eq!(perform(control, CancelJob { id: "nonsense".to_owned() }).await, "UnknownJob");
        assert_eq!(perform(control, RetryJob { id: "nonsense".to_owned() }).await, "UnknownJob");
        let listed = job::list(&control.database, Some(JobStatus::Cancelled), None, 100).await.unwrap();
        assert!(!listed.is_empty() && listed.iter().all(|job| job.status == JobStatus::Cancelled));
        let all = job::list(&control.database, None, None, 100).await.unwrap();
        let (last, rest) = (all[3].clone(), &all[4..]);
        let page = job::list(&control.database, None, Some((last.created_at, last.id)), 100).await.unwrap();
        assert_eq!(page, rest);
    }
}

#[tokio::test]
async fn sweep_is_queued_once_a_day_for_all_nodes() {
    let control = support::Control::on_sqlite().await;
    for now in [START, later(1), later(24 * 3_600), later(24 * 3_600 + 1)] {
        kukuri_control::retention::enqueue(&control.database, now).await.unwrap();
    }
    let jobs = job::list(&control.database, None, None, 10).await.unwrap();
    assert_eq!(jobs.len(), 2, "{jobs:?}");
}
