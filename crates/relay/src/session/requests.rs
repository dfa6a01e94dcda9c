//! What a client asks for: subscriptions (REQ), counts (COUNT, NIP-45), reconciliations (NEG, NIP-77).

use std::{sync::Arc, time::Instant};

use kukuri_domain::{Filter, Sketch, Timestamp};
use kukuri_store::Query;

use super::{End, Session, searching::without_words, subscriptions::Live};
use crate::{
    clock,
    intake::AUTHENTICATE,
    message::{SubscriptionId, say},
    rates::{Act, Counted},
    sync::{Reconciliation, SyncError},
};

/// The values in all filters that one connection has live: each is an entry in the index of live subscriptions.
const MOST_VALUES: usize = 10_000;
/// A value counts once more for each so many bytes, for it is kept. No id, key or topic is as long.
const VALUE_BYTES: usize = 128;
/// A query that takes longer is worth a line in the log.
const SLOW_QUERY: std::time::Duration = std::time::Duration::from_secs(1);

impl Session {
    /// Stored events, then the end of them, then live ones, with no gap and nothing twice (W-2).
    ///
    /// Live events are queued from before the query is read; those that the query has seen are passed over when their
    /// turn comes.
    pub(super) async fn subscribe(&mut self, id: SubscriptionId, filters: Vec<Filter>) -> Result<(), End> {
        self.subscriptions.end(&id);
        let is_heavy = |filter: &Filter| *filter.window().end() < Timestamp(u64::MAX) || filter.search().is_some();
        let act = if filters.iter().any(is_heavy) { Act::Backfill } else { Act::Request };
        let filters = match self.may_ask(act).and_then(|()| self.relay.check_filters(filters)) {
            Ok(filters) => self.relay.clamp(filters),
            Err(reason) => return self.refuse(&id, &reason).await,
        };
        let asked = match self.relay.read_words(filters) {
            Ok(asked) => asked,
            Err(reason) => return self.refuse(&id, &reason).await,
        };
        let most = self.relay.config().requests.subscriptions;
        if self.subscriptions.len() >= most {
            return self.refuse(&id, &format!("error: more subscriptions than {most}")).await;
        }
        let values: usize = asked.iter().map(|asked| values_of(&asked.filter)).sum();
        if values + self.subscriptions.values() > MOST_VALUES {
            let what = format!("more than {MOST_VALUES} values in the filters of one connection");
            let reason = format!("error: {what}; one counts again for every {VALUE_BYTES} bytes");
            return self.refuse(&id, &reason).await;
        }
        let queue = Arc::clone(&self.queue);
        let ticket = self.relay.hub.subscribe(asked.clone(), self.viewer(), queue);
        let started = Instant::now();
        let answer = match self.while_there(self.stored(asked)).await? {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "a query failed");
                return self.refuse(&id, "error: the query failed").await;
            }
        };
        self.took(started, "REQ");
        let live = Live { id: id.clone(), ticket, read_at: answer.seq, found: answer.found, values };
        self.subscriptions.add(live);
        self.relay.metrics.answered_events.increment(answer.events.len() as u64);
        for event in &answer.events {
            self.feed(&say::event(&id, &event.json)).await?;
        }
        self.send(say::end_of_stored(&id, answer.rest)).await
    }

    pub(super) async fn count(&mut self, id: &SubscriptionId, filters: Vec<Filter>) -> Result<(), End> {
        let allowed = self.may_ask(Act::Backfill).and_then(|()| self.relay.check_filters(filters));
        let filters = match allowed.and_then(without_words) {
            Ok(filters) => filters,
            Err(reason) => return self.refuse(id, &reason).await,
        };
        let sketch = match filters.as_slice() {
            [filter] => Sketch::for_filter(filter),
            _ => None,
        };
        let query = self.query(filters);
        let started = Instant::now();
        match self.while_there(self.relay.store.count(&query, sketch)).await? {
            Ok(count) => {
                self.took(started, "COUNT");
                self.send(say::count(id, &count)).await
            }
            Err(error) => {
                tracing::error!(%error, "a count failed");
                self.refuse(id, "error: the count failed").await
            }
        }
    }

    pub(super) async fn reconcile(&mut self, id: SubscriptionId, filter: Filter, message: &[u8]) -> Result<(), End> {
        self.reconciliations.remove(&id);
        match self.while_there(self.open_reconciliation(filter)).await? {
            Ok(reconciliation) => {
                self.reconciliations.insert(id.clone(), reconciliation);
                self.answer_reconciliation(&id, message).await
            }
            Err(reason) => self.refuse_reconciliation(&id, &reason).await,
        }
    }

    async fn open_reconciliation(&self, filter: Filter) -> Result<Reconciliation, String> {
        self.may_ask(Act::Backfill)?;
        let filters = self.relay.check_filters(vec![filter]).and_then(without_words)?;
        let config = self.relay.config();
        let most = config.requests.sync_sessions;
        if self.reconciliations.len() >= most {
            return Err(format!("blocked: more reconciliations than {most} on one connection"));
        }
        let started = Instant::now();
        let most = config.requests.sync_events;
        let ids = self.relay.store.ids(&self.query(filters), most).await.map_err(|error| {
            tracing::error!(%error, "a reconciliation failed");
            "error: the query failed".to_owned()
        })?;
        self.took(started, "NEG-OPEN");
        let ids = ids.ok_or_else(|| SyncError::TooManyEvents(most).to_string())?;
        Reconciliation::new(ids, &self.relay.sync_room).map_err(|error| error.to_string())
    }

    pub(super) async fn reconcile_on(&mut self, id: &SubscriptionId, message: &[u8]) -> Result<(), End> {
        match self.may_ask(Act::Request) {
            Ok(()) => self.answer_reconciliation(id, message).await,
            Err(reason) => {
                self.reconciliations.remove(id);
                self.refuse_reconciliation(id, &reason).await
            }
        }
    }

    async fn answer_reconciliation(&mut self, id: &SubscriptionId, message: &[u8]) -> Result<(), End> {
        let answer = match self.reconciliations.get_mut(id) {
            Some(reconciliation) => reconciliation.answer(message).map_err(|error| error.to_string()),
            None => Err("closed: no such reconciliation is open".to_owned()),
        };
        match answer {
            Ok(answer) => self.send(say::reconcile(id, &answer)).await,
            Err(reason) => {
                self.reconciliations.remove(id);
                self.refuse_reconciliation(id, &reason).await
            }
        }
    }

    async fn refuse_reconciliation(&mut self, id: &SubscriptionId, reason: &str) -> Result<(), End> {
        self.relay.metrics.refused_request();
        self.send(say::not_reconciled(id, reason)).await
    }

    /// A request that is not answered is closed with a reason (W-4).
    pub(super) async fn refuse(&mut self, id: &SubscriptionId, reason: &str) -> Result<(), End> {
        self.relay.metrics.refused_request();
        self.send(say::closed(id, reason)).await
    }

    /// Whether this client may ask now: it is known if it has to be, and not too fast.
    fn may_ask(&self, act: Act) -> Result<(), String> {
        if self.is_unknown() {
            return Err(AUTHENTICATE.to_owned());
        }
        let who = Counted { ip: self.ip, keys: &self.keys };
        self.relay.check_rate(act, who).map_err(|too_fast| too_fast.to_string())
    }

    pub(super) fn query(&self, filters: Vec<Filter>) -> Query {
        let bytes = self.relay.config().requests.answer_bytes;
        Query { filters, viewer: self.viewer(), now: clock::now(), bytes }
    }

    fn took(&self, started: Instant, what: &'static str) {
        let time = started.elapsed();
        self.relay.metrics.query_seconds.record(time);
        if time > SLOW_QUERY {
            tracing::warn!(what, millis = time.as_millis() as u64, "a slow query");
        }
    }
}

/// How many values it counts as.
fn values_of(filter: &Filter) -> usize {
    let values = filter.tags().iter().flat_map(|(_, values)| values);
    filter.value_count() + values.map(|value| value.len() / VALUE_BYTES).sum::<usize>()
}
