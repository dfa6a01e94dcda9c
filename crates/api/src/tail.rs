//! The newest rows of the outbox, read once for all streams: they are woken together and ask for the same.

use std::{collections::VecDeque, sync::Arc};

use kukuri_store::{OutboxRow, Seq, Store, StoreError};
use tokio::sync::Mutex;

/// Rows that are held.
const MOST_ROWS: usize = 4_096;

/// Rows as they were read.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Arc<OutboxRow>>,
    /// Whether there are no more, as far as is known.
    pub(crate) is_end: bool,
}

impl Rows {
    /// Asks the store.
    pub(crate) async fn read(store: &dyn Store, after: Seq, limit: usize) -> Result<Self, StoreError> {
        let rows: Vec<_> = store.outbox(after, limit).await?.into_iter().map(Arc::new).collect();
        let is_end = rows.len() < limit;
        Ok(Self { rows, is_end })
    }
}

/// The newest rows.
#[derive(Default)]
pub(crate) struct Tail {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// What is held comes after this, without a gap.
    after: Seq,
    rows: VecDeque<Arc<OutboxRow>>,
}

impl Tail {
    /// The rows after a sequence. `head` is the highest that is heard of: what is held up to there need not be read.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        after: Seq,
        limit: usize,
        head: Seq,
    ) -> Result<Rows, StoreError> {
        // Whoever comes while it is read waits, and finds it read.
        let mut held = self.held.lock().await;
        if after < held.after {
            drop(held);
            return Rows::read(store, after, limit).await;
        }
        if after >= held.end() {
            if after > held.end() {
                *held = Held { after, rows: VecDeque::new() };
            } else if after >= head {
                return Ok(Rows { rows: Vec::new(), is_end: true });
            }
            let read = Rows::read(store, after, limit).await?;
            held.add(&read.rows);
            return Ok(read);
        }
        let first = held.rows.partition_point(|row| row.seq <= after);
        let rows: Vec<_> = held.rows.range(first..).take(limit).cloned().collect();
        let is_end = first + rows.len() == held.rows.len() && held.end() >= head;
        Ok(Rows { rows, is_end })
    }
}

impl Held {
    fn end(&self) -> Seq {
        self.rows.back().map_or(self.after, |row| row.seq)
    }

    fn add(&mut self, rows: &[Arc<OutboxRow>]) {
        self.rows.extend(rows.iter().cloned());
        let over = self.rows.len().saturating_sub(MOST_ROWS);
        if let Some(last) = self.rows.drain(..over).next_back() {
            self.after = last.seq;
        }
    }
}
