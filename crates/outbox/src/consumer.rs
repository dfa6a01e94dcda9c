//! A named consumer: applies rows in ascending batches, the effect first and the offset then (O-6).

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kukuri_domain::Millis;
use kukuri_store::{Holder, OutboxRow, Seq, SnapshotCursor, Store, StoreError};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    batch,
    handle::{AppliedHook, Command, Handle},
    pause,
    sink::{Batch, Reached, Sink, SinkError, Target},
    status::{State, Status},
};

/// Settings of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Maximum number of rows per batch.
    pub batch_rows: usize,
    /// How often it looks for rows without a notification (O-4).
    pub poll_interval: Duration,
    /// Wait after a batch, so that more rows share the cost of the next one.
    pub batch_delay: Duration,
    /// Number of rows that ends this wait early.
    pub batch_delay_rows: usize,
    /// Another instance takes over from a silent one after this time.
    pub lease_ttl: Duration,
    /// The instance, for the lease. `None`: a new one. A process that can't run twice uses the same number every time, and so
    /// need not wait for its old lease after a crash.
    pub holder: Option<Holder>,
    /// Wait after the first failure; it doubles with each further one.
    pub min_backoff: Duration,
    /// Maximum wait after a failure.
    pub max_backoff: Duration,
    /// The current time.
    pub clock: fn() -> Millis,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            batch_rows: 2_000,
            poll_interval: Duration::from_secs(1),
            batch_delay: Duration::from_secs(1),
            batch_delay_rows: 256,
            lease_ttl: Duration::from_secs(30),
            holder: None,
            min_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(30),
            clock: system_clock,
        }
    }
}

/// A consumer of the outbox.
pub struct Consumer {
    name: String,
    store: Arc<dyn Store>,
    sink: Arc<dyn Sink>,
    settings: ConsumerSettings,
    holder: Holder,
    heads: watch::Receiver<Seq>,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<Status>,
    applied: Arc<OnceLock<AppliedHook>>,
    leased_at: Option<Instant>,
    rebuild_requested: bool,
}

/// Why the current work of a consumer ends.
enum Halt {
    Stop,
    /// Starts over from the lease: after a command, or because another instance has the lease.
    Restart,
    /// Waits for an operator, in this state.
    Wait(State),
    /// Retries after a backoff.
    Retry(String),
}

type Step<T = ()> = Result<T, Halt>;

impl Consumer {
    /// Starts a consumer.
    pub fn start(name: &str, store: Arc<dyn Store>, sink: Arc<dyn Sink>, settings: ConsumerSettings) -> Handle {
        let (commands, receiver) = mpsc::channel(8);
        let (status, watched) = watch::channel(Status::default());
        let heads = store.watch_outbox();
        let applied = Arc::new(OnceLock::new());
        let clock = settings.clock;
        let holder = settings.holder.unwrap_or_else(|| Holder(random()));
        let consumer = Self {
            name: name.to_owned(),
            store: Arc::clone(&store),
            sink,
            settings,
            holder,
            heads,
            commands: receiver,
            status,
            applied: Arc::clone(&applied),
            leased_at: None,
            rebuild_requested: false,
        };
        let task = tokio::spawn(consumer.run());
        Handle { name: name.to_owned(), store, clock, commands, status: watched, applied, task }
    }

    async fn run(mut self) {
        let mut failures = 0;
        let mut next = Halt::Restart;
        loop {
            next = match next {
                Halt::Stop => break,
                Halt::Restart => {
                    let before = self.status.borrow().offset;
                    let Err(halt) = self.follow().await;
                    if self.status.borrow().offset > before {
                        failures = 0;
                    }
                    halt
                }
                Halt::Wait(state) => {
                    match state {
                        State::Paused => tracing::warn!(consumer = self.name, "paused until an operator resumes it"),
                        _ => tracing::error!(consumer = self.name, ?state, "consumer waits for an operator"),
                    }
                    self.set_state(state);
                    failures = 0;
                    self.wait_for_operator().await
                }
                Halt::Retry(why) => {
                    failures += 1;
                    tracing::warn!(consumer = self.name, why, failures, "consumer failed; retrying");
                    self.set_state(State::Retrying { why, times: failures });
                    self.sleep_or_command(self.backoff(failures)).await.err().unwrap_or(Halt::Restart)
                }
            };
        }
        if self.leased_at.is_some()
            && let Err(error) = self.store.release(&self.name, self.holder).await
        {
            tracing::warn!(consumer = self.name, %error, "can't release the lease; it runs out by itself");
        }
        self.set_state(State::Stopped);
    }

    /// Applies rows until a halt.
    async fn follow(&mut self) -> Step<std::convert::Infallible> {
        self.take_lease().await?;
        if self.is_paused().await? {
            self.note_progress(self.stored_offset().await?.unwrap_or_default());
            return Err(Halt::Wait(State::Paused));
        }
        let offset = self.start_offset().await?;
        if self.rebuild_requested {
            return self.rebuild(offset).await;
        }
        let Some(mut offset) = offset else { return self.rebuild(None).await };
        loop {
            let before = offset;
            let is_full = self.apply_next_rows(&mut offset).await?;
            if is_full {
                self.check_commands()?;
                continue;
            }
            self.set_state(State::Following);
            if offset > before {
                self.delay_next_batch(offset).await?;
            } else {
                self.wait_for_rows().await?;
            }
        }
    }

    /// Applies one batch. Returns whether it was full, so that more rows may be there.
    async fn apply_next_rows(&mut self, offset: &mut Seq) -> Step<bool> {
        self.keep_lease().await?;
        self.note_progress(*offset);
        let rows = self.rows_after(*offset).await?;
        let Some(last) = rows.last() else { return Ok(false) };
        self.apply(Target::Current, *offset, &rows).await?;
        self.advance(last.seq).await?;
        *offset = last.seq;
        self.note_progress(*offset);
        if let Some(applied) = self.applied.get() {
            applied(&rows);
        }
        Ok(rows.len() == self.settings.batch_rows)
    }

    // The start.

    /// `None`: from a snapshot. A sink behind the store's offset has lost effects. A sink ahead of it was stopped between effect
    /// and offset, or an operator wants a replay: applying rows twice has the effect of once (O-7).
    async fn start_offset(&mut self) -> Step<Option<Seq>> {
        let stored = self.stored_offset().await?;
        Ok(match self.sink.reached().await.map_err(|error| Halt::Retry(error.to_string()))? {
            Reached::NotKept => stored,
            Reached::Nothing => None,
            Reached::Row(reached) => Some(stored.map_or(reached, |stored| stored.min(reached))),
        })
    }

    async fn stored_offset(&self) -> Step<Option<Seq>> {
        let offsets = self.store.offsets().await.map_err(retry)?;
        Ok(offsets.into_iter().find(|offset| offset.consumer == self.name).map(|offset| offset.last_seq))
    }

    // One batch.

    async fn rows_after(&mut self, offset: Seq) -> Step<Vec<OutboxRow>> {
        match self.store.outbox(offset, self.settings.batch_rows).await {
            Err(StoreError::Truncated { first, .. }) => Err(Halt::Wait(State::TooFarBehind { first })),
            rows => rows.map_err(retry),
        }
    }

    async fn apply(&mut self, target: Target, after: Seq, rows: &[OutboxRow]) -> Step {
        let batch = batch::of_rows(&*self.store, after, rows, self.now()).await.map_err(retry)?;
        match self.sink.apply(target, &batch).await {
            Ok(()) => Ok(()),
            Err(SinkError::Transient(error)) => Err(Halt::Retry(error.to_string())),
            Err(SinkError::Poison(_)) if rows.len() > 1 => {
                // Halving finds the bad row and applies all rows before it.
                let (first, second) = rows.split_at(rows.len() / 2);
                let middle = first.last().map_or(after, |row| row.seq);
                Box::pin(self.apply(target, after, first)).await?;
                if target == Target::Current {
                    self.advance(middle).await?;
                }
                Box::pin(self.apply(target, middle, second)).await
            }
            Err(SinkError::Poison(why)) => {
                Err(Halt::Wait(State::Stuck { at: rows.last().map_or(after, |row| row.seq), why }))
            }
        }
    }

    /// Stores the offset, after the effect (O-6).
    async fn advance(&mut self, seq: Seq) -> Step {
        match self.store.advance(&self.name, self.holder, seq, self.now()).await {
            Err(StoreError::LeaseLost { .. }) => {
                self.leased_at = None;
                Err(Halt::Restart)
            }
            advanced => {
                advanced.map_err(retry)?;
                self.status.send_modify(|status| status.offset = seq);
                Ok(())
            }
        }
    }

    // Rebuilding.

    /// Fills a new copy from a snapshot and the rows since, and switches to it (O-8). The copy in use, if there is one, is
    /// kept up to date meanwhile.
    async fn rebuild(&mut self, mut in_use: Option<Seq>) -> Step<std::convert::Infallible> {
        let of = self.store.stats().await.map_err(retry)?.effective;
        self.set_state(State::Rebuilding { done: 0, of });
        self.sink.begin().await.map_err(retry_sink)?;
        let (mut cursor, mut done) = (SnapshotCursor::default(), 0);
        let seq = loop {
            self.keep_lease().await?;
            let page = self.store.snapshot(cursor, self.settings.batch_rows).await.map_err(retry)?;
            done += page.events.len() as u64;
            self.fill(&batch::of_snapshot(page.events)).await?;
            self.set_state(State::Rebuilding { done, of: of.max(done) });
            self.check_commands()?;
            if let Some(offset) = &mut in_use {
                // A copy that can't be kept up to date is replaced soon.
                match self.apply_next_rows(offset).await {
                    Err(Halt::Wait(_) | Halt::Retry(_)) => in_use = None,
                    applied => drop(applied?),
                }
            }
            match page.next {
                Some(next) => cursor = next,
                None => break page.seq,
            }
        };
        // An empty batch records the position of the snapshot.
        self.fill(&Batch { last: Some(seq), after: seq, ..Batch::default() }).await?;
        let mut offset = seq;
        loop {
            self.keep_lease().await?;
            let rows = self.rows_after(offset).await?;
            let Some(last) = rows.last().map(|row| row.seq) else { break };
            self.apply(Target::Next, offset, &rows).await?;
            offset = last;
            if rows.len() < self.settings.batch_rows {
                break;
            }
            self.check_commands()?;
        }
        // The switch may take long.
        if !self.renew_lease().await? {
            return Err(Halt::Restart);
        }
        self.sink.switch().await.map_err(retry_sink)?;
        self.rebuild_requested = false;
        self.advance(offset).await?;
        self.status.send_modify(|status| status.builds += 1);
        tracing::info!(consumer = self.name, events = done, "consumer rebuilt");
        Err(Halt::Restart)
    }

    async fn fill(&mut self, batch: &Batch) -> Step {
        match self.sink.apply(Target::Next, batch).await {
            Err(SinkError::Poison(why)) => Err(Halt::Wait(State::Stuck { at: batch.after, why })),
            filled => filled.map_err(retry_sink),
        }
    }

    // The lease.

    async fn take_lease(&mut self) -> Step {
        loop {
            if self.renew_lease().await? {
                return Ok(());
            }
            // The backlog counts on every node (O-9).
            if let Some(offset) = self.stored_offset().await? {
                self.note_progress(offset);
            }
            self.set_state(State::Standby);
            self.sleep_or_command(self.settings.lease_ttl / 10).await?;
        }
    }

    async fn keep_lease(&mut self) -> Step {
        let is_fresh = self.leased_at.is_some_and(|at| at.elapsed() < self.settings.lease_ttl / 3);
        if is_fresh {
            return Ok(());
        }
        // Another process may have set the pause flag.
        if !self.renew_lease().await? || self.is_paused().await? {
            return Err(Halt::Restart);
        }
        Ok(())
    }

    async fn renew_lease(&mut self) -> Step<bool> {
        let now = self.now();
        let until = Millis(now.0 + self.settings.lease_ttl.as_millis() as u64);
        let asked = Instant::now();
        let is_own = self.store.lease(&self.name, self.holder, until, now).await.map_err(retry)?;
        self.leased_at = is_own.then_some(asked);
        Ok(is_own)
    }

    // Waiting and commands.

    /// Waits for a notification of new rows, or for the poll interval.
    async fn wait_for_rows(&mut self) -> Step {
        let poll = self.settings.poll_interval;
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            // An error means that the store is closing: the next read reports it.
            _ = timeout(poll, self.heads.changed()) => return Ok(()),
        };
        self.obey(command).await
    }

    /// Waits for the batch delay, or until many rows are there.
    async fn delay_next_batch(&mut self, offset: Seq) -> Step {
        let enough = Seq(offset.0 + self.settings.batch_delay_rows as u64);
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            _ = timeout(self.settings.batch_delay, self.heads.wait_for(|head| *head >= enough)) => return Ok(()),
        };
        self.obey(command).await
    }

    async fn sleep_or_command(&mut self, time: Duration) -> Step {
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            () = sleep(time) => return Ok(()),
        };
        self.obey(command).await
    }

    async fn wait_for_operator(&mut self) -> Halt {
        loop {
            match timeout(self.settings.lease_ttl / 3, self.commands.recv()).await {
                Ok(command) => {
                    let obeyed = self.obey(command.unwrap_or(Command::Stop)).await;
                    return obeyed.err().unwrap_or(Halt::Restart);
                }
                Err(_) => {
                    // Keeping the lease keeps other instances out: they would halt at the same row.
                    if let Err(halt) = self.check_wait().await {
                        return halt;
                    }
                }
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
            && let Err(StoreError::Truncated { first, .. }) = self.store.outbox(offset, 1).await
        {
            return Err(Halt::Wait(State::TooFarBehind { first }));
        }
        Ok(())
    }

    async fn is_paused(&self) -> Step<bool> {
        let offsets = self.store.offsets().await.map_err(retry)?;
        Ok(pause::paused_since(&offsets, &self.name).is_some())
    }

    /// Between batches only commands that end the current work are obeyed.
    fn check_commands(&mut self) -> Step {
        match self.commands.try_recv() {
            Ok(Command::Stop) | Err(mpsc::error::TryRecvError::Disconnected) => Err(Halt::Stop),
            Ok(Command::Rebuild) => {
                self.rebuild_requested = true;
                Err(Halt::Restart)
            }
            Ok(Command::Pause) => Err(Halt::Restart),
            Ok(_) | Err(mpsc::error::TryRecvError::Empty) => Ok(()),
        }
    }

    async fn obey(&mut self, command: Command) -> Step {
        match command {
            Command::Stop => Err(Halt::Stop),
            // The pause flag in the store decides.
            Command::Pause | Command::Resume => Err(Halt::Restart),
            Command::Skip(row) => self.skip(row).await,
            Command::Replay(after) => {
                self.store.set_offset(&self.name, after, self.now()).await.map_err(retry)?;
                self.status.send_modify(|status| status.offset = after);
                Err(Halt::Restart)
            }
            Command::Rebuild => {
                self.rebuild_requested = true;
                Err(Halt::Restart)
            }
        }
    }

    /// Skips the row that the consumer is stuck at.
    async fn skip(&mut self, row: Seq) -> Step {
        let State::Stuck { at, why } = self.status.borrow().state.clone() else { return Err(Halt::Restart) };
        if at == row {
            tracing::error!(consumer = self.name, row = row.0, why, "skipping a row on an operator's command");
            let after = self.status.borrow().offset;
            self.sink
                .apply(Target::Current, &Batch { after, last: Some(row), ..Batch::default() })
                .await
                .map_err(retry_sink)?;
            self.advance(row).await?;
        }
        Err(Halt::Restart)
    }

    // The status.

    fn set_state(&self, state: State) {
        self.status.send_if_modified(|status| {
            let is_new = status.state != state;
            status.state = state;
            is_new
        });
    }

    fn note_progress(&self, offset: Seq) {
        let head = (*self.heads.borrow()).max(offset);
        self.status.send_if_modified(|status| {
            let is_new = (status.offset, status.head) != (offset, head);
            (status.offset, status.head) = (offset, head);
            is_new
        });
    }

    fn now(&self) -> Millis {
        (self.settings.clock)()
    }

    fn backoff(&self, failures: u32) -> Duration {
        let doubled = self.settings.min_backoff.saturating_mul(1 << failures.saturating_sub(1).min(20));
        doubled.min(self.settings.max_backoff)
    }
}

fn retry(error: StoreError) -> Halt {
    Halt::Retry(error.to_string())
}

fn retry_sink(error: SinkError) -> Halt {
    Halt::Retry(error.to_string())
}

fn system_clock() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(since.as_millis() as u64)
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    // If this failed, holders would only be less unique.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u128::from_be_bytes(bytes)
}
