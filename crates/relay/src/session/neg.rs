//! NEG-OPEN and NEG-MSG: reconciliations (NIP-77).

use kukuri_domain::Filter;
use kukuri_engine::{ReadKind, ReadRefused};

use super::{Session, SessionEnd};
use crate::{
    closed::Closed,
    message::{SubscriptionId, reply},
    negentropy::Reconciliation,
};

impl Session {
    pub(super) async fn open_reconciliation(
        &mut self,
        id: SubscriptionId,
        opening: Result<(Box<Filter>, Vec<u8>), Closed>,
    ) -> Result<(), SessionEnd> {
        self.reconciliations.remove(&id);
        let opened = async {
            let (filter, message) = opening?;
            Ok::<_, Closed>((self.read_set(*filter).await?, message))
        };
        match self.while_connected(opened).await? {
            Ok((reconciliation, message)) => {
                self.reconciliations.insert(id.clone(), reconciliation);
                self.answer_reconciliation(&id, &message).await
            }
            Err(reason) => self.end_reconciliation(&id, &reason).await,
        }
    }

    /// Room for the ids is reserved before they are read.
    async fn read_set(&self, filter: Filter) -> Result<Reconciliation, Closed> {
        let filters = self.check_history(vec![filter])?;
        let config = self.relay.engine.config();
        let max = config.requests.sync_sessions;
        if self.reconciliations.len() >= max {
            return Err(Closed::TooManyNegSessions(max));
        }
        let max = config.requests.sync_events;
        let share = self.relay.neg_budget.reserve(self.client.ip, max)?;
        let ids = self.relay.engine.reads().ids(filters, &self.client, share.amount()).await.map_err(|error| {
            ReadRefused::of_store(&error).map_or_else(
                || {
                    tracing::error!(%error, "a query failed; the NEG-OPEN is refused");
                    Closed::QueryFailed
                },
                Closed::Refused,
            )
        })?;
        match ids {
            Some(ids) => Reconciliation::new(ids, share),
            None if share.amount() < max => Err(Closed::NegBudgetSpent),
            None => Err(Closed::TooManyNegEvents(max)),
        }
    }

    pub(super) async fn continue_reconciliation(
        &mut self,
        id: &SubscriptionId,
        message: Result<Vec<u8>, Closed>,
    ) -> Result<(), SessionEnd> {
        let check = |message| {
            self.relay.engine.reads().check(&self.client, ReadKind::Recent, &[])?;
            Ok(message)
        };
        match message.and_then(check) {
            Ok(message) => self.answer_reconciliation(id, &message).await,
            Err(reason) => self.end_reconciliation(id, &reason).await,
        }
    }

    async fn answer_reconciliation(&mut self, id: &SubscriptionId, message: &[u8]) -> Result<(), SessionEnd> {
        let answer = match self.reconciliations.get_mut(id) {
            Some(reconciliation) => reconciliation.answer(message),
            None => Err(Closed::NegNotOpen),
        };
        match answer {
            Ok(answer) => self.send(reply::neg_message(id, &answer)).await,
            Err(reason) => self.end_reconciliation(id, &reason).await,
        }
    }

    pub(super) async fn end_reconciliation(&mut self, id: &SubscriptionId, reason: &Closed) -> Result<(), SessionEnd> {
        self.reconciliations.remove(id);
        self.relay.metrics.refused_requests.of(reason.label()).increment(1);
        self.send(reply::neg_error(id, &reason.to_string())).await
    }
}
