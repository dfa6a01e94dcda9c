//! The newest outbox rows, read once for all streams: a commit wakes all of them, and all ask for the same rows.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use kukuri_store::{Epoch, OutboxRow, Seq, Store, StoreError};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};

use crate::{gate::StreamTurn, position::Position};

/// Rows in one read of the store.
pub(crate) const ROWS_PER_READ: usize = 1_000;
/// Rows kept in memory.
const MAX_KEPT_ROWS: usize = 4_096;
/// Rows that all streams together read a second while they are behind the kept ones: a stream of a rare topic reads the rows of
/// all topics (Y-1).
const MAX_ROWS_PER_SECOND: u32 = 40_000;

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

pub(crate) struct OutboxTail {
    kept: Mutex<KeptRows>,
    /// When the next read behind the kept rows may begin. One stream of each network waits for it at a time, so that networks
    /// have turns (Y-1).
    next_read_behind: Mutex<Instant>,
}

impl Default for OutboxTail {
    fn default() -> Self {
        Self { kept: Mutex::default(), next_read_behind: Mutex::new(Instant::now()) }
    }
}

/// All rows of the outbox from `after` (exclusive) to the last one kept.
#[derive(Default)]
struct KeptRows {
    epoch: Epoch,
    after: Seq,
    rows: VecDeque<Arc<OutboxRow>>,
}

impl OutboxTail {
    /// Reads rows after a position, for a stream whose network has this turn. The store is not asked for rows up to `head` that are
    /// kept.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        after: Position,
        head: Seq,
        turn: &StreamTurn,
    ) -> Result<Rows, StoreError> {
        let Position { epoch, seq: after } = after;
        if after.0 + (MAX_KEPT_ROWS as u64) < store.watch_outbox().borrow().0 {
            return self.read_behind(store, after, turn).await;
        }
        // The lock is held while the store is read: the other streams wait, then find the rows here.
        let mut kept = self.kept.lock().await;
        if kept.epoch != epoch {
            *kept = KeptRows { epoch, after, rows: VecDeque::new() };
        }
        if after < kept.after {
            drop(kept);
            return self.read_behind(store, after, turn).await;
        }
        if after >= kept.end() {
            if after > kept.end() {
                *kept = KeptRows { epoch, after, rows: VecDeque::new() };
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

    async fn read_behind(&self, store: &dyn Store, after: Seq, turn: &StreamTurn) -> Result<Rows, StoreError> {
        let _turn = turn.lock().await;
        let mut next = self.next_read_behind.lock().await;
        sleep_until(*next).await;
        let read = Rows::read(store, after).await?;
        *next = Instant::now() + Duration::from_secs(1) * read.rows.len() as u32 / MAX_ROWS_PER_SECOND;
        Ok(read)
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
