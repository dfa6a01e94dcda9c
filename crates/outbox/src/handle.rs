//! Control of a running consumer.

use std::sync::{Arc, OnceLock};

use kukuri_domain::Millis;
use kukuri_store::{OutboxRow, Result, Seq, Store};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    pause,
    status::{State, Status},
};

/// Called with rows after their effect is in place.
pub(crate) type AppliedHook = Box<dyn Fn(&[OutboxRow]) + Send + Sync>;

/// A command to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Pause,
    Resume,
    /// Applies all rows after this one again.
    Replay(Seq),
    Rebuild,
    Stop,
}

/// A running consumer. It keeps running when the handle is dropped.
pub struct Handle {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: fn() -> Millis,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) applied: Arc<OnceLock<AppliedHook>>,
    pub(crate) task: JoinHandle<()>,
}

impl Handle {
    /// The status, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Calls `hook` with rows soon after their effect is in place. Only the first call has an effect.
    pub fn on_done(&self, hook: impl Fn(&[OutboxRow]) + Send + Sync + 'static) {
        let _ = self.applied.set(Box::new(hook));
    }

    /// Pauses the consumer, in every process on the store, until it is resumed; a restart does not resume it.
    pub async fn pause(&self) -> Result<()> {
        pause::set_paused(&*self.store, &self.name, Some((self.clock)())).await?;
        self.send(Command::Pause).await;
        Ok(())
    }

    /// Ends a pause, or retries the row that the consumer is stuck at.
    pub async fn resume(&self) -> Result<()> {
        self.clear_pause().await?;
        self.send(Command::Resume).await;
        Ok(())
    }

    /// Applies all rows after `after` again, while the outbox has them (O-8).
    pub async fn replay(&self, after: Seq) {
        self.send(Command::Replay(after)).await;
    }

    /// Rebuilds from a snapshot; ends a pause. The copy in use stays in use until the new one is complete.
    pub async fn rebuild(&self) -> Result<()> {
        self.clear_pause().await?;
        self.send(Command::Rebuild).await;
        Ok(())
    }

    /// Stops the consumer after the batch at hand.
    pub async fn stop(&self) {
        self.send(Command::Stop).await;
        // An error means that the task has ended already.
        let _ = self.status().wait_for(|status| status.state == State::Stopped).await;
    }

    /// Ends the consumer at once, as a crash would. Its lease runs out by itself.
    pub async fn abort(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// Waits until all rows up to `seq` are applied. `false`: the consumer waits for an operator.
    pub async fn caught_up(&self, seq: Seq) -> bool {
        let mut status = self.status();
        let is_decided =
            |status: &Status| status.state.is_waiting() || (status.offset >= seq && status.state == State::Following);
        status.wait_for(is_decided).await.is_ok_and(|status| status.offset >= seq)
    }

    async fn clear_pause(&self) -> Result<()> {
        if pause::paused_since(&self.store.offsets().await?, &self.name).is_some() {
            pause::set_paused(&*self.store, &self.name, None).await?;
        }
        Ok(())
    }

    async fn send(&self, command: Command) {
        // An error means that the consumer has ended.
        let _ = self.commands.send(command).await;
    }
}
