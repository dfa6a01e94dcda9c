//! The writer's own thread: an LMDB transaction stays on the thread that began it, and this one may wait for the disk.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
};

use kukuri_domain::{Admitted, Millis};
use kukuri_store::{Ingested, Stats, StoreError};
use tokio::sync::oneshot;

use crate::{error::Result, lookup, wal::IngestJob, writer::Writer};

/// A job for the writer.
pub(crate) enum Job {
    /// Ingest a batch.
    Ingest(IngestJob),
    /// Any other write. It gets an error if the pending records can't be committed.
    Change(Change),
    /// Read the statistics, with the pending records and without committing them.
    Stats(oneshot::Sender<Result<Stats>>),
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
        let (answer, answered) = oneshot::channel();
        self.send(Job::Ingest(IngestJob { events, now, answer }))?;
        answered.await.unwrap_or(Err(StoreError::Panicked.into()))
    }

    /// Commits the pending records of the WAL, then makes a change.
    pub(crate) async fn change<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Change(Box::new(|writer| drop(answer.send(writer.and_then(change))))))?;
        answered.await.unwrap_or(Err(StoreError::Panicked.into()))
    }

    /// The statistics, pending records included. Commits nothing.
    pub(crate) async fn stats(&self) -> Result<Stats> {
        let (answer, answered) = oneshot::channel();
        self.send(Job::Stats(answer))?;
        answered.await.unwrap_or(Err(StoreError::Panicked.into()))
    }

    /// [`Self::change`] that blocks the calling thread, which may be one of the runtime's: only for rare and short waits.
    pub(crate) fn change_blocking<T, F>(&self, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Writer) -> Result<T> + Send + 'static,
    {
        let (answer, answered) = channel();
        self.send(Job::Change(Box::new(move |writer| drop(answer.send(writer.and_then(change))))))?;
        answered.recv().unwrap_or(Err(StoreError::Panicked.into()))
    }

    fn send(&self, job: Job) -> Result<()> {
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(()) } else { Err(StoreError::WriterGone.into()) }
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
            Job::Ingest(job) => writer.ingest_grouped(job, jobs),
            Job::Change(change) => {
                change(writer.commit_pending().map(|()| &mut writer));
                None
            }
            Job::Stats(answer) => {
                // No transaction is open. Records are pending only after a failed commit.
                let stats = writer.commit_pending().and_then(|()| writer.tables.read(lookup::stats));
                let _ = answer.send(stats);
                None
            }
        }));
        next = done.unwrap_or_default();
    }
    writer.close();
}
