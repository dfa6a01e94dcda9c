//! What a read may cost, and the gate that admits costly reads a few at a time (Y-1, Y-2).
//!
//! A store first tries to answer a query with little work, which needs no permit for work of the processor. Only a query that
//! turns out to be costly waits at the gate.

use std::{fmt, sync::Arc, time::Instant};

use async_trait::async_trait;

use crate::error::{Result, StoreError};

/// What reading the answer to a query may cost, over all its filters (Y-2). The default is unlimited.
#[derive(Clone)]
pub struct Budget {
    /// Maximum rows looked at, whether or not they match; a large event may count as several. A store that can't count them
    /// bounds the rows found.
    pub rows: usize,
    /// When reading ends, waiting at the gate included.
    pub deadline: Option<Instant>,
    /// The gate of the client that reads. `None`: reads are admitted at once.
    pub gate: Option<Arc<dyn ReadGate>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { rows: usize::MAX, deadline: None, gate: None }
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, deadline, .. } = self;
        formatter.debug_struct("Budget").field("rows", rows).field("deadline", deadline).finish_non_exhaustive()
    }
}

impl Budget {
    /// Whether the deadline has passed.
    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits for the client's turn at one of `max` permits; at most until the deadline.
    pub async fn enter(&self, stage: ReadStage, max: usize) -> Result<Option<ReadPermit>> {
        let Some(gate) = &self.gate else { return Ok(None) };
        gate.enter(stage, max, self.deadline).await.map(Some).ok_or(StoreError::Busy)
    }
}

/// What a permit is for. Each stage has its own permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStage {
    /// A session of a database, for a query that may be cheap.
    Session,
    /// A query that turned out to be costly.
    Costly,
    /// A search.
    Search,
}

/// Held while a read runs. Dropping it admits the next read.
pub type ReadPermit = Box<dyn Send>;

/// Admits the reads of one client: a bounded number at a time for each address and for all clients, in fair turns (Y-1).
#[async_trait]
pub trait ReadGate: Send + Sync {
    /// Waits for a permit. `max`: how many the caller has for all clients together; the gate may give fewer. `None`: the
    /// deadline has passed.
    async fn enter(&self, stage: ReadStage, max: usize, deadline: Option<Instant>) -> Option<ReadPermit>;
}
