//! Writes the traces that requests leave in topics, and deletes them with their requests (G-7).

use std::collections::{HashMap, HashSet};

use kukuri_domain::{
    EventId, TopicId,
    sharing::{self, Trace},
};

use super::Batch;
use crate::{
    columns::{Column as _, write_arrays},
    error::Result,
    sharing::stored,
};

impl Batch<'_> {
    /// Runs after rows and ids are written, because it reads them: only requests that are stored and shared leave
    /// traces.
    pub(super) async fn write_traces(&mut self) -> Result<()> {
        write_arrays!(
            &mut *self.txn,
            "DELETE FROM cn_relay.traces WHERE request = ANY($1)",
            for request in self.work.gone_requests; request
        );
        let mut traces = std::mem::take(&mut self.work.traces);
        let requests: HashSet<EventId> = traces.iter().map(|(_, trace)| trace.request()).collect();
        let requests = stored(&mut self.txn, &requests).await?;
        traces.retain(|(_, trace)| requests.get(&trace.request()).is_some_and(sharing::may_pass_on));
        self.put_traces(&traces).await
    }

    pub(crate) async fn put_traces(&mut self, traces: &[(TopicId, Trace)]) -> Result<()> {
        let (mut requests, mut hints) = (Vec::new(), HashMap::new());
        let mut times = HashMap::new();
        for (topic, trace) in traces {
            match trace {
                Trace::Request { created_at, id } => {
                    times.insert(*id, *created_at);
                    requests.push((topic, *created_at, *id));
                }
                Trace::Hint(hint) => {
                    let known = hints.entry((topic, hint.floor.id)).or_insert(hint);
                    if times.get(&known.request) < times.get(&hint.request) {
                        *known = hint;
                    }
                }
            }
        }
        write_arrays!(
            &mut *self.txn,
            "INSERT INTO cn_relay.traces (topic_id, created_at, id, request) \
             SELECT topic_id, created_at, id, id \
             FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS n (topic_id, created_at, id) ON CONFLICT DO NOTHING",
            for (topic, created_at, id) in requests; topic, created_at, id
        );
        let hints: Vec<_> = hints.into_iter().collect();
        // A hint of a later request replaces the known one, because a vanish request removes the earlier request first.
        // A request has a trace of its own in every topic with a hint of it.
        write_arrays!(
            &mut *self.txn,
            "INSERT INTO cn_relay.traces AS t (topic_id, created_at, id, request, key) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::text[]) \
             ON CONFLICT (id, topic_id) DO UPDATE SET request = excluded.request \
             WHERE (SELECT r.created_at FROM cn_relay.traces r WHERE r.id = t.request AND r.topic_id = t.topic_id) \
             < (SELECT r.created_at FROM cn_relay.traces r WHERE r.id = excluded.request AND r.topic_id = t.topic_id)",
            for ((topic, _), hint) in hints; topic, hint.floor.created_at, hint.floor.id, hint.request, hint.key
        );
        Ok(())
    }
}
