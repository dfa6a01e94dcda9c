//! Ingest of a batch: read the facts, let the domain decide, write the outcomes (P-3).
//!
//! The batch is one transaction. An event that makes a decision fail, or that the server rejects, is refused alone and
//! counted; the others are tried again without it.

use std::collections::HashSet;

use kukuri_domain::{Admitted, EventId, KindClass, Millis};
use kukuri_store::{
    Ingested, Outcome,
    ingest::{BatchEffect, EventFailure, ingest_batch},
};

use crate::{
    batch::{Batch, Committed, SLOW_ROW_COUNT},
    error::{Failure, Result},
    writer::Writer,
};

/// Why an attempt failed.
enum IngestFailure {
    /// The event at this index failed.
    Event(usize, Failure),
    /// No single event is known to be the cause.
    Batch(Failure),
}

impl<F: Into<Failure>> From<F> for IngestFailure {
    fn from(failure: F) -> Self {
        Self::Batch(failure.into())
    }
}

fn is_ephemeral(admitted: &Admitted) -> bool {
    admitted.event().kind.class() == KindClass::Ephemeral
}

impl Writer {
    pub(crate) async fn ingest(&self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        if batch.iter().all(is_ephemeral) {
            // Ephemeral events need no statement (E-5).
            let outcomes = vec![Outcome::Ephemeral; batch.len()];
            return Ok(Ingested { outcomes, head: *self.head.borrow(), ..Ingested::default() });
        }
        let mut failed = HashSet::new();
        loop {
            let (index, error) = match self.attempt(batch, &failed, now).await {
                Ok((ingested, repeats, stamp)) => {
                    self.repeats.note(repeats, stamp);
                    if self.repeats.are_due(now) {
                        self.write_duplicate_counts_or_warn().await;
                    }
                    return Ok(ingested);
                }
                Err(IngestFailure::Event(index, error)) => (index, error),
                Err(IngestFailure::Batch(error)) if error.is_of_an_event() && batch.len() > 1 => {
                    tracing::error!(%error, "the server refused a batch; ingesting its events one by one");
                    return self.ingest_one_by_one(batch, now).await;
                }
                Err(IngestFailure::Batch(error)) if error.is_of_an_event() && failed.is_empty() => (0, error),
                Err(IngestFailure::Batch(error)) => return Err(error),
            };
            tracing::error!(id = %batch[index].event().id, %error, "refusing an event that can't be stored");
            failed.insert(index);
        }
    }

    /// Ingests each event in its own transaction, after the server rejected the batch. A rejected event is refused
    /// without the others.
    async fn ingest_one_by_one(&self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut all = Ingested::default();
        for event in batch {
            all.append(Box::pin(self.ingest(std::slice::from_ref(event), now)).await?);
        }
        Ok(all)
    }

    async fn attempt(
        &self,
        events: &[Admitted],
        failed: &HashSet<usize>,
        now: Millis,
    ) -> Result<(Ingested, Vec<EventId>, Millis), IngestFailure> {
        let mut new: Vec<&Admitted> = events.iter().filter(|admitted| !is_ephemeral(admitted)).collect();
        let mut batch = Batch::begin_for(self, &new).await?;
        new.retain(|admitted| !batch.work.known.contains_key(&admitted.event().id));
        if !new.is_empty() {
            batch.tick(now);
            batch.open_month().await?;
            batch.read_facts(&new).await?;
        }
        batch.work.node.failed += failed.len() as u64;
        #[cfg(test)]
        let faults = self.faults.lock().clone();
        let before_each = move |_admitted: &Admitted| {
            #[cfg(test)]
            faults.strike(_admitted)?;
            Ok(())
        };
        let effect = if batch.work.rows.len() > SLOW_ROW_COUNT {
            let (events, failed) = (events.to_vec(), failed.clone());
            batch.compute(move |work| ingest_batch(work, &events, &failed, now, before_each)).await?
        } else {
            ingest_batch(&mut batch.work, events, failed, now, before_each)
        };
        let effect = effect.map_err(|EventFailure { index, error }| IngestFailure::Event(index, error))?;
        let BatchEffect { outcomes, deletions, repeats, has_unknown, .. } = effect;
        if !has_unknown {
            // Known or refused events cause no write, not even of the clock.
            let head = batch.work.node.head;
            batch.rollback().await?;
            return Ok((Ingested { outcomes, head, ..Ingested::default() }, repeats, self.stamp(now)));
        }
        let stamp = batch.clock().latest;
        let Committed { stages, head } = batch.commit().await?;
        Ok((Ingested { outcomes, head, deletions, stages }, repeats, stamp))
    }
}
