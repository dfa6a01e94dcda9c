//! The newest outbox rows, read once for all streams: a commit wakes all of them, and all ask for the same rows.

use std::{collections::VecDeque, sync::Arc};

use kukuri_store::{OutboxRow, Seq, Store, StoreError};
use tokio::sync::Mutex;

/// Rows in one read of the store.
const ROWS_PER_READ: usize = 1_000;
/// Rows kept in memory.
const MAX_KEPT_ROWS: usize = 4_096;

/// Consecutive outbox rows.
pub(crate) struct Rows {
    pub(crate) rows: Vec<Arc<OutboxRow>>,
    /// Whether no rows were known to follow.
    pub(crate) is_end: bool,
}

impl Rows {
    pub(crate) async fn read(store: &dyn Store, after: Seq) -> Result<Self, StoreError> {
        let rows: Vec<_> = store.outbox(after, ROWS_PER_READ).await?.into_iter().map(Arc::new).collect();
        let is_end = rows.len() < ROWS_PER_READ;
        Ok(Self { rows, is_end })
    }
}

#[derive(Default)]
pub(crate) struct OutboxTail {
    kept: Mutex<KeptRows>,
}

/// All rows of the outbox from `after` (exclusive) to the last one kept.
#[derive(Default)]
struct KeptRows {
    after: Seq,
    rows: VecDeque<Arc<OutboxRow>>,
}

impl OutboxTail {
    /// Reads rows after a sequence. The store is not asked for rows up to `head` that are kept.
    pub(crate) async fn read(&self, store: &dyn Store, after: Seq, head: Seq) -> Result<Rows, StoreError> {
        // The lock is held while the store is read: the other streams wait, then find the rows here.
        let mut kept = self.kept.lock().await;
        if after < kept.after {
            drop(kept);
            return Rows::read(store, after).await;
        }
        if after >= kept.end() {
            if after > kept.end() {
                *kept = KeptRows { after, rows: VecDeque::new() };
            } else if after >= head {
                return Ok(Rows { rows: Vec::new(), is_end: true });
            }
            let read = Rows::read(store, after).await?;
            kept.extend(&read.rows);
            return Ok(read);
        }
        let first = kept.rows.partition_point(|row| row.seq <= after);
        let rows: Vec<_> = kept.rows.range(first..).take(ROWS_PER_READ).cloned().collect();
        let is_end = first + rows.len() == kept.rows.len() && kept.end() >= head;
        Ok(Rows { rows, is_end })
    }
}

impl KeptRows {
    fn end(&self) -> Seq {
        self.rows.back().map_or(self.after, |row| row.seq)
    }

    fn extend(&mut self, rows: &[Arc<OutboxRow>]) {
        self.rows.extend(rows.iter().cloned());
        let over = self.rows.len().saturating_sub(MAX_KEPT_ROWS);
        if let Some(last) = self.rows.drain(..over).next_back() {
            self.after = last.seq;
        }
    }
}
