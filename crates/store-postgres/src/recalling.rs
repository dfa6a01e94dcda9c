//! What ids are known as, for many who ask at the same time.
//!
//! A relay asks this for each event that comes in, and a statement costs more than its answer. So one is under way at a
//! time; whoever comes meanwhile waits, and the next statement asks for all of them. Alone, nobody waits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use kukuri_domain::{EventId, State};
use kukuri_postgres::Asking;
use sqlx::{PgPool, Row as _};
use tokio::{runtime::Handle, sync::oneshot};

use crate::{
    codes::{self, event_id},
    error::{Failure, Result},
    writer::locked,
};

type States = HashMap<EventId, State>;

/// Those who ask.
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

    /// What these ids are known as, in their order.
    pub(crate) async fn recall(self: &Arc<Self>, ids: &[EventId]) -> Result<Vec<Option<State>>> {
        let states = match self.queue(ids) {
            Place::First(turn) => Arc::new(turn.look_up(ids).await?),
            Place::Later(answer) => match answer.await {
                Ok(states) => states.map_err(failed)?,
                Err(_) => return Err(failed("nobody looked ids up".to_owned())),
            },
        };
        Ok(ids.iter().map(|id| states.get(id).copied()).collect())
    }

    fn queue(self: &Arc<Self>, ids: &[EventId]) -> Place {
        let mut queue = locked(&self.queue);
        if !queue.is_busy {
            queue.is_busy = true;
            return Place::First(Turn(Arc::clone(self)));
        }
        let (answer, answered) = oneshot::channel();
        queue.waiting.push(Waiting { ids: ids.to_vec(), answer });
        Place::Later(answered)
    }

    /// The next turn, for all who wait.
    fn next(self: &Arc<Self>) -> Option<(Turn, Vec<Waiting>)> {
        let mut queue = locked(&self.queue);
        let waiting = std::mem::take(&mut queue.waiting);
        queue.is_busy = !waiting.is_empty();
        queue.is_busy.then(|| (Turn(Arc::clone(self)), waiting))
    }
}

enum Place {
    First(Turn),
    Later(oneshot::Receiver<Result<Arc<States>, String>>),
}

/// The right to ask the server. Whoever leaves, answered or not, passes it on.
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
        // The next statement need not wait until everyone has heard.
        drop(self);
        for waiting in waiting {
            // Who has left is not told.
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

/// One failure, told to everyone who waited.
fn failed(what: String) -> Failure {
    Failure::Engine(sqlx::Error::Protocol(what))
}
