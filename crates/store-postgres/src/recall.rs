//! States of ids, looked up for many callers at once.
//!
//! A relay asks for every incoming event, and a statement costs more than its answer. So one statement runs at a time;
//! ids requested meanwhile are queued, and the next statement asks for all of them.

use std::{collections::HashMap, sync::Arc};

use kukuri_domain::{EventId, State};
use kukuri_postgres::Asking;
use parking_lot::Mutex;
use sqlx::{PgPool, Row as _};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    codes::{self, event_id},
    error::{Failure, Result},
};

type States = HashMap<EventId, State>;

/// Queued look-ups.
pub(crate) struct Recalls {
    pool: PgPool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    is_busy: bool,
    waiting: Vec<Waiting>,
}

struct Waiting {
    ids: Vec<EventId>,
    answer: oneshot::Sender<Result<Arc<States>, String>>,
}

impl Recalls {
    pub(crate) fn new(pool: PgPool) -> Arc<Self> {
        Arc::new(Self { pool, queue: Mutex::default() })
    }

    /// The states of these ids, in order.
    pub(crate) async fn recall(self: &Arc<Self>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
        let states = match self.queue(ids) {
            RowPlace::First(turn) => Arc::new(turn.look_up(ids).await?),
            RowPlace::Later(answer) => match answer.await {
                Ok(states) => states.map_err(failed)?,
                Err(_) => return Err(failed("nobody looked ids up".to_owned())),
            },
        };
        Ok(ids.iter().map(|id| states.get(id).copied()).collect())
    }

    fn queue(self: &Arc<Self>, ids: &[EventId]) -> RowPlace {
        let mut queue = self.queue.lock();
        if !queue.is_busy {
            queue.is_busy = true;
            return RowPlace::First(Turn(Arc::clone(self)));
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiting { ids: ids.to_vec(), answer });
        RowPlace::Later(answered)
    }

    /// The next turn, with all queued callers.
    fn next(self: &Arc<Self>) -> Option<(Turn, Vec<Waiting>)> {
        let mut queue = self.queue.lock();
        let waiting = std::mem::take(&mut queue.waiting);
        queue.is_busy = !waiting.is_empty();
        queue.is_busy.then(|| (Turn(Arc::clone(self)), waiting))
    }
}

enum RowPlace {
    First(Turn),
    Later(oneshot::Receiver<Result<Arc<States>, String>>),
}

/// The permit to run a statement. Dropping it passes it on to the next queued caller.
struct Turn(Arc<Recalls>);

impl Turn {
    async fn look_up(&self, ids: &[EventId]) -> Result<States> {
        let mut asking = Asking::of(&self.0.pool).await?;
        let rows = sqlx::query("SELECT event_id, reason FROM cn_relay.ids WHERE event_id = ANY($1)")
            .bind(codes::ids(ids))
            .fetch_all(&mut *asking)
            .await?;
        asking.done();
        let mut states = HashMap::with_capacity(rows.len());
        for row in &rows {
            let reason: Option<i16> = row.try_get("reason")?;
            let state = reason.map(codes::reason).transpose()?.map_or(State::Effective, |reason| reason.state());
            states.insert(event_id(row.try_get("event_id")?), state);
        }
        Ok(states)
    }

    async fn answer(self, waiting: Vec<Waiting>) {
        let ids: Vec<EventId> = waiting.iter().flat_map(|waiting| waiting.ids.iter().copied()).collect();
        let states = self.look_up(&ids).await.map(Arc::new).map_err(|failure| failure.to_string());
        // Release the turn first: the next statement need not wait until all callers are answered.
        drop(self);
        for waiting in waiting {
            // A caller that dropped its future has closed its channel.
            let _ = waiting.answer.send(states.clone());
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((turn, waiting)) = self.0.next()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(turn.answer(waiting));
        }
    }
}

/// One error, returned to every caller of the statement.
fn failed(what: String) -> Failure {
    Failure::Engine(sqlx::Error::Protocol(what))
}
