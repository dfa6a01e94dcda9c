//! The writer's own thread: an LMDB transaction stays on the thread that began it, and this one may wait for the disk.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

use kukuri_domain::{Admitted, Millis};
use kukuri_store::{Ingested, StoreError};
use tokio::sync::oneshot;

use crate::{error::Result, wal::IngestJob, writer::Writer};

const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A job for the writer.
pub(crate) enum Job {
    /// Ingest a batch.
    Ingest(IngestJob),
    /// Commit the pending records of the WAL.
    CommitPending(oneshot::Sender<Result<()>>),
    /// Any other write. It gets an error if the pending records can't be committed.
    Change(Change),
}

type Change = Box<dyn FnOnce(Result<&mut Writer>) + Send>;

/// Sends jobs to the writer. When this is dropped, the writer commits everything and ends.
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

    /// Ingests a batch. Durable when it returns.
    pub(crate) async fn send_ingest_job(&self, events: Vec<Admitted>, now: Millis) -> Result<Ingested> {
        self.ask(|answer| Job::Ingest(IngestJob { events, now, answer })).await
    }

    /// Commits the pending records of the WAL.
    pub(crate) async fn request_wal_commit(&self) -> Result<()> {
        self.ask(Job::CommitPending).await
    }

    pub(crate) async fn change<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    {
        self.ask(|answer| Job::Change(Box::new(|writer| drop(answer.send(writer.and_then(change)))))).await
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> Job) -> Result<T> {
        self.send(job)?.await.unwrap_or(Err(StoreError::Panicked.into()))
    }

    /// [`Self::commit_pending`] for callers that may block their thread.
    pub(crate) fn wait_for_wal_commit(&self) -> Result<()> {
        wait(self.send(Job::CommitPending)?).unwrap_or(Err(StoreError::Panicked.into()))
    }

    #[cfg(test)]
    pub(crate) fn change_now<T: Send + 'static>(&self, change: impl FnOnce(&mut Writer) -> T + Send + 'static) -> T {
        let change = |answer: oneshot::Sender<T>| {
            Job::Change(Box::new(|writer| drop(answer.send(change(writer.expect("a writer"))))))
        };
        wait(self.send(change).expect("a writer")).expect("an answer")
    }

    fn send<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<oneshot::Receiver<T>> {
        let (answer, answered) = oneshot::channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job(answer)).is_ok());
        if sent { Ok(answered) } else { Err(StoreError::WriterGone.into()) }
    }
}

/// Blocks the calling thread, which may be one of the runtime's: only for rare and short waits.
fn wait<T>(mut answered: oneshot::Receiver<T>) -> Option<T> {
    loop {
        match answered.try_recv() {
            Ok(answer) => return Some(answer),
            Err(oneshot::error::TryRecvError::Closed) => return None,
            Err(oneshot::error::TryRecvError::Empty) => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread can't be reported here.
            let _ = thread.join();
        }
    }
}

fn run(mut writer: Writer, jobs: &Receiver<Job>) {
    let mut next = None;
    loop {
        let Some(job) = next.take().or_else(|| jobs.recv().ok()) else { break };
        // A panic aborts the job's transaction; the writer continues.
        let done = catch_unwind(AssertUnwindSafe(|| match job {
            Job::Ingest(submission) => writer.ingest_grouped(submission, jobs),
            Job::CommitPending(answer) => {
                let _ = answer.send(writer.commit_pending());
                None
            }
            Job::Change(change) => {
                match writer.commit_pending() {
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
