//! The writer's own thread: LMDB wants a transaction to stay on the one that began it, and a disk may be waited for here.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use kukuri_domain::{Admitted, Millis};
use kukuri_store::Ingested;
use tokio::sync::oneshot;

use crate::{
    error::{Failure, Result},
    gathering::Intake,
    writer::Writer,
};

const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Something for the writer to do.
pub(crate) enum Job {
    /// Take events in.
    TakeIn(Intake),
    /// Commit what is acknowledged.
    Settle(oneshot::Sender<Result<()>>),
    /// Anything else. It is given no writer if what is acknowledged can't be committed.
    Change(Change),
}

type Change = Box<dyn FnOnce(Result<&mut Writer>) + Send>;

/// The way to the writer. It ends, with everything committed, when this is dropped.
pub(crate) struct WriterThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl WriterThread {
    pub(crate) fn start(writer: Writer) -> std::io::Result<Self> {
        let (jobs, receiver) = channel();
        let thread =
            std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || run(writer, &receiver))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Takes events in. They are durable when it returns.
    pub(crate) async fn take_in(&self, events: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        self.ask(|answer| Job::TakeIn(Intake { events, now, answer })).await
    }

    /// Waits until everything that was acknowledged is committed.
    pub(crate) async fn settle(&self) -> Result<()> {
        self.ask(Job::Settle).await
    }

    /// Has something else done.
    pub(crate) async fn change<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    {
        self.ask(|answer| Job::Change(Box::new(|writer| drop(answer.send(writer.and_then(change)))))).await
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        // Whoever panics at a job drops it.
        self.send(job).await.unwrap_or(Err(Failure::Panic))
    }

    /// [`Self::settle`] for those who can wait on their thread.
    pub(crate) fn settle_now(&self) -> Result<()> {
        wait(self.send(Job::Settle)).unwrap_or(Err(Failure::Panic))
    }

    #[cfg(test)]
    pub(crate) fn change_now<T: Send + 'static>(&self, change: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        let change = |answer: oneshot::Sender<T>| {
            Job::Change(Box::new(|writer| drop(answer.send(change(writer.expect("a writer"))))))
        };
        wait(self.send(change)).expect("an answer")
    }

    fn send<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job(answer));
        }
        answered
    }
}

/// Waits wherever it is called, also on a thread that serves others: only for what is rare and short.
fn wait<T>(mut answered: oneshot::Receiver<T>) -> Option<T> {
    loop {
        match answered.try_recv() {
            Ok(answer) => return Some(answer),
            Err(oneshot::error::TryRecvError::Closed) => return None,
            Err(oneshot::error::TryRecvError::Empty) => std::thread::sleep(LOOK_EVERY),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // What it did last, it did before: a panic at the end has nobody left to tell.
            let _ = thread.join();
        }
    }
}

fn run(mut writer: Writer, jobs: &Receiver<Job>) {
    let mut next = None;
    loop {
        let Some(job) = next.take().or_else(|| jobs.recv().ok()) else { break };
        // One job that panics leaves its transaction undone, and the writer to others.
        let done = catch_unwind(AssertUnwindSafe(|| match job {
            Job::TakeIn(intake) => writer.take_in(intake, jobs),
            Job::Settle(answer) => {
                let _ = answer.send(writer.pay());
                None
            }
            Job::Change(change) => {
                match writer.pay() {
                    Ok(()) => change(Ok(&mut writer)),
                    Err(error) => change(Err(error)),
                }
                None
            }
        }));
        next = done.unwrap_or_default();
    }
    writer.close();
}
