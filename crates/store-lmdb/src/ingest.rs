//! Ingest of a batch in its own transaction (P-3). `wal::group_commit` is the usual path; this one serves batches that
//! are too large for it, or that failed in it.
//!
//! An event that makes a decision or an index fail is refused alone and counted; the others are tried again without it.
//! A full disk refuses everything except deletion and vanish requests.

use std::collections::HashSet;

use kukuri_domain::{Admitted, Millis, Refusal};
use kukuri_store::{Ingested, Outcome, ingest::EventFailure};

use crate::{
    batch::{Batch, Committed},
    error::{Failure, Result},
    space::WriteEstimate,
    writer::Writer,
};

/// A failed attempt, with the index of the event that caused it. `None`: no single event is the cause.
type FailedAttempt = (Option<usize>, Failure);

impl Writer {
    pub(crate) fn ingest_committed(&mut self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut accepts = self.check_space(batch)?;
        let mut failed = HashSet::new();
        loop {
            match self.attempt(batch, accepts, &failed, now) {
                Ok(ingested) => {
                    self.write_duplicate_counts_if_due(now);
                    return Ok(ingested);
                }
                Err((Some(index), error)) => {
                    tracing::error!(id = %batch[index].event().id, %error, "refusing an event that can't be stored");
                    failed.insert(index);
                }
                Err((None, error)) if !error.is_full() => return Err(error),
                Err((None, error)) if accepts == Accepts::All => {
                    tracing::warn!(%error, "disk full: accepting only deletion and vanish events (kinds 5, 62)");
                    accepts = Accepts::RequestsOnly;
                }
                Err((None, error)) if batch.len() == 1 => {
                    tracing::error!(%error, "disk full: refusing even a deletion or vanish event");
                    return Ok(Ingested { outcomes: vec![Outcome::Refused(Refusal::DiskFull)], ..Ingested::default() });
                }
                Err((None, _)) => return self.ingest_one_by_one(batch, now),
            }
        }
    }

    /// Ingests each event in its own transaction: events that do not fit together may fit alone. An event that does not
    /// fit is refused without the others.
    fn ingest_one_by_one(&mut self, batch: &[Admitted], now: Millis) -> Result<Ingested> {
        let mut all = Ingested::default();
        for event in batch {
            all.append(self.ingest_committed(std::slice::from_ref(event), now)?);
        }
        Ok(all)
    }

    /// Checks whether the batch fits without the reserve for requests.
    fn check_space(&mut self, batch: &[Admitted]) -> Result<Accepts> {
        let fits = self.tables.read(|view| self.space.fits(view, WriteEstimate::of(batch)))?;
        Ok(if fits { Accepts::All } else { Accepts::RequestsOnly })
    }

    fn attempt(
        &self,
        events: &[Admitted],
        accepts: Accepts,
        failed: &HashSet<usize>,
        now: Millis,
    ) -> Result<Ingested, FailedAttempt> {
        let mut batch = Batch::resume(self.context()).map_err(|error| (None, error))?;
        batch.is_disk_full = accepts == Accepts::RequestsOnly;
        batch.node.failed += failed.len() as u64;
        let effect = batch.ingest(events, failed, now).map_err(|EventFailure { index, error }| {
            let is_shared = error.is_full() || error.is_backend_failure();
            (Some(index).filter(|_| !is_shared), error)
        })?;
        let stamp = batch.stamp_of_copies(now);
        let Committed { stages, head, .. } = self.commit(batch).map_err(|error| (None, error))?;
        self.shared.repeats.note(effect.repeats, stamp);
        Ok(Ingested { outcomes: effect.outcomes, head, deletions: effect.deletions, stages })
    }
}

/// Which events fit on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepts {
    All,
    RequestsOnly,
}

#[cfg(test)]
mod tests {
    use kukuri_store::{
        conformance::{
            build::{NOW, admitted, note},
            faults::Faults,
        },
        port::*,
    };

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore};

    #[test]
    fn event_that_fails_is_refused_alone_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        let events: Vec<_> = (0..6).map(|n| note(&format!("note {n}")).at(n).build()).collect();
        let faults = Faults { failing: vec![events[1].id], panicking: vec![events[4].id] };
        store.with_writer(move |writer| {
            writer.faults = faults;
        });

        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // An event in the same transaction is already acknowledged, and stays.
            let earlier = note("earlier").build();
            store.ingest(vec![admitted(&earlier)], NOW).await.unwrap();
            let batch = events.iter().map(admitted).collect();
            let ingested = store.ingest(batch, NOW).await.unwrap();
            assert!(store.get(&[earlier.id], NOW).await.unwrap()[0].is_some());
            let refused = Outcome::Refused(Refusal::Failed);
            let stored = Outcome::Stored;
            let expected = [&stored, &refused, &stored, &stored, &refused, &stored];
            assert_eq!(ingested.outcomes.iter().collect::<Vec<_>>(), expected);
            assert_eq!(store.stats().await.unwrap().failed, 2);
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());

            // The failed event left nothing behind and is stored once the fault is gone (E-9).
            store.with_writer(|writer| writer.faults = Faults::default());
            let again = store.ingest(vec![admitted(&events[1]), admitted(&events[4])], NOW).await.unwrap();
            assert_eq!(again.outcomes, [Outcome::Stored, Outcome::Stored]);
        });
    }
}
