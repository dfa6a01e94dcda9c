//! The waits of a consumer: for rows, for time, for an operator. Commands end every wait.

use std::time::Duration;

use kukuri_store::{Seq, StoreError};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    consumer::{Consumer, Halt, Step},
    handle::Command,
    lease::LEASE_TTL,
    pause,
    status::State,
};

/// How often a consumer looks for rows without a notification (O-4).
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Wait after a batch, so that more rows share the cost of the next one.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Number of rows that ends this wait early.
const BATCH_DELAY_ROWS: u64 = 2_048;

/// The next command, unless the wait is over before.
async fn command_before<T>(commands: &mut mpsc::Receiver<Command>, wait: impl Future<Output = T>) -> Option<Command> {
    tokio::select! {
        command = commands.recv() => Some(command.unwrap_or(Command::Stop)),
        _ = wait => None,
    }
}

impl Consumer {
    /// Waits for a notification of new rows, or for the poll interval.
    pub(crate) async fn wait_for_rows(&mut self) -> Step {
        // An error means that the store is closing: the next read reports it.
        let command = command_before(&mut self.commands, timeout(POLL_INTERVAL, self.heads.changed())).await;
        self.obey(command).await
    }

    /// Waits for the batch delay, or until many rows are there.
    pub(crate) async fn delay_next_batch(&mut self, offset: Seq) -> Step {
        let enough = Seq(offset.0 + BATCH_DELAY_ROWS);
        let many_rows = timeout(BATCH_DELAY, self.heads.wait_for(|head| *head >= enough));
        let command = command_before(&mut self.commands, many_rows).await;
        self.obey(command).await
    }

    pub(crate) async fn sleep_or_command(&mut self, time: Duration) -> Step {
        let command = command_before(&mut self.commands, sleep(time)).await;
        self.obey(command).await
    }

    pub(crate) async fn wait_for_operator(&mut self) -> Halt {
        loop {
            let command = command_before(&mut self.commands, sleep(LEASE_TTL / 3)).await;
            // Keeping the lease keeps other instances out: they would halt at the same row.
            let waited = if command.is_some() { self.obey(command).await } else { self.check_wait().await };
            if let Err(halt) = waited {
                return halt;
            }
        }
    }

    /// While waiting for an operator: another process may have ended a pause, and the outbox may lose rows that a paused
    /// consumer needs (O-8). A failing store is asked again at the next tick.
    async fn check_wait(&mut self) -> Step {
        let is_held = self.renew_lease().await.unwrap_or(true);
        if self.status.borrow().state != State::Paused {
            return Ok(());
        }
        if !is_held || !self.is_paused().await.unwrap_or(true) {
            return Err(Halt::Restart);
        }
        if let Ok(Some(offset)) = self.start_offset().await
            && let Err(truncated @ StoreError::Truncated { .. }) = self.store.outbox(offset, 1).await
        {
            return Err(truncated.into());
        }
        Ok(())
    }

    pub(crate) async fn is_paused(&self) -> Step<bool> {
        Ok(pause::paused_since(&self.store.offsets().await?, &self.name).is_some())
    }

    /// Between batches only commands that end the current work are obeyed.
    pub(crate) fn check_commands(&mut self) -> Step {
        match self.commands.try_recv() {
            Ok(Command::Stop) | Err(mpsc::error::TryRecvError::Disconnected) => Err(Halt::Stop),
            Ok(Command::Rebuild) => self.request_rebuild(),
            Ok(Command::Pause) => Err(Halt::Restart),
            Ok(Command::Resume | Command::Replay(_)) | Err(mpsc::error::TryRecvError::Empty) => Ok(()),
        }
    }

    async fn obey(&mut self, command: Option<Command>) -> Step {
        match command {
            None => Ok(()),
            Some(Command::Stop) => Err(Halt::Stop),
            // The pause flag in the store decides.
            Some(Command::Pause | Command::Resume) => Err(Halt::Restart),
            Some(Command::Replay(after)) => {
                self.store.set_offset(&self.name, after, self.now()).await?;
                self.show_offset(after);
                Err(Halt::Restart)
            }
            Some(Command::Rebuild) => self.request_rebuild(),
        }
    }

    fn request_rebuild(&mut self) -> Step {
        self.rebuild_requested = true;
        Err(Halt::Restart)
    }
}
