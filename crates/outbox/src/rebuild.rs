//! Rebuilds: fills a new copy from a snapshot and the rows since, and switches to it (O-8).

use std::convert::Infallible;

use kukuri_store::{Seq, SnapshotCursor};

use crate::{
    consumer::{Consumer, Halt, Step},
    sink::{Batch, Change, SinkError, Target},
    status::State,
};

impl Consumer {
    /// The copy in use, if there is one, is kept up to date meanwhile.
    pub(crate) async fn rebuild(&mut self, in_use: Option<Seq>) -> Step<Infallible> {
        let of = self.store.stats().await?.effective;
        self.set_state(State::Rebuilding { done: 0, of });
        self.sink.begin().await?;
        let (seq, events) = self.fill_from_snapshot(of, in_use).await?;
        let offset = self.fill_from_rows(seq).await?;
        // The switch may take long.
        if !self.renew_lease().await? {
            return Err(Halt::Restart);
        }
        self.sink.switch().await?;
        self.rebuild_requested = false;
        self.store_offset(offset).await?;
        self.status.send_modify(|status| status.builds += 1);
        tracing::info!(consumer = self.name, events, "consumer rebuilt");
        Err(Halt::Restart)
    }

    /// Returns the sequence of the snapshot, and the number of its events.
    async fn fill_from_snapshot(&mut self, of: u64, mut in_use: Option<Seq>) -> Step<(Seq, u64)> {
        let (mut cursor, mut done) = (SnapshotCursor::default(), 0);
        loop {
            self.keep_lease().await?;
            let page = self.store.snapshot(cursor, self.settings.batch_rows).await?;
            done += page.events.len() as u64;
            let changes = page.events.into_iter().map(Change::Upsert).collect();
            self.fill(&Batch { changes, ..Batch::default() }).await?;
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
                None => return Ok((page.seq, done)),
            }
        }
    }

    /// Returns the last row that was applied.
    async fn fill_from_rows(&mut self, seq: Seq) -> Step<Seq> {
        // An empty batch records the position of the snapshot.
        self.fill(&Batch { last: Some(seq), after: seq, ..Batch::default() }).await?;
        let mut offset = seq;
        loop {
            self.keep_lease().await?;
            let rows = self.store.outbox(offset, self.settings.batch_rows).await?;
            let Some(last) = rows.last() else { return Ok(offset) };
            self.apply_rows(Target::Next, offset, &rows).await?;
            offset = last.seq;
            if rows.len() < self.settings.batch_rows {
                return Ok(offset);
            }
            self.check_commands()?;
        }
    }

    async fn fill(&mut self, batch: &Batch) -> Step {
        match self.sink.apply(Target::Next, batch).await {
            Err(SinkError::Poison(why)) => Err(Halt::Wait(State::Stuck { at: batch.after, why })),
            filled => Ok(filled?),
        }
    }
}
