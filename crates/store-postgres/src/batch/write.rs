//! Writes the changes of a transaction: one statement per kind of change, independent of their number, all in one round trip.

use kukuri_domain::{
    EventId, KindClass, TopicId,
    deletion::DeletionTargetKind,
    sharing::{self, Trace},
};
use kukuri_postgres::{ColumnOf, RowSet, Type};
use kukuri_store::{IdRecord, counters::Tally as _};

use super::{Batch, STATEMENT_ROWS, remains::write_remains, rows::put_row, traces::put_traces};
use crate::{
    columns::{Column as _, SqlQuery, array, bind_arrays, query, write_arrays},
    error::Result,
    records,
    sharing::{read_requests, requests_query},
    work::{Delta, Facts, Key, Noted, Row, RowPlace, RowSource, Topic, TopicNo},
};

const IDS: &[ColumnOf] = &[
    ("event_id", Type::BYTEA),
    ("first_seen_at", Type::INT8),
    ("last_seen_at", Type::INT8),
    ("seen_count", Type::INT8),
    ("source", Type::INT2),
    ("reason", Type::INT2),
    ("cause", Type::BYTEA),
    ("since", Type::INT8),
    ("class", Type::TEXT),
    ("ingested_at", Type::INT8),
    ("no", Type::INT8),
];
const OUTBOX: &[ColumnOf] = &[
    ("seq", Type::INT8),
    ("created_at", Type::INT8),
    ("ingested_at", Type::INT8),
    ("written_at", Type::INT8),
    ("kind", Type::INT4),
    ("event_id", Type::BYTEA),
    ("topic_id", Type::TEXT),
    ("effective_key", Type::TEXT),
    ("op", Type::TEXT),
    ("reason", Type::TEXT),
];
const UPDATE_IDS: &str = "UPDATE cn_relay.event_dedupe d SET reason = n.reason, cause = n.cause, since = n.since, \
     class = n.class, no = CASE WHEN n.class IS NOT NULL THEN d.no END, \
     ingested_at = CASE WHEN n.class IS NOT NULL THEN d.ingested_at END \
     FROM unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bigint[], $5::text[]) \
     AS n (id, reason, cause, since, class) WHERE d.event_id = n.id";

/// Statements of a transaction, in the order in which they are executed.
pub(super) type Statements<'b> = Vec<SqlQuery<'b>>;

impl Batch<'_> {
    /// Writes all changes.
    pub(crate) async fn write(&mut self) -> Result<()> {
        self.write_and(Vec::new()).await
    }

    /// Writes all changes and executes these statements, in one round trip; in two if requests have left traces.
    pub(super) async fn write_and(&mut self, last: Statements<'_>) -> Result<()> {
        let traces = self.write_requests_of_traces().await?;
        let remains = self.take_noted_remains();
        let mut statements = Vec::new();
        if traces.is_none() {
            self.write_rows(&mut statements)?;
            self.write_ids(&mut statements)?;
        }
        put_traces(traces.as_deref().unwrap_or_default(), &mut statements);
        write_remains(&remains, self.work.node.clock.latest, &mut statements);
        self.write_keys(&mut statements);
        self.write_tombstones(&mut statements);
        self.write_vanish_marks(&mut statements);
        self.write_outbox(&mut statements)?;
        self.write_topics(&mut statements);
        self.write_partition_counters(&mut statements);
        self.write_node(&mut statements);
        statements.extend(last);
        self.session.pipeline(statements).await?;
        Ok(())
    }

    /// Writes rows and ids first if requests have left or lost traces: only requests that are stored and shared leave traces.
    /// Returns those traces.
    async fn write_requests_of_traces(&mut self) -> Result<Option<Vec<(TopicId, Trace)>>> {
        let mut traces = std::mem::take(&mut self.work.traces);
        if traces.is_empty() && self.work.gone_requests.is_empty() {
            return Ok(None);
        }
        let mut statements = Vec::new();
        self.write_rows(&mut statements)?;
        self.write_ids(&mut statements)?;
        write_arrays!(
            statements,
            "DELETE FROM cn_relay.traces WHERE request = ANY($1)",
            for request in self.work.gone_requests; request
        );
        statements.push(requests_query(&traces.iter().map(|(_, trace)| trace.request()).collect()));
        let requests = self.session.pipeline(statements).await?.pop().unwrap_or_default();
        let requests = read_requests(&requests)?;
        traces.retain(|(_, trace)| requests.get(&trace.request()).is_some_and(sharing::may_pass_on));
        Ok(Some(traces))
    }

    fn write_ids<'b>(&'b self, statements: &mut Statements<'b>) -> Result<()> {
        let mut new = RowSet::new("cn_relay.event_dedupe", IDS);
        for (id, record) in &self.work.new_ids {
            put_id(&mut new, id, record, None)?;
        }
        let mut changed: Vec<&Row> = Vec::new();
        for row in self.work.rows.values() {
            match &row.source {
                RowSource::Stored { record, class } => {
                    let is_changed = row.is_gone || *record != row.record || *class != row.place.class;
                    changed.extend(is_changed.then_some(row));
                }
                _ => put_id(&mut new, &row.outline.id, &row.record, (!row.is_gone).then_some(row.place))?,
            }
        }
        // Every transaction locks these rows in the same order.
        changed.sort_unstable_by_key(|row| row.outline.id);
        let gone = |row: &Row| records::standing_columns(row.record.standing);
        for changed in changed.chunks(STATEMENT_ROWS) {
            let update = query(UPDATE_IDS);
            let update =
                bind_arrays!(update, for row in changed; row.outline.id, gone(row).0, gone(row).1, gone(row).2);
            let class = |row: &&Row| (!row.is_gone).then(|| row.place.class.as_str());
            statements.push(update.bind(changed.iter().map(class).collect::<Vec<_>>()));
        }
        statements.extend(new.insert());
        Ok(())
    }

    fn write_keys<'b>(&'b self, statements: &mut Statements<'b>) {
        let floor = |key: &Key| (key.floor, key.raised_at);
        let raised = self.work.keys.changed().filter(|key| key.stored.as_ref().map(floor) != Some(floor(&key.now)));
        let raised: Vec<&Key> = raised.map(|key| &key.now).collect();
        write_arrays!(
            statements,
            "INSERT INTO cn_relay.floors (key, created_at, id, raised_at) \
             SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[]) \
             ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at, id = excluded.id, \
             raised_at = excluded.raised_at",
            for key in raised; key.address.digest(), key.floor.created_at, key.floor.id, key.raised_at
        );
        let changed: Vec<&Key> = self.work.keys.changed().map(|key| &key.now).collect();
        for (class, table, identifier) in [
            (KindClass::Replaceable, "replaceable_current", ""),
            (KindClass::Addressable, "addressable_current", ", identifier"),
        ] {
            let of_class = changed.iter().copied().filter(|key| key.address.kind().class() == class);
            let (current, left): (Vec<&Key>, Vec<&Key>) = of_class.partition(|key| key.current.is_some());
            let delete = || format!("DELETE FROM cn_relay.{table} WHERE key = ANY($1)");
            write_arrays!(statements, delete(), for key in left; key.address.digest());
            for current in current.chunks(STATEMENT_ROWS) {
                let put = query(format!(
                    "INSERT INTO cn_relay.{table} (key, pubkey, kind, event_id, updated_at{identifier}) \
                     SELECT key, pubkey, kind, event_id, updated_at{identifier} \
                     FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::bigint[], $6::text[]) \
                     AS n (key, pubkey, kind, event_id, updated_at, identifier) \
                     ON CONFLICT (key) DO UPDATE SET event_id = excluded.event_id, updated_at = excluded.updated_at"
                ));
                let put = bind_arrays!(put, for key in current; key.address.digest(), key.address.pubkey(),
                    key.address.kind(), key.current, key.raised_at);
                let identifiers: Vec<_> = current.iter().map(|key| key.address.identifier()).collect();
                statements.push(put.bind(identifiers));
            }
        }
    }

    fn write_tombstones<'b>(&'b self, statements: &mut Statements<'b>) {
        let target = |target: &DeletionTargetKind| match target {
            DeletionTargetKind::EventId(id) => (id.to_sql(), None),
            DeletionTargetKind::Address(address) => (address.digest().to_sql(), Some(address.clone())),
        };
        let changed = self.work.tombstones.values().flat_map(Facts::changed).map(|fact| &fact.now);
        let changed: Vec<_> = changed.map(|Noted { what, at }| (target(&what.target.target), what, at)).collect();
        write_arrays!(
            statements,
            "INSERT INTO cn_relay.deletion_tombstones \
             (target, is_address, requester, target_a, deletion_event_id, requested_at, applied_at, noted_at, \
             shareable_at, shareable_id) \
             SELECT target, target_a IS NOT NULL, requester, target_a, deletion, requested_at, applied_at, noted_at, \
             shareable_at, shareable_id \
             FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], \
             $7::bigint[], $8::bigint[], $9::bytea[]) \
             AS n (target, target_a, requester, deletion, requested_at, applied_at, noted_at, shareable_at, shareable_id) \
             ON CONFLICT (target, is_address, requester) DO UPDATE SET \
             deletion_event_id = excluded.deletion_event_id, requested_at = excluded.requested_at, \
             applied_at = excluded.applied_at, noted_at = excluded.noted_at, \
             shareable_at = excluded.shareable_at, shareable_id = excluded.shareable_id",
            for ((target, address), tombstone, at) in changed; target, address, tombstone.target.requester_pubkey,
                tombstone.deletion_id, tombstone.target.request_created_at, tombstone.applied_at, at,
                tombstone.shareable.map(|it| it.created_at), tombstone.shareable.map(|it| it.id)
        );
    }

    fn write_vanish_marks<'b>(&'b self, statements: &mut Statements<'b>) {
        let changed: Vec<_> = self.work.marks.changed().map(|fact| &fact.now).collect();
        write_arrays!(
            statements,
            "INSERT INTO cn_relay.vanish_marks (pubkey, until, request_id, noted_at, shareable_at, shareable_id) \
             SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[]) \
             ON CONFLICT (pubkey) DO UPDATE SET until = excluded.until, request_id = excluded.request_id, \
             noted_at = excluded.noted_at, shareable_at = excluded.shareable_at, shareable_id = excluded.shareable_id",
            for mark in changed; mark.what.pubkey, mark.what.until, mark.what.request_id, mark.at,
                mark.what.shareable.map(|it| it.created_at), mark.what.shareable.map(|it| it.id)
        );
    }

    fn write_outbox<'b>(&'b self, statements: &mut Statements<'b>) -> Result<()> {
        for rows in self.work.outbox.chunks(STATEMENT_ROWS) {
            let mut new = RowSet::new("cn_relay.events_outbox", OUTBOX);
            for row in rows {
                put_row!(new; row.seq, row.created_at, row.ingested_at, row.written_at, row.kind, row.event_id, row.topic,
                    row.effective_key);
                let (op, reason) = records::op_columns(row.op);
                new.put(&op)?;
                new.put(&reason)?;
            }
            statements.extend(new.insert());
        }
        Ok(())
    }

    fn write_topics<'b>(&'b self, statements: &mut Statements<'b>) {
        // While another store is loaded, topics come before their rows.
        let is_loading = self.work.node.loading || self.stored.loading;
        let is_over = |topic: &Topic| !is_loading && self.work.is_topic_over(&topic.id, &topic.counters);
        let over = self.work.topics.all().filter(|fact| fact.stored.is_some() && is_over(&fact.now));
        let over: Vec<TopicNo> = over.map(|fact| fact.now.no).collect();
        let changed = self.work.topics.changed().map(|fact| &fact.now).filter(|topic| !is_over(topic));
        let changed: Vec<&Topic> = changed.collect();
        write_arrays!(statements, "DELETE FROM cn_relay.topics WHERE no = ANY($1)", for no in over; no);
        statements.extend(changed.chunks(STATEMENT_ROWS).map(put_topics));
    }

    fn write_partition_counters<'b>(&'b self, statements: &mut Statements<'b>) {
        let changed = self.work.partition_counters.iter().filter(|(_, delta)| **delta != Delta::default());
        let changed: Vec<_> = changed.collect();
        write_arrays!(
            statements,
            "INSERT INTO cn_relay.partition_counters AS p (class, begins_at, topic, retention, effective, events, bytes) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], \
             $7::bigint[]) ON CONFLICT (class, begins_at, topic, retention) DO UPDATE SET \
             effective = p.effective + excluded.effective, events = p.events + excluded.events, \
             bytes = p.bytes + excluded.bytes",
            for ((class, month, topic, retention), delta) in changed; class, month, topic, retention, delta.effective,
                delta.events, delta.bytes
        );
        // A counter of nothing would name a topic that may go (T-10).
        let fallen: Vec<_> = changed.iter().filter(|(_, delta)| delta.events < 0).collect();
        write_arrays!(
            statements,
            "DELETE FROM cn_relay.partition_counters p \
             USING unnest($1::text[], $2::bigint[], $3::integer[], $4::smallint[]) AS n (class, begins_at, topic, retention) \
             WHERE p.class = n.class AND p.begins_at = n.begins_at AND p.topic = n.topic AND p.retention = n.retention \
             AND p.events = 0",
            for ((class, month, topic, retention), _) in fallen; class, month, topic, retention
        );
    }

    fn write_node<'b>(&'b self, statements: &mut Statements<'b>) {
        let node = &self.work.node;
        if *node == self.stored {
            return;
        }
        let update = query(
            "UPDATE cn_relay.node SET head = $1, outbox_dropped = $2, last_event = $3, last_topic = $4, \
             clock_latest = $5, clock_last = $6, clock_held_since = $7, effective = $8, events = $9, bytes = $10, \
             stage = $11, ids = $12, failed = $13, subscriptions_version = $14, loading = $15",
        )
        .bind(node.head.to_sql())
        .bind(node.outbox_dropped.to_sql())
        .bind(node.last_event.to_sql())
        .bind(node.last_topic)
        .bind(node.clock.latest.to_sql())
        .bind(node.clock.last.to_sql())
        .bind(node.clock.held_since.map(|since| since.to_sql()))
        .bind(node.counters.effective.to_sql())
        .bind(array(node.counters.by_class.iter().map(|usage| &usage.events)))
        .bind(array(node.counters.by_class.iter().map(|usage| &usage.bytes)))
        .bind(node.counters.stage.to_sql())
        .bind(node.ids.to_sql())
        .bind(node.failed.to_sql())
        .bind(node.subscriptions_version.to_sql())
        .bind(node.loading);
        statements.push(update);
    }
}

fn put_topics<'b>(topics: &[&'b Topic]) -> SqlQuery<'b> {
    let query = query(
        "INSERT INTO cn_relay.topics (no, topic_id, effective, stage, last_event_at, events, bytes) \
         SELECT no, topic_id, effective, stage, last_event_at, ARRAY[e0, e1, e2, e3], ARRAY[b0, b1, b2, b3] \
         FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], \
         $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) \
         AS n (no, topic_id, effective, stage, last_event_at, e0, b0, e1, b1, e2, b2, e3, b3) \
         ON CONFLICT (no) DO UPDATE SET effective = excluded.effective, events = excluded.events, \
         bytes = excluded.bytes, stage = excluded.stage, last_event_at = excluded.last_event_at",
    );
    let mut query = bind_arrays!(query, for topic in topics; topic.no, topic.id, topic.counters.effective,
        topic.counters.stage, topic.last_event_at);
    // Postgres arrays of arrays lose their inner bounds, so the four numbers are sent as columns.
    for class in 0..4 {
        let usage = |topic: &Topic| topic.counters.by_class[class];
        query = bind_arrays!(query, for topic in topics; usage(topic).events, usage(topic).bytes);
    }
    query
}

fn put_id(new: &mut RowSet, id: &EventId, record: &IdRecord, place: Option<RowPlace>) -> Result<()> {
    let (reason, cause, since) = records::standing_columns(record.standing);
    put_row!(*new; id, record.first_seen_at, record.last_seen_at, record.seen_count, record.source, reason, cause, since,
        place.map(|place| place.class), place.map(|place| place.ingested_at), place.map(|place| place.no));
    Ok(())
}
