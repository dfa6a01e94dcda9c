//! States of ids, looked up for many callers at once.
//!
//! A relay asks for every incoming event, and a statement costs more than its answer. So one statement runs at a time;
//! ids requested meanwhile are queued, and the next statement asks for all of them.

use std::{collections::HashMap, sync::Arc};

use kukuri_domain::{EventId, State};
use kukuri_postgres::{Pool, SessionError};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    columns::{array, query},
    error::{Failure, Result},
    records,
};

type States = HashMap<EventId, State>;

/// The states, or one error for every caller of a statement.
type Answer = Result<Arc<States>, String>;

/// Queued look-ups.
pub(crate) struct StateLookups {
    pool: Pool,
    /// `None` while no statement runs.
    queue: Mutex<Option<Vec<Caller>>>,
}

struct Caller {
    ids: Vec<EventId>,
    answer: oneshot::Sender<Answer>,
}

impl StateLookups {
    pub(crate) fn new(pool: Pool) -> Arc<Self> {
        Arc::new(Self { pool, queue: Mutex::default() })
    }

    /// The states of these ids, in order.
    pub(crate) async fn look_up(self: &Arc<Self>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
        let states = match self.enqueue(ids) {
            None => Arc::new(LookupPermit(Arc::clone(self)).run_statement(ids).await?),
            Some(answer) => {
                let answer = answer.await.unwrap_or_else(|_| Err("the look-up of ids was dropped".to_owned()));
                answer.map_err(|error| Failure::Backend(SessionError::Unexpected(error)))?
            }
        };
        Ok(ids.iter().map(|id| states.get(id).copied()).collect())
    }

    /// Queues a caller behind the statement that runs. `None`: no statement runs, the caller runs its own.
    fn enqueue(&self, ids: &[EventId]) -> Option<oneshot::Receiver<Answer>> {
        let mut queue = self.queue.lock();
        let Some(callers) = &mut *queue else {
            *queue = Some(Vec::new());
            return None;
        };
        let (answer, answered) = oneshot::channel();
        callers.push(Caller { ids: ids.to_vec(), answer });
        Some(answered)
    }
}

/// The permit to run a statement. Dropping it passes it on to all queued callers.
struct LookupPermit(Arc<StateLookups>);

impl LookupPermit {
    async fn run_statement(&self, ids: &[EventId]) -> Result<States> {
        let query = query(records::STATES).bind(array(ids));
        self.0.pool.fetch_all(query).await?.iter().map(records::state).collect()
    }

    async fn answer(self, callers: Vec<Caller>) {
        let ids: Vec<EventId> = callers.iter().flat_map(|caller| caller.ids.iter().copied()).collect();
        let states = self.run_statement(&ids).await.map(Arc::new).map_err(|failure| failure.to_string());
        // Release the permit first: the next statement need not wait until all callers are answered.
        drop(self);
        for caller in callers {
            // A caller that dropped its future has closed its channel.
            let _ = caller.answer.send(states.clone());
        }
    }
}

impl Drop for LookupPermit {
    fn drop(&mut self) {
        let callers = {
            let mut queue = self.0.queue.lock();
            queue.take().filter(|callers| !callers.is_empty()).inspect(|_| *queue = Some(Vec::new()))
        };
        if let Some(callers) = callers {
            let next = Self(Arc::clone(&self.0));
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(next.answer(callers));
            }
        }
    }
}
