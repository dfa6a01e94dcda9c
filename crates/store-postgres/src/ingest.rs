//! Taking a batch in: what decisions need is read, the domain decides, its answers are written (P-3).
//!
//! The batch is one transaction. An event that makes a decision fail, or that the server does not take, is refused
//! alone and counted; the others are tried again without it.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use kukuri_domain::{
    Admitted, Event, EventId, Kind, KindClass, Millis, Refusal, State,
    capacity::{self, TopicLoad},
    decision::{self, Decision, Known, Row as KnownRow, Verdict},
    deletion::{DeletionResult, DeletionTarget, DeletionTargetKind},
};
use kukuri_store::{Ingested, Outcome, Standing};

use crate::{
    batch::{Batch, Committed},
    error::{Failure, Result},
    work::Work,
    writer::Writer,
};

/// What went wrong with an attempt.
enum Attempt {
    /// One event did not get through.
    Event(usize, Failure),
    /// No single event is to blame, as far as can be seen.
    Whole(Failure),
}

impl<F: Into<Failure>> From<F> for Attempt {
    fn from(failure: F) -> Self {
        Self::Whole(failure.into())
    }
}

impl Writer {
    pub(crate) async fn ingest(&self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        if batch.iter().all(|admitted| admitted.event().kind.class() == KindClass::Ephemeral) {
            // Nothing to ask the server about (E-5).
            let outcomes = vec![Outcome::Ephemeral; batch.len()];
            return Ok(Ingested { outcomes, head: *self.head.borrow(), ..Ingested::default() });
        }
        let mut failed = HashSet::new();
        loop {
            match self.attempt(batch, &failed, now).await {
                Ok((ingested, repeats, stamp)) => {
                    self.repeats.note(repeats, stamp);
                    self.flush_if_due(now).await;
                    return Ok(ingested);
                }
                Err(Attempt::Event(index, error)) => {
                    tracing::error!(id = %batch[index].event().id, %error, "an event was refused: it can't be stored");
                    failed.insert(index);
                }
                Err(Attempt::Whole(error)) if error.is_of_an_event() && batch.len() > 1 => {
                    tracing::error!(%error, "the server refused a batch: its events are tried one by one");
                    return self.ingest_one_by_one(batch, now).await;
                }
                Err(Attempt::Whole(error)) if error.is_of_an_event() && !failed.contains(&0) => {
                    tracing::error!(id = %batch[0].event().id, %error, "an event was refused: it can't be stored");
                    failed.insert(0);
                }
                Err(Attempt::Whole(error)) => return Err(error),
            }
        }
    }

    /// What the server does not take together it may take alone; one that it does not take is refused without the
    /// others.
    async fn ingest_one_by_one(&self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut all = Ingested::default();
        for event in batch {
            let one = Box::pin(self.ingest(std::slice::from_ref(event), now)).await?;
            all.outcomes.extend(one.outcomes);
            all.stages.extend(one.stages);
            all.head = all.head.max(one.head);
            add(&mut all.deletions, one.deletions);
        }
        Ok(all)
    }

    async fn attempt(
        &self,
        events: &[Admitted],
        failed: &HashSet<usize>,
        now: Millis,
    ) -> Result<(Ingested, Vec<EventId>, Millis), Attempt> {
        let mut batch = Batch::resume(self).await?;
        let kept = events.iter().filter(|admitted| admitted.event().kind.class() != KindClass::Ephemeral);
        let ids: Vec<EventId> = kept.map(|admitted| admitted.event().id).collect();
        batch.read_ids(&ids).await?;
        let is_new = |admitted: &&Admitted| {
            let event = admitted.event();
            event.kind.class() != KindClass::Ephemeral && batch.work.known_id(&event.id).is_none()
        };
        let new: Vec<&Admitted> = events.iter().filter(is_new).collect();
        if new.is_empty() {
            // Nothing is written for what is known or not kept, not even the time.
            let (ingested, repeats) = answer(&mut Taking::new(&mut batch.work, now), events);
            batch.abandon().await?;
            return Ok((ingested, repeats, self.stamp(now)));
        }
        batch.work.node.clock = batch.work.node.clock.tick(now);
        batch.work.node.failed += failed.len() as u64;
        batch.open_month().await?;
        batch.read_facts(&new).await?;

        let mut taking = Taking::new(&mut batch.work, now);
        let mut outcomes = Vec::with_capacity(events.len());
        for (index, admitted) in events.iter().enumerate() {
            if failed.contains(&index) {
                outcomes.push(Outcome::Refused(Refusal::Failed));
                continue;
            }
            let taken = catch_unwind(AssertUnwindSafe(|| {
                #[cfg(test)]
                crate::writer::locked(&self.faults).strike(admitted)?;
                taking.take_in(admitted)
            }));
            match taken.unwrap_or(Err(Failure::Panic)) {
                Ok(outcome) => outcomes.push(outcome),
                Err(failure) => return Err(Attempt::Event(index, failure)),
            }
        }
        let (deletions, repeats) = (taking.deletions, taking.repeats);
        let stamp = batch.clock().latest;
        let Committed { stages, head } = batch.commit().await?;
        Ok((Ingested { outcomes, head, deletions, stages }, repeats, stamp))
    }
}

/// Answers for events of which none is new.
fn answer(taking: &mut Taking<'_>, events: &[Admitted]) -> (Ingested, Vec<EventId>) {
    let outcomes = events.iter().map(|admitted| {
        let event = admitted.event();
        match taking.work.known_id(&event.id) {
            Some(known) if event.kind.class() != KindClass::Ephemeral => {
                taking.repeats.push(event.id);
                repeat(event, known.record.standing.state(), taking.now)
            }
            _ => Outcome::Ephemeral,
        }
    });
    let ingested = Ingested { outcomes: outcomes.collect(), head: taking.work.node.head, ..Ingested::default() };
    (ingested, std::mem::take(&mut taking.repeats))
}

fn repeat(event: &Event, state: State, now: Millis) -> Outcome {
    decision::repeat(event, state, now).map_or(Outcome::Duplicate, Outcome::Refused)
}

fn add(sum: &mut DeletionResult, more: DeletionResult) {
    sum.deleted_count += more.deleted_count;
    sum.skipped_count += more.skipped_count;
}

/// A batch that is being taken in.
struct Taking<'w> {
    work: &'w mut Work,
    now: Millis,
    deletions: DeletionResult,
    repeats: Vec<EventId>,
}

impl<'w> Taking<'w> {
    fn new(work: &'w mut Work, now: Millis) -> Self {
        Self { work, now, deletions: DeletionResult::default(), repeats: Vec::new() }
    }

    fn take_in(&mut self, admitted: &Admitted) -> Result<Outcome> {
        let event = admitted.event();
        if event.kind.class() == KindClass::Ephemeral {
            return Ok(Outcome::Ephemeral);
        }
        if let Some(known) = self.work.known_id(&event.id) {
            let state = known.record.standing.state();
            self.repeats.push(event.id);
            return Ok(repeat(event, state, self.now));
        }
        if let Some(refusal) = self.lacks_room(admitted) {
            return Ok(Outcome::Refused(refusal));
        }
        match self.decide(admitted) {
            Verdict::Known(decision) => self.apply(admitted, *decision),
            Verdict::Ephemeral => Ok(Outcome::Ephemeral),
            Verdict::Refused(refusal) => Ok(Outcome::Refused(refusal)),
        }
    }

    fn lacks_room(&self, admitted: &Admitted) -> Option<Refusal> {
        let topics = admitted.topics().iter().map(|topic| TopicLoad {
            load: self.work.topic_load(topic),
            is_first_to_go: self.work.subscriptions.is_first_to_go(topic),
        });
        let topics: Vec<_> = topics.collect();
        capacity::refuse(admitted.event().kind, admitted.source(), self.work.node_load(), &topics)
    }

    /// Gathers what is known about the event and asks the domain.
    fn decide(&self, admitted: &Admitted) -> Verdict {
        let event = admitted.event();
        let vanish_marks: Vec<_> = event.owners().filter_map(|owner| self.work.mark(&owner)).collect();
        let targets = match event.kind {
            Kind::DELETION => self.rows_named_by(event),
            _ => Vec::new(),
        };
        let known = Known {
            vanish_marks: &vanish_marks,
            tombstones: &self.work.tombstones_of(event),
            key: event.address().and_then(|address| self.work.key(&address).map(|key| key.state())),
            targets: &targets,
        };
        decision::decide(admitted, &known, self.now)
    }

    /// The rows that a deletion request names by id, and those of the addresses it names that are not deleted already.
    fn rows_named_by(&self, request: &Event) -> Vec<KnownRow<'_>> {
        let mut rows = Vec::new();
        let mut listed = HashSet::new();
        for target in DeletionTarget::parse_from_event(request) {
            match &target.target {
                DeletionTargetKind::EventId(id) => rows.extend(self.work.row(id)),
                DeletionTargetKind::Address(address) => {
                    rows.extend(self.work.versions(address).filter(|row| row.state != State::Deleted));
                }
            }
        }
        rows.retain(|row| listed.insert(row.outline.id));
        rows.into_iter().map(|row| KnownRow { event: &row.outline, state: row.state }).collect()
    }

    /// Carries a decision out.
    fn apply(&mut self, admitted: &Admitted, decision: Decision) -> Result<Outcome> {
        let event = admitted.event();
        for (id, trace) in decision.traces {
            let topics = if id == event.id { admitted.topics().to_vec() } else { self.work.topics_reached(&id)? };
            self.work.traces.extend(topics.into_iter().map(|topic| (topic, trace.clone())));
        }
        for (id, reason) in decision.taken {
            self.work.take_away(&id, reason, Some(event.id))?;
        }
        for tombstone in decision.tombstones {
            self.work.record(tombstone);
        }
        if let Some(mark) = decision.vanish
            && self.work.leave_mark(mark)
        {
            self.work.vanish(&mark)?;
        }
        if let Some(result) = decision.deletion {
            add(&mut self.deletions, result);
        }
        let outcome = match decision.against {
            None => {
                self.work.store(admitted)?;
                Outcome::Stored
            }
            Some((reason, cause)) => {
                if let (Some(floor), Some(address)) = (decision.floor, event.address()) {
                    self.work.raise_floor(&address, floor);
                }
                let standing = Standing::Gone { reason, cause: Some(cause), since: self.work.stamp() };
                self.work.remember(admitted, standing, None);
                repeat(event, reason.state(), self.now)
            }
        };
        self.work.update_stages()?;
        Ok(outcome)
    }
}
