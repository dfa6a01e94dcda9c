//! Writes the traces that requests leave in topics, and deletes them with their requests (G-7).

use std::collections::HashSet;

use kukuri_domain::{
    EventId, TopicId,
    sharing::{self, Trace},
};

use super::Batch;
use crate::{
    columns::{Column as _, write_arrays},
    error::Result,
    sharing::stored,
    work::RowSource,
};

impl Batch<'_> {
    /// Runs after rows and ids are written, because it reads them: only requests that are stored and shared leave
    /// traces.
    pub(super) async fn write_traces(&mut self) -> Result<()> {
        self.inherit_traces().await?;
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

    /// A vanish request that removes another request gets a trace in every topic where the removed one had one.
    async fn inherit_traces(&mut self) -> Result<()> {
        let heirs = std::mem::take(&mut self.work.heirs);
        let created_at = |heir: &EventId| match &self.work.row(heir)?.source {
            RowSource::Admitted(admitted) => {
                sharing::may_pass_on(admitted.event()).then_some(admitted.event().created_at)
            }
            _ => None,
        };
        let heirs: Vec<_> = heirs.iter().filter_map(|(gone, heir)| Some((gone, heir, created_at(heir)?))).collect();
        write_arrays!(
            &mut *self.txn,
            "INSERT INTO cn_relay.traces (topic_id, created_at, id, request) \
             SELECT DISTINCT t.topic_id, n.created_at, n.heir, n.heir \
             FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS n (gone, heir, created_at) \
             JOIN cn_relay.traces t ON t.request = n.gone AND t.id = n.gone ON CONFLICT DO NOTHING",
            for (gone, heir, created_at) in heirs; gone, heir, created_at
        );
        Ok(())
    }

    pub(crate) async fn put_traces(&mut self, traces: &[(TopicId, Trace)]) -> Result<()> {
        let key = |trace: &Trace| match trace {
            Trace::Request { .. } => None,
            Trace::Hint(hint) => Some(hint.key.clone()),
        };
        write_arrays!(
            &mut *self.txn,
            "INSERT INTO cn_relay.traces (topic_id, created_at, id, request, key) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::text[]) \
             ON CONFLICT DO NOTHING",
            for (topic, trace) in traces; topic, trace.item().0, trace.item().1, trace.request(), key(trace)
        );
        Ok(())
    }
}
