//! What can be asked of a consumer that runs.

use std::sync::{Arc, OnceLock};

use kukuri_store::{OutboxRow, Seq};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::status::{State, Status};

/// Called with rows whose effect is there.
pub(crate) type Done = Box<dyn Fn(&[OutboxRow]) + Send + Sync>;

/// What a consumer is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Pause,
    Resume,
    /// Everything after this row once more.
    Replay(Seq),
    /// On past this row, at which it is stuck.
    Skip(Seq),
    /// Everything anew, from a snapshot.
    Rebuild,
    Stop,
}

/// A consumer that runs. It goes on if this is dropped.
pub struct Handle {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) done: Arc<OnceLock<Done>>,
    pub(crate) task: JoinHandle<()>,
}

impl Handle {
    /// What it is at, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Has this called with rows when their effect is there, soon after. The first one to ask is heeded.
    pub fn on_done(&self, done: impl Fn(&[OutboxRow]) + Send + Sync + 'static) {
        let _ = self.done.set(Box::new(done));
    }

    /// Lets it rest until it is resumed.
    pub async fn pause(&self) {
        self.ask(Command::Pause).await;
    }

    /// Lets it go on: after a pause, or past what was wrong with a row once that is mended.
    pub async fn resume(&self) {
        self.ask(Command::Resume).await;
    }

    /// Has it do everything after a row once more, while the rows are there (O-8).
    pub async fn replay(&self, after: Seq) {
        self.ask(Command::Replay(after)).await;
    }

    /// Has it go on past the row it is stuck at, without the effect of it. This is logged.
    pub async fn skip(&self, row: Seq) {
        self.ask(Command::Skip(row)).await;
    }

    /// Has it build everything anew. What is there stays in use until then.
    pub async fn rebuild(&self) {
        self.ask(Command::Rebuild).await;
    }

    /// Ends it when what it is at is done.
    pub async fn stop(self) {
        self.ask(Command::Stop).await;
        // It ends by itself; a panic of it was logged.
        let _ = self.task.await;
    }

    /// The same where several have this.
    pub async fn end(&self) {
        self.ask(Command::Stop).await;
        // Whoever is not there any more says nothing, and has ended too.
        let _ = self.status().wait_for(|status| status.state == State::Stopped).await;
    }

    /// Ends it in the middle of whatever it is at, as a crash would. Its lease ends by itself.
    pub async fn abort(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Waits until everything up to a row is done. `false`: that will not be without an operator.
    pub async fn caught_up(&self, seq: Seq) -> bool {
        let mut status = self.status();
        let is_over =
            |status: &Status| status.state.is_waiting() || (status.offset >= seq && status.state == State::Following);
        status.wait_for(is_over).await.is_ok_and(|status| status.offset >= seq)
    }

    async fn ask(&self, command: Command) {
        // A consumer that has ended is asked nothing.
        let _ = self.commands.send(command).await;
    }
}
