//! Writes the traces that requests leave in topics, and deletes them with their requests (G-7).

use std::collections::HashSet;

use kukuri_domain::{
    EventId, TopicId,
    sharing::{self, Trace},
};

use super::Batch;
use crate::{
    codes::{self, signed},
    error::Result,
    sharing::passed_on,
    work::Filed,
};

impl Batch<'_> {
    /// Runs after rows and ids are written, because it reads them: only requests that are stored and shared leave
    /// traces.
    pub(super) async fn write_traces(&mut self) -> Result<()> {
        self.leave_heirs().await?;
        if !self.work.gone_requests.is_empty() {
            sqlx::query("DELETE FROM cn_relay.traces WHERE request = ANY($1)")
                .bind(codes::ids(&self.work.gone_requests))
                .execute(&mut *self.txn)
                .await?;
        }
        let traces = std::mem::take(&mut self.work.traces);
        let requests: HashSet<EventId> = traces.iter().map(|(_, trace)| trace.request()).collect();
        let passed_on = passed_on(&mut self.txn, &requests).await?;
        let traces: Vec<_> = traces.into_iter().filter(|(_, it)| passed_on.contains_key(&it.request())).collect();
        self.put_traces(&traces).await
    }

    /// A vanish request that removes another request gets a trace in every topic where the removed one had one.
    async fn leave_heirs(&mut self) -> Result<()> {
        let heirs = std::mem::take(&mut self.work.heirs);
        let made_at = |heir: &EventId| match &self.work.row(heir)?.filed {
            Filed::New(admitted) if sharing::may_pass_on(admitted.event()) => {
                Some(signed(admitted.event().created_at.0))
            }
            _ => None,
        };
        let heirs: Vec<_> = heirs.iter().filter_map(|(gone, heir)| Some((gone, heir, made_at(heir)?))).collect();
        if heirs.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO cn_relay.traces (topic_id, created_at, id, request) \
             SELECT DISTINCT t.topic_id, n.made_at, n.heir, n.heir \
             FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS n (gone, heir, made_at) \
             JOIN cn_relay.traces t ON t.request = n.gone AND t.id = n.gone ON CONFLICT DO NOTHING",
        )
        .bind(codes::ids(heirs.iter().map(|(gone, ..)| *gone)))
        .bind(codes::ids(heirs.iter().map(|(_, heir, _)| *heir)))
        .bind(heirs.iter().map(|(.., made_at)| *made_at).collect::<Vec<_>>())
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }

    pub(crate) async fn put_traces(&mut self, traces: &[(TopicId, Trace)]) -> Result<()> {
        if traces.is_empty() {
            return Ok(());
        }
        let key = |trace: &Trace| match trace {
            Trace::Request { .. } => None,
            Trace::Hint(hint) => Some(hint.key.to_string()),
        };
        sqlx::query(
            "INSERT INTO cn_relay.traces (topic_id, created_at, id, request, key) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::text[]) \
             ON CONFLICT DO NOTHING",
        )
        .bind(traces.iter().map(|(topic, _)| topic.as_str().to_owned()).collect::<Vec<_>>())
        .bind(traces.iter().map(|(_, trace)| signed(trace.item().0.0)).collect::<Vec<_>>())
        .bind(traces.iter().map(|(_, trace)| *trace.item().1.as_bytes()).collect::<Vec<_>>())
        .bind(traces.iter().map(|(_, trace)| *trace.request().as_bytes()).collect::<Vec<_>>())
        .bind(traces.iter().map(|(_, trace)| key(trace)).collect::<Vec<_>>())
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }
}
