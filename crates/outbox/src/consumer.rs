//! A named consumer: from its offset on, in ascending batches, effect first and offset then (O-6).

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
    handle::{Command, Done, Handle},
    sink::{Batch, Reached, Sink, SinkError, Target},
    status::{State, Status},
};

/// How a consumer runs.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// The most rows that are done at a time.
    pub batch_rows: usize,
    /// How often it looks for rows of which it heard nothing.
    pub poll: Duration,
    /// After it has done something it waits for so long, or for so many rows: they cost less together.
    pub gather: Duration,
    /// So many rows are not waited for any longer.
    pub gather_rows: usize,
    /// For how long nobody takes over from an instance that has said nothing.
    pub lease: Duration,
    /// Who runs it. `None`: somebody new. One who comes again, and can't run twice, need not wait for a lease to end.
    pub holder: Option<Holder>,
    /// The first wait after a failure; it doubles with each.
    pub first_retry: Duration,
    /// The longest wait after a failure.
    pub last_retry: Duration,
    /// What time it is.
    pub clock: fn() -> Millis,
}

impl Default for ConsumerSettings {
    fn default() -> Self {
        Self {
            batch_rows: 2_000,
            poll: Duration::from_secs(1),
            gather: Duration::from_secs(1),
            gather_rows: 256,
            lease: Duration::from_secs(30),
            holder: None,
            first_retry: Duration::from_millis(100),
            last_retry: Duration::from_secs(30),
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
    done: Arc<OnceLock<Done>>,
    leased_at: Option<Instant>,
    /// An operator wants everything anew.
    rebuild_wanted: bool,
}

/// Why a consumer does not go on as it is.
enum Halt {
    /// It is to end.
    Stop,
    /// It begins again: told so, or overtaken.
    Again,
    /// It waits for an operator, in this state.
    Wait(State),
    /// It tries again after a while.
    Retry(String),
}

type Step<T = ()> = Result<T, Halt>;

impl Consumer {
    /// Starts a consumer.
    pub fn start(name: &str, store: Arc<dyn Store>, sink: Arc<dyn Sink>, settings: ConsumerSettings) -> Handle {
        let (commands, receiver) = mpsc::channel(8);
        let (status, watched) = watch::channel(Status::default());
        let heads = store.watch_outbox();
        let done = Arc::new(OnceLock::new());
        let holder = settings.holder.unwrap_or_else(|| Holder(random()));
        let consumer = Self {
            name: name.to_owned(),
            store,
            sink,
            settings,
            holder,
            heads,
            commands: receiver,
            status,
            done: Arc::clone(&done),
            leased_at: None,
            rebuild_wanted: false,
        };
        Handle { commands, status: watched, done, task: tokio::spawn(consumer.run()) }
    }

    async fn run(mut self) {
        let mut failures = 0;
        let mut next = Halt::Again;
        loop {
            next = match next {
                Halt::Stop => break,
                Halt::Again => {
                    let before = self.status.borrow().offset;
                    let Err(halt) = self.follow().await;
                    if self.status.borrow().offset > before {
                        failures = 0;
                    }
                    halt
                }
                Halt::Wait(state) => {
                    if state != State::Paused {
                        tracing::error!(consumer = self.name, ?state, "a consumer waits for an operator");
                    }
                    self.say(state);
                    failures = 0;
                    self.wait_for_operator().await
                }
                Halt::Retry(why) => {
                    failures += 1;
                    tracing::warn!(consumer = self.name, why, failures, "a consumer tries again");
                    self.say(State::Retrying { why, times: failures });
                    self.rest(self.retry_after(failures)).await.err().unwrap_or(Halt::Again)
                }
            };
        }
        if self.leased_at.is_some()
            && let Err(error) = self.store.release(&self.name, self.holder).await
        {
            tracing::warn!(consumer = self.name, %error, "a lease could not be given back; it ends by itself");
        }
        self.say(State::Stopped);
    }

    /// Follows until something ends it.
    async fn follow(&mut self) -> Step<std::convert::Infallible> {
        self.take_lease().await?;
        let offset = self.begin_at().await?;
        if self.rebuild_wanted {
            return self.rebuild(offset).await;
        }
        let Some(mut offset) = offset else { return self.rebuild(None).await };
        loop {
            let before = offset;
            let is_full = self.follow_some(&mut offset).await?;
            if is_full {
                self.heed_next()?;
                continue;
            }
            self.say(State::Following);
            if offset > before {
                self.let_rows_gather(offset).await?;
            } else {
                self.wait_for_rows().await?;
            }
        }
    }

    /// Does the next rows. Returns whether there may be more at once.
    async fn follow_some(&mut self, offset: &mut Seq) -> Step<bool> {
        self.keep_lease().await?;
        self.see_head(*offset);
        let rows = self.rows_after(*offset).await?;
        let Some(last) = rows.last() else { return Ok(false) };
        self.apply(Target::Current, *offset, &rows).await?;
        self.done_to(last.seq).await?;
        *offset = last.seq;
        self.see_head(*offset);
        if let Some(done) = self.done.get() {
            done(&rows);
        }
        Ok(rows.len() == self.settings.batch_rows)
    }

    // Where it begins.

    /// `None`: with a snapshot. A sink that has less than the store believes has lost something; one that has more was
    /// stopped before it could say so, or an operator wants a replay: what is done twice is done once (O-7).
    async fn begin_at(&mut self) -> Step<Option<Seq>> {
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

    // A step.

    async fn rows_after(&mut self, offset: Seq) -> Step<Vec<OutboxRow>> {
        match self.store.outbox(offset, self.settings.batch_rows).await {
            Err(StoreError::Truncated { first, .. }) => Err(Halt::Wait(State::TooFarBehind { first })),
            rows => rows.map_err(retry),
        }
    }

    async fn apply(&mut self, target: Target, after: Seq, rows: &[OutboxRow]) -> Step {
        let batch = batch::look_up(&*self.store, after, rows, self.now()).await.map_err(retry)?;
        match self.sink.apply(target, &batch).await {
            Ok(()) => Ok(()),
            Err(SinkError::Passing(error)) => Err(Halt::Retry(error.to_string())),
            Err(SinkError::Poison(_)) if rows.len() > 1 => {
                // The first half is good, or has the bad row in it: so the row is found, and all before it is done.
                let (first, second) = rows.split_at(rows.len() / 2);
                let middle = first.last().map_or(after, |row| row.seq);
                Box::pin(self.apply(target, after, first)).await?;
                if target == Target::Current {
                    self.done_to(middle).await?;
                }
                Box::pin(self.apply(target, middle, second)).await
            }
            Err(SinkError::Poison(why)) => {
                Err(Halt::Wait(State::Stuck { at: rows.last().map_or(after, |row| row.seq), why }))
            }
        }
    }

    /// The offset, after the effect (O-6).
    async fn done_to(&mut self, seq: Seq) -> Step {
        match self.store.advance(&self.name, self.holder, seq, self.now()).await {
            Err(StoreError::LeaseLost { .. }) => {
                self.leased_at = None;
                Err(Halt::Again)
            }
            done => {
                done.map_err(retry)?;
                self.status.send_modify(|status| status.offset = seq);
                Ok(())
            }
        }
    }

    // Everything anew.

    /// Fills a copy from a snapshot, follows the rows since, and puts it in place (O-8). The one in use, if there is one, is
    /// kept up to date meanwhile. Ends by beginning again.
    async fn rebuild(&mut self, mut in_use: Option<Seq>) -> Step<std::convert::Infallible> {
        let of = self.store.stats().await.map_err(retry)?.effective;
        self.say(State::Rebuilding { done: 0, of });
        self.sink.begin().await.map_err(passing)?;
        let (mut cursor, mut done) = (SnapshotCursor::default(), 0);
        let seq = loop {
            self.keep_lease().await?;
            let page = self.store.snapshot(cursor, self.settings.batch_rows).await.map_err(retry)?;
            done += page.events.len() as u64;
            self.fill(&batch::of_snapshot(page.events)).await?;
            self.say(State::Rebuilding { done, of: of.max(done) });
            self.heed_next()?;
            if let Some(offset) = &mut in_use {
                // What can't be followed any more, or is broken, is about to be replaced.
                match self.follow_some(offset).await {
                    Err(Halt::Wait(_) | Halt::Retry(_)) => in_use = None,
                    followed => drop(followed?),
                }
            }
            match page.next {
                Some(next) => cursor = next,
                None => break page.seq,
            }
        };
        // An empty batch says how far the snapshot reaches.
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
            self.heed_next()?;
        }
        // It may take a while.
        if !self.renew_lease().await? {
            return Err(Halt::Again);
        }
        self.sink.switch().await.map_err(passing)?;
        self.rebuild_wanted = false;
        self.done_to(offset).await?;
        self.status.send_modify(|status| status.builds += 1);
        tracing::info!(consumer = self.name, events = done, "a consumer was built anew");
        Err(Halt::Again)
    }

    async fn fill(&mut self, batch: &Batch) -> Step {
        match self.sink.apply(Target::Next, batch).await {
            Err(SinkError::Poison(why)) => Err(Halt::Wait(State::Stuck { at: batch.after, why })),
            filled => filled.map_err(passing),
        }
    }

    // The lease.

    async fn take_lease(&mut self) -> Step {
        loop {
            if self.renew_lease().await? {
                return Ok(());
            }
            // How far the other one is counts here, too (O-9).
            if let Some(offset) = self.stored_offset().await? {
                self.see_head(offset);
            }
            self.say(State::Standby);
            self.rest(self.settings.lease / 10).await?;
        }
    }

    async fn keep_lease(&mut self) -> Step {
        let is_fresh = self.leased_at.is_some_and(|at| at.elapsed() < self.settings.lease / 3);
        if is_fresh || self.renew_lease().await? { Ok(()) } else { Err(Halt::Again) }
    }

    async fn renew_lease(&mut self) -> Step<bool> {
        let now = self.now();
        let until = Millis(now.0 + self.settings.lease.as_millis() as u64);
        let asked = Instant::now();
        let is_own = self.store.lease(&self.name, self.holder, until, now).await.map_err(retry)?;
        self.leased_at = is_own.then_some(asked);
        Ok(is_own)
    }

    // Waiting, and what may end it.

    /// Waits for rows: for a word of them, or until it is time to look.
    async fn wait_for_rows(&mut self) -> Step {
        let poll = self.settings.poll;
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            // Whether it changed, or nobody is left to change it, a look tells.
            _ = timeout(poll, self.heads.changed()) => return Ok(()),
        };
        self.heed(command).await
    }

    /// Waits for many rows, or for a while.
    async fn let_rows_gather(&mut self, offset: Seq) -> Step {
        let enough = Seq(offset.0 + self.settings.gather_rows as u64);
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            _ = timeout(self.settings.gather, self.heads.wait_for(|head| *head >= enough)) => return Ok(()),
        };
        self.heed(command).await
    }

    async fn rest(&mut self, time: Duration) -> Step {
        let command = tokio::select! {
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
            () = sleep(time) => return Ok(()),
        };
        self.heed(command).await
    }

    async fn wait_for_operator(&mut self) -> Halt {
        loop {
            let patience = self.settings.lease / 3;
            match timeout(patience, self.commands.recv()).await {
                Ok(command) => {
                    let heeded = self.heed(command.unwrap_or(Command::Stop)).await;
                    return heeded.err().unwrap_or(Halt::Again);
                }
                // Another instance would fare no better.
                Err(_) => drop(self.renew_lease().await),
            }
        }
    }

    /// In the middle of something only what ends it counts.
    fn heed_next(&mut self) -> Step {
        match self.commands.try_recv() {
            Ok(Command::Stop) | Err(mpsc::error::TryRecvError::Disconnected) => Err(Halt::Stop),
            Ok(Command::Rebuild) => {
                self.rebuild_wanted = true;
                Err(Halt::Again)
            }
            Ok(Command::Pause) => Err(Halt::Wait(State::Paused)),
            Ok(_) | Err(mpsc::error::TryRecvError::Empty) => Ok(()),
        }
    }

    async fn heed(&mut self, command: Command) -> Step {
        match command {
            Command::Stop => Err(Halt::Stop),
            Command::Resume => Err(Halt::Again),
            Command::Pause => Err(Halt::Wait(State::Paused)),
            Command::Skip(row) => self.skip(row).await,
            Command::Replay(after) => {
                self.store.set_offset(&self.name, after, self.now()).await.map_err(retry)?;
                self.status.send_modify(|status| status.offset = after);
                Err(Halt::Again)
            }
            Command::Rebuild => {
                self.rebuild_wanted = true;
                Err(Halt::Again)
            }
        }
    }

    /// Goes on past the row it is stuck at, as it was told to.
    async fn skip(&mut self, row: Seq) -> Step {
        let State::Stuck { at, why } = self.status.borrow().state.clone() else { return Err(Halt::Again) };
        if at == row {
            tracing::error!(consumer = self.name, row = row.0, why, "a row is skipped, as an operator said");
            let after = self.status.borrow().offset;
            self.sink
                .apply(Target::Current, &Batch { after, last: Some(row), ..Batch::default() })
                .await
                .map_err(passing)?;
            self.done_to(row).await?;
        }
        Err(Halt::Again)
    }

    // What it says.

    fn say(&self, state: State) {
        self.status.send_if_modified(|status| {
            let is_new = status.state != state;
            status.state = state;
            is_new
        });
    }

    fn see_head(&self, offset: Seq) {
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

    fn retry_after(&self, failures: u32) -> Duration {
        let doubled = self.settings.first_retry.saturating_mul(1 << failures.saturating_sub(1).min(20));
        doubled.min(self.settings.last_retry)
    }
}

fn retry(error: StoreError) -> Halt {
    Halt::Retry(error.to_string())
}

fn passing(error: SinkError) -> Halt {
    Halt::Retry(error.to_string())
}

fn system_clock() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(since.as_millis() as u64)
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    // The system always has some; what were not random would only be less unique.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u128::from_be_bytes(bytes)
}
