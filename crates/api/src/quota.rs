//! Units of a plan: reserved before the work, given back if it fails.

use std::sync::Arc;

use kukuri_control::{
    Control,
    metric::Metric,
    usage::{self, Outcome, Reservation},
};
use kukuri_domain::Millis;
use tokio::time::Instant;

use crate::{Api, error::Error, layers::ANSWER_TIMEOUT, reader::Reader};

/// Does work that counts for the plan of a member, where the node serves members only. A refused or failed work is not counted.
pub(crate) async fn counted<T>(
    api: &Api,
    reader: &Reader,
    metric: Metric,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let Some(member) = reader.member(api) else { return work.await };
    let (control, limit) = (&api.control, api.control.people().limit(&member, metric));
    let reservation = usage::reserve(control.database(), &member, metric, limit, api.now()).await?;
    let mut unsettled = Unsettled {
        reservation: Some(reservation),
        control: Arc::clone(control),
        request_id: reader.request_id.clone(),
        clock: api.clock,
        began_at: Instant::now(),
    };
    let answer = work.await;
    unsettled.settle(outcome_of(&answer)).await;
    answer
}

fn outcome_of<T>(answer: &Result<T, Error>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Ok,
        Err(error) if error.is_of_the_node() => Outcome::Error,
        Err(_) => Outcome::Rejected,
    }
}

/// A reserved unit. If the client leaves before the answer, the unit was used: the node has worked for it. Not if the time for an
/// answer is over.
struct Unsettled {
    reservation: Option<Reservation>,
    control: Arc<Control>,
    request_id: Option<String>,
    clock: fn() -> Millis,
    began_at: Instant,
}

impl Unsettled {
    async fn settle(&mut self, outcome: Outcome) {
        let Some(reservation) = self.reservation.take() else { return };
        let (database, now) = (self.control.database(), (self.clock)().seconds());
        let settled = usage::settle(database, reservation, outcome, self.request_id.as_deref(), now).await;
        if let Err(error) = settled {
            tracing::error!(%error, "the outcome of a counted request can't be written; the request stays counted");
        }
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (control, request_id) = (Arc::clone(&self.control), self.request_id.take());
        // Too late an answer is none.
        let outcome = if self.began_at.elapsed() < ANSWER_TIMEOUT { Outcome::Ok } else { Outcome::Error };
        let (clock, began_at) = (self.clock, self.began_at);
        let mut left = Self { reservation: Some(reservation), control, request_id, clock, began_at };
        runtime.spawn(async move { left.settle(outcome).await });
    }
}
