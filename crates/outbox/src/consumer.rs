//! A named consumer: applies rows in ascending batches, the effect first and the offset then (O-6).
//!
//! This file follows the outbox. `rebuild` fills a new copy, `lease` keeps other instances out, `waiting` waits for rows and
//! obeys commands.

use std::{
    convert::Infallible,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use kukuri_domain::Millis;
use kukuri_pacing::exponential_delay;
use kukuri_store::{Epoch, Holder, OutboxRow, Seq, Store, StoreError};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    handle::{AppliedHook, Command, Handle},
    sink::{Batch, Reached, Sink, SinkError, Target},
    status::{State, Status},
};

/// Delays between attempts after failures in a row.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Settings of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Maximum number of rows per batch.
    pub batch_rows: usize,
    /// The instance, for the lease. `None`: a new one. A process that can't run twice uses the same number every time, and so
    /// need not wait for its old lease after a crash.
    pub holder: Option<Holder>,
    /// The current time.
    pub clock: fn() -> Millis,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self { batch_rows: 8_192, holder: None, clock: system_clock }
    }
}

/// A consumer of the outbox.
pub struct Consumer {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) settings: ConsumerSettings,
    pub(crate) holder: Holder,
    pub(crate) heads: watch::Receiver<Seq>,
    /// Changes if the store went back: the offset is read again (Y-5).
    pub(crate) epochs: watch::Receiver<Epoch>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) applied: Arc<OnceLock<AppliedHook>>,
    pub(crate) leased_at: Option<Instant>,
    pub(crate) rebuild_requested: bool,
}

/// Why the current work of a consumer ends.
pub(crate) enum Halt {
    Stop,
    /// Starts over from the lease: after a command, or because another instance has the lease.
    Restart,
    /// Waits for an operator, in this state.
    Wait(State),
    /// Retries after a backoff.
    Retry(String),
}

pub(crate) type Step<T = ()> = Result<T, Halt>;

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Truncated { first, .. } => Self::Wait(State::TooFarBehind { first }),
            StoreError::LeaseLost { .. } => Self::Restart,
            error => Self::Retry(error.to_string()),
        }
    }
}

impl From<SinkError> for Halt {
    fn from(error: SinkError) -> Self {
        Self::Retry(error.to_string())
    }
}

impl Consumer {
    /// Starts a consumer.
    pub fn start(name: &str, store: Arc<dyn Store>, sink: Arc<dyn Sink>, settings: ConsumerSettings) -> Handle {
        let (commands, receiver) = mpsc::channel(8);
        let (status, watched) = watch::channel(Status::default());
        let applied = Arc::new(OnceLock::new());
        let clock = settings.clock;
        let consumer = Self {
            name: name.to_owned(),
            store: Arc::clone(&store),
            sink,
            holder: settings.holder.unwrap_or_else(random_holder),
            settings,
            heads: store.watch_outbox(),
            epochs: store.watch_epoch(),
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
                    let delay = exponential_delay(FIRST_RETRY_DELAY, MAX_RETRY_DELAY, failures);
                    self.sleep_or_command(delay).await.err().unwrap_or(Halt::Restart)
                }
            };
        }
        self.release_lease().await;
        self.set_state(State::Stopped);
    }

    /// Applies rows until a halt.
    async fn follow(&mut self) -> Step<Infallible> {
        self.epochs.mark_unchanged();
        self.take_lease().await?;
        if self.is_paused().await? {
            self.show_offset(self.stored_offset().await?.unwrap_or_default());
            return Err(Halt::Wait(State::Paused));
        }
        let offset = self.start_offset().await?;
        let Some(mut offset) = offset.filter(|_| !self.rebuild_requested) else { return self.rebuild(offset).await };
        loop {
            if self.epochs.has_changed().unwrap_or(false) {
                tracing::warn!(
                    consumer = self.name,
                    "the store went back to an older state; the consumer starts over from its offset"
                );
                return Err(Halt::Restart);
            }
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

    /// `None`: from a snapshot. A sink behind the store's offset has lost effects. A sink ahead of it was stopped between effect
    /// and offset, or an operator wants a replay: applying rows twice has the effect of once (O-7).
    pub(crate) async fn start_offset(&mut self) -> Step<Option<Seq>> {
        let stored = self.stored_offset().await?;
        Ok(match self.sink.reached().await? {
            Reached::NotKept => stored,
            Reached::Nothing => None,
            Reached::Row(reached) => Some(stored.map_or(reached, |stored| stored.min(reached))),
        })
    }

    pub(crate) async fn stored_offset(&self) -> Step<Option<Seq>> {
        let offsets = self.store.offsets().await?;
        Ok(offsets.into_iter().find(|offset| offset.consumer == self.name).map(|offset| offset.last_seq))
    }

    /// Applies one batch. Returns whether it was full, so that more rows may be there.
    pub(crate) async fn apply_next_rows(&mut self, offset: &mut Seq) -> Step<bool> {
        self.keep_lease().await?;
        self.show_offset(*offset);
        let rows = self.store.outbox(*offset, self.settings.batch_rows).await?;
        let Some(last) = rows.last() else { return Ok(false) };
        self.apply_rows(Target::Current, *offset, &rows).await?;
        self.store_offset(last.seq).await?;
        *offset = last.seq;
        if let Some(applied) = self.applied.get() {
            applied(&rows);
        }
        Ok(rows.len() == self.settings.batch_rows)
    }

    /// Applies rows in batches of bounded size.
    pub(crate) async fn apply_rows(&mut self, target: Target, mut after: Seq, mut rows: &[OutboxRow]) -> Step {
        while let Some(last) = rows.last() {
            let (batch, taken) = Batch::of_rows(&*self.store, after, rows, self.now()).await?;
            let (some, rest) = rows.split_at(taken);
            self.apply_batch(target, after, some, &batch).await?;
            after = batch.last.unwrap_or(last.seq);
            rows = rest;
            if target == Target::Current && !rows.is_empty() {
                self.store_offset(after).await?;
            }
        }
        Ok(())
    }

    async fn apply_batch(&mut self, target: Target, after: Seq, rows: &[OutboxRow], batch: &Batch) -> Step {
        match self.sink.apply(target, batch).await {
            Err(SinkError::Poison(_)) if rows.len() > 1 => {
                // Halving finds the bad row and applies all rows before it.
                let (first, second) = rows.split_at(rows.len() / 2);
                let middle = first.last().map_or(after, |row| row.seq);
                Box::pin(self.apply_rows(target, after, first)).await?;
                if target == Target::Current {
                    self.store_offset(middle).await?;
                }
                Box::pin(self.apply_rows(target, middle, second)).await
            }
            Err(SinkError::Poison(why)) => {
                Err(Halt::Wait(State::Stuck { at: rows.last().map_or(after, |row| row.seq), why }))
            }
            applied => Ok(applied?),
        }
    }

    /// Stores the offset, after the effect (O-6).
    pub(crate) async fn store_offset(&mut self, seq: Seq) -> Step {
        self.store.advance(&self.name, self.holder, seq, self.now()).await?;
        self.show_offset(seq);
        Ok(())
    }

    pub(crate) fn set_state(&self, state: State) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.state, state.clone()) != state);
    }

    pub(crate) fn show_offset(&self, offset: Seq) {
        self.status.send_if_modified(|status| std::mem::replace(&mut status.offset, offset) != offset);
    }

    pub(crate) fn now(&self) -> Millis {
        (self.settings.clock)()
    }
}

fn system_clock() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(since.as_millis() as u64)
}

fn random_holder() -> Holder {
    let mut bytes = [0; 16];
    // If this failed, holders would only be less unique.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    Holder(u128::from_be_bytes(bytes))
}
