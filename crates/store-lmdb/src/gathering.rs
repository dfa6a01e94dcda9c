//! Batches of events, gathered into one transaction.
//!
//! LMDB pays for each page that a transaction changes, and two syncs. So a batch is acknowledged once it is in the file
//! [`ahead`](crate::ahead), which takes one sync, and its transaction stays open for the next. It is committed when
//! it is large, when it has been open for a while, or when somebody wants to see or to change something else.

use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Instant,
};

use kukuri_domain::{Admitted, Millis, clock::Clock};
use kukuri_store::{Ingested, Outcome, Seq, StoreError, repeats::Repeats};
use tokio::sync::{oneshot, watch};

use crate::{
    ahead::{Ahead, Taken},
    batch::{Batch, Committed, Surroundings},
    error::Result,
    ingest::{Room, Taking, guarded},
    open::io,
    room::{self, Load},
    thread::Job,
    unsettled::Unsettled,
    writer::{Writer, locked, tell},
};

/// A transaction with so many events, or so many bytes of them, is committed: more are cheaper each, and take longer together.
const MOST_EVENTS: usize = 2_048;
const MOST_BYTES: usize = 2 << 20;

/// Events to be taken in, and who wants to know what became of them.
pub(crate) struct Intake {
    pub(crate) events: Vec<Admitted>,
    pub(crate) now: Millis,
    pub(crate) answer: oneshot::Sender<Result<Ingested>>,
}

/// Why a transaction takes no more events.
enum End {
    /// It is large or old enough, or this is to be done next.
    Over(Option<Job>),
    /// These do not fit into it, or into the file ahead of it.
    TooLarge(Intake),
    /// It has failed at these.
    Failed(Intake),
    /// There is nothing in it but, perhaps, the time: not worth a wait.
    Idle(Intake, Ingested),
}

impl Writer {
    /// Takes events in, and those that come soon after. Returns what else is to be done.
    pub(crate) fn take_in(&mut self, first: Intake, jobs: &Receiver<Job>) -> Option<Job> {
        let until = Instant::now() + self.gather;
        if self.gather.is_zero() || !self.pending.is_empty() {
            self.take_in_alone(first);
            return None;
        }
        // Known and ephemeral events need no transaction.
        match self.answer_without_writing(&first.events, Room::ForAll, first.now) {
            Ok(None) => {}
            answered => {
                let _ = first.answer.send(answered.map(Option::unwrap_or_default));
                return None;
            }
        }
        let (end, committed) = match self.gathering(first.now) {
            Ok(mut gathering) => match gathering.gather(first, jobs, until) {
                End::Failed(intake) => (End::Failed(intake), Ok(())),
                end => (end, gathering.commit()),
            },
            Err(error) => {
                let _ = first.answer.send(Err(error));
                return None;
            }
        };
        match committed {
            Ok(()) if !matches!(end, End::Failed(_)) => self.settled(),
            Ok(()) => {}
            // It is tried again before anything else is done.
            Err(error) => tracing::error!(%error, "what was acknowledged is not committed yet"),
        }
        match end {
            End::Over(next) => next,
            End::Idle(intake, ingested) => {
                let _ = intake.answer.send(Ok(ingested));
                None
            }
            End::TooLarge(intake) | End::Failed(intake) => {
                self.take_in_alone(intake);
                None
            }
        }
    }

    /// In a transaction of their own, committed before they are answered.
    fn take_in_alone(&mut self, intake: Intake) {
        let ingested = self.pay().and_then(|()| self.ingest(&intake.events, intake.now));
        if let Ok(ingested) = &ingested {
            tell(&self.head, ingested.head);
        }
        let _ = intake.answer.send(ingested);
    }

    fn gathering(&mut self, now: Millis) -> Result<Gathering<'_>> {
        let Self {
            env,
            tables,
            rules,
            subscriptions,
            room,
            clock,
            ahead,
            pending,
            unsettled,
            repeats,
            head,
            #[cfg(test)]
            faults,
            ..
        } = self;
        let around = Surroundings { env, tables: *tables, rules, subscriptions, clock: *locked(clock) };
        let mut batch = Batch::resume(around)?;
        batch.tell_rows();
        let transaction = batch.txn.id() as u64;
        Ok(Gathering {
            taking: Taking::new(batch, now, Room::ForAll),
            transaction,
            room,
            ahead,
            pending,
            unsettled,
            repeats,
            clock,
            head,
            load: Load::default(),
            is_heavy: false,
            #[cfg(test)]
            faults,
        })
    }

    /// Commits what was acknowledged and, for whatever reason, is not committed: after a crash, or a failure.
    pub(crate) fn pay(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.take_pending_in_again()?;
        self.settled();
        Ok(())
    }

    fn take_pending_in_again(&self) -> Result<()> {
        // From the time at which it was first taken in: followers may have read its rows, with their stamps.
        let clock = self.stored()?.clock;
        let batch = Batch::resume(Surroundings { clock, ..self.around() })?;
        let mut taking = Taking::new(batch, Millis::default(), Room::ForAll);
        for taken in &self.pending {
            taking.go_on(taken.now);
            for event in &taken.events {
                #[cfg(test)]
                self.faults.strike(event)?;
                taking.take_in_again(event)?;
            }
        }
        let Committed { clock, .. } = taking.batch.commit()?;
        let seen = self.around().clock;
        if clock.latest >= seen.latest {
            self.saw(Clock { held: clock.held || seen.held, ..clock });
        }
        Ok(())
    }

    /// Everything that was acknowledged is committed.
    fn settled(&mut self) {
        let now = self.pending.last().map(|taken| taken.now);
        self.pending.clear();
        self.unsettled.clear();
        if let Some(now) = now {
            self.flush_if_due(now);
        }
    }
}

/// A transaction that takes batches in.
struct Gathering<'w> {
    taking: Taking<'w>,
    transaction: u64,
    room: &'w mut room::Room,
    ahead: &'w mut Ahead,
    pending: &'w mut Vec<Taken>,
    unsettled: &'w Unsettled,
    repeats: &'w Repeats,
    clock: &'w Mutex<Clock>,
    head: &'w watch::Sender<Seq>,
    load: Load,
    /// It takes so much away that it is better not kept waiting.
    is_heavy: bool,
    #[cfg(test)]
    faults: &'w kukuri_store::conformance::faults::Faults,
}

impl Gathering<'_> {
    fn gather(&mut self, first: Intake, jobs: &Receiver<Job>, until: Instant) -> End {
        let mut intake = first;
        loop {
            match self.fits(&intake.events) {
                Ok(true) => {}
                Ok(false) => return End::TooLarge(intake),
                Err(_) => return End::Failed(intake),
            }
            match self.take_in(&intake) {
                Ok(ingested) if self.pending.is_empty() => return End::Idle(intake, ingested),
                Ok(ingested) => drop(intake.answer.send(Ok(ingested))),
                Err(error) => {
                    tracing::debug!(%error, "a batch is taken in alone");
                    return End::Failed(intake);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            let is_large = self.load.events >= MOST_EVENTS || self.load.bytes >= MOST_BYTES || self.is_heavy;
            if is_large || left.is_zero() {
                return End::Over(None);
            }
            match jobs.recv_timeout(left) {
                Ok(Job::TakeIn(more)) => intake = more,
                Ok(other) => return End::Over(Some(other)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return End::Over(None),
            }
        }
    }

    fn fits(&mut self, events: &[Admitted]) -> Result<bool> {
        let (around, load) = (self.taking.batch.around, self.load.with(Load::of(events)));
        let has_room = self.room.fits(around.env, &around.tables, &self.taking.batch.txn, load)?;
        Ok(has_room && self.ahead.fits(self.transaction, events))
    }

    /// Takes a batch in. It is durable when this returns. An error leaves the transaction spoilt.
    fn take_in(&mut self, intake: &Intake) -> Result<Ingested> {
        self.taking.go_on(intake.now);
        let mut outcomes = Vec::with_capacity(intake.events.len());
        for admitted in &intake.events {
            outcomes.push(self.take_one(admitted)?);
        }
        let batch = &mut self.taking.batch;
        let (rows, stages, head) = (batch.take_rows(), batch.take_stages(), batch.node.head);
        let (clock, stamp) = (batch.node.clock, batch.stamp());
        let taken = Taken { events: std::mem::take(&mut self.taking.applied), now: intake.now };
        let load = self.load.with(Load::of(&taken.events));
        let reserve_taken = self.room.reserve_taken(load, batch.written);
        if reserve_taken > 1.0 {
            // Alone it is committed before it is answered: then it shows whether there is room.
            return Err(StoreError::Full("it takes more away than there is sure to be room for".to_owned()).into());
        }
        self.is_heavy = reserve_taken > 0.5;
        if !taken.events.is_empty() {
            self.ahead.append(self.transaction, &taken).map_err(io)?;
            self.load = load;
            self.unsettled.add(&taken.events, rows);
            self.pending.push(taken);
        }
        *locked(self.clock) = clock;
        self.repeats.note(std::mem::take(&mut self.taking.repeats), stamp);
        tell(self.head, head);
        let deletions = std::mem::take(&mut self.taking.deletions);
        Ok(Ingested { outcomes, head, deletions, stages })
    }

    fn take_one(&mut self, admitted: &Admitted) -> Result<Outcome> {
        #[cfg(test)]
        let faults = self.faults;
        guarded(|| {
            #[cfg(test)]
            faults.strike(admitted)?;
            self.taking.take_in(admitted)
        })
    }

    fn commit(self) -> Result<()> {
        let Committed { clock, .. } = self.taking.batch.commit()?;
        *locked(self.clock) = clock;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kukuri_store::{
        Store,
        conformance::build::{NOW, admitted, note},
    };

    use super::*;
    use crate::{LmdbOptions, LmdbStore, Sync};

    #[test]
    fn a_stop_after_a_failed_commit_loses_nothing_that_was_acknowledged() {
        // P-3, O-5
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options.clone()).unwrap();
        let event = admitted(&note("acknowledged").build());
        let id = event.event().id;
        // As it is after a commit has failed: the clock has gone on, and copies were counted.
        store.with_writer(move |writer| {
            let taken = Taken { events: vec![event], now: NOW };
            writer.ahead.append(writer.env.info().last_txn_id as u64 + 1, &taken).unwrap();
            writer.faults.failing = vec![id];
            writer.pending.push(taken);
            writer.saw(writer.around().clock.tick(NOW));
            writer.repeats.note(vec![id], NOW);
        });
        drop(store);
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(store.get(&[id], NOW)).unwrap()[0].is_some());
    }

    #[test]
    fn what_could_not_be_committed_is_before_anything_else_is_done() {
        // P-3, W-9
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let owe = |text: &str| {
            let event = admitted(&note(text).build());
            let (id, taken) = (event.event().id, Taken { events: vec![event], now: NOW });
            // As it is after a commit has failed.
            store.with_writer(move |writer| {
                writer.unsettled.add(&taken.events, Vec::new());
                writer.pending.push(taken);
            });
            id
        };
        runtime.block_on(async {
            let read = owe("somebody reads");
            assert!(store.get(&[read], NOW).await.unwrap()[0].is_some());
            let written = owe("something else is written");
            store.set_offset("a-consumer", Seq::default(), NOW).await.unwrap();
            let more = owe("more comes in");
            let later = admitted(&note("later").build());
            store.ingest(vec![later.clone()], NOW).await.unwrap();
            let found = store.get(&[written, more, later.event().id], NOW).await.unwrap();
            assert!(found.iter().all(Option::is_some));
            let rows = store.outbox(Seq::default(), 10).await.unwrap();
            let order: Vec<_> = rows.iter().map(|row| row.event_id).collect();
            assert_eq!(order, [read, written, more, later.event().id]);
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
    }
}
