//! REQ and COUNT: subscriptions, and how many events match (NIP-45).

use std::sync::Arc;

use kukuri_domain::{Filter, Sketch, Timestamp};
use kukuri_engine::{
    ReadKind, ReadRefused,
    live::{LiveFilter, values_of},
};

use super::{
    Session, SessionEnd,
    subscriptions::{LiveRequest, MAX_FILTER_VALUES},
};
use crate::{
    closed::Closed,
    message::{SubscriptionId, reply},
};

/// Memory of an answer is given back in parts of this size while it is sent.
const RETURNED_BYTES: usize = 256 * 1024;

impl Session {
    /// Sends stored events, EOSE, then live events, with no gap and no duplicate (W-2).
    ///
    /// The subscription is live before its query is read. Its live events wait in the queue meanwhile; those that the query
    /// has seen are dropped when their turn comes.
    pub(super) async fn serve_req(
        &mut self,
        id: SubscriptionId,
        filters: Result<Vec<Filter>, Closed>,
    ) -> Result<(), SessionEnd> {
        self.subscriptions.end(&id);
        let (filters, values) = match filters.and_then(|filters| self.check_subscription(filters)) {
            Ok(checked) => checked,
            Err(reason) => return self.refuse_request(&id, &reason).await,
        };
        let (relay, ip) = (Arc::clone(&self.relay), self.client.ip);
        let reads = relay.engine.reads();
        // Before events can queue up.
        let reserved = relay.engine.wait_to_reserve_answer(ip, reads.answer_bytes(&filters));
        let Ok(mut memory) = self.while_connected(reserved).await? else {
            return self.refuse_request(&id, &Closed::AnswersWaiting).await;
        };
        let live = match reads.subscribe(&self.client, filters.clone(), &self.queue) {
            Ok(live) => live,
            Err(refused) => return self.refuse_request(&id, &refused.into()).await,
        };
        let answer = match self.while_connected(reads.stored(filters, &self.client, memory.amount())).await? {
            Ok(answer) => answer,
            Err(error) => {
                let reason = ReadRefused::of_find(&error).map_or(Closed::QueryFailed, Closed::Refused);
                if reason == Closed::QueryFailed {
                    tracing::error!(%error, "a query failed; the REQ is closed");
                }
                return self.refuse_request(&id, &reason).await;
            }
        };
        self.subscriptions.add(LiveRequest { id: id.clone(), live, read_at: answer.seq, hits: answer.hits, values });
        relay.metrics.stored_deliveries.increment(answer.events.len() as u64);
        let mut unsent: usize = answer.events.iter().map(|event| event.json.len()).sum();
        memory.shrink_to(unsent);
        for event in answer.events {
            let message = reply::event(&id, &event.json);
            if !self.try_buffer(&message) {
                self.buffer(&message).await?;
            }
            unsent -= event.json.len();
            if memory.amount() - unsent.min(memory.amount()) >= RETURNED_BYTES {
                memory.shrink_to(unsent);
            }
        }
        drop(memory);
        self.send(reply::eose(&id, answer.rest)).await
    }

    /// The filters, ready to subscribe, and how many values they count as.
    fn check_subscription(&self, filters: Vec<Filter>) -> Result<(Vec<LiveFilter>, usize), Closed> {
        let reads = self.relay.engine.reads();
        let is_history = |filter: &Filter| *filter.window().end() < Timestamp(u64::MAX) || filter.search().is_some();
        let kind = if filters.iter().any(is_history) { ReadKind::History } else { ReadKind::Recent };
        reads.check(&self.client, kind, &filters)?;
        let filters = reads.prepare(filters)?;
        let max = self.relay.engine.config().requests.subscriptions;
        if self.subscriptions.len() >= max {
            return Err(Closed::TooManySubscriptions(max));
        }
        let values: usize = filters.iter().map(|live| values_of(&live.filter)).sum();
        if values + self.subscriptions.values() > MAX_FILTER_VALUES {
            return Err(Closed::TooManyFilterValues);
        }
        Ok((filters, values))
    }

    pub(super) async fn serve_count(
        &mut self,
        id: &SubscriptionId,
        filters: Result<Vec<Filter>, Closed>,
    ) -> Result<(), SessionEnd> {
        let filters = match filters.and_then(|filters| self.check_history(filters)) {
            Ok(filters) => filters,
            Err(reason) => return self.refuse_request(id, &reason).await,
        };
        let sketch = match filters.as_slice() {
            [filter] => Sketch::for_filter(filter),
            _ => None,
        };
        let relay = Arc::clone(&self.relay);
        match self.while_connected(relay.engine.reads().count(filters, &self.client, sketch)).await? {
            Ok(count) => self.send(reply::count(id, &count)).await,
            Err(error) => {
                let reason = ReadRefused::of_store(&error).map_or(Closed::CountFailed, Closed::Refused);
                if reason == Closed::CountFailed {
                    tracing::error!(%error, "a count failed; the COUNT is closed");
                }
                self.refuse_request(id, &reason).await
            }
        }
    }

    /// The filters of a COUNT or NEG-OPEN, if it may read. Neither can search.
    pub(super) fn check_history(&self, filters: Vec<Filter>) -> Result<Vec<Filter>, Closed> {
        self.relay.engine.reads().check(&self.client, ReadKind::History, &filters)?;
        let searches = filters.iter().any(|filter| filter.search().is_some());
        if searches { Err(ReadRefused::SearchOutsideReq.into()) } else { Ok(filters) }
    }

    /// Every refused request is closed with a reason (W-4).
    pub(super) async fn refuse_request(&mut self, id: &SubscriptionId, reason: &Closed) -> Result<(), SessionEnd> {
        self.relay.metrics.refused_requests.of(reason.label()).increment(1);
        self.send(reply::closed(id, &reason.to_string())).await
    }
}
