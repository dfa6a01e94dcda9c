//! Writes the changes of a transaction: one statement per kind of change, independent of their number.

use kukuri_domain::{EventId, KindClass, deletion::DeletionTargetKind};
use kukuri_store::{IdRecord, counters::Tally as _};
use sqlx::{AssertSqlSafe, PgConnection};

use super::{Batch, STATEMENT_ROWS};
use crate::{
    columns::{Column as _, array, bind_arrays, write_arrays},
    copy::{Copy, copy_row},
    error::Result,
    records,
    work::{Delta, Facts, Key, Noted, Row, RowPlace, RowSource, Topic, TopicNo},
};

impl Batch<'_> {
    pub(crate) async fn write(&mut self) -> Result<()> {
        self.write_rows().await?;
        self.write_ids().await?;
        self.write_traces().await?;
        self.write_remains().await?;
        self.write_keys().await?;
        self.write_tombstones().await?;
        self.write_vanish_marks().await?;
        self.write_outbox().await?;
        self.write_topics().await?;
        self.write_partition_counters().await?;
        self.write_node().await
    }

    async fn write_ids(&mut self) -> Result<()> {
        let columns = "event_id, first_seen_at, last_seen_at, seen_count, source, reason, cause, since, class, \
             ingested_at, no";
        let mut new = Copy::new("event_dedupe", columns);
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
        for changed in changed.chunks(STATEMENT_ROWS) {
            let query = sqlx::query(
                "UPDATE cn_relay.event_dedupe d SET reason = n.reason, cause = n.cause, since = n.since, \
                 class = n.class, no = CASE WHEN n.class IS NOT NULL THEN d.no END, \
                 ingested_at = CASE WHEN n.class IS NOT NULL THEN d.ingested_at END \
                 FROM unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bigint[], $5::text[]) \
                 AS n (id, reason, cause, since, class) WHERE d.event_id = n.id",
            );
            let gone = |row: &Row| records::standing_columns(row.record.standing);
            let query = bind_arrays!(query, for row in changed; row.outline.id, gone(row).0, gone(row).1, gone(row).2);
            let class = |row: &&Row| (!row.is_gone).then(|| row.place.class.as_str());
            query.bind(changed.iter().map(class).collect::<Vec<_>>()).execute(&mut *self.txn).await?;
        }
        new.send(&mut self.txn).await
    }

    async fn write_keys(&mut self) -> Result<()> {
        let floor = |key: &Key| (key.floor, key.raised_at);
        let raised = self.work.keys.changed().filter(|key| key.stored.as_ref().map(floor) != Some(floor(&key.now)));
        let raised: Vec<&Key> = raised.map(|key| &key.now).collect();
        write_arrays!(
            &mut *self.txn,
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
            let delete = || AssertSqlSafe(format!("DELETE FROM cn_relay.{table} WHERE key = ANY($1)"));
            write_arrays!(&mut *self.txn, delete(), for key in left; key.address.digest());
            for current in current.chunks(STATEMENT_ROWS) {
                let put = sqlx::query(AssertSqlSafe(format!(
                    "INSERT INTO cn_relay.{table} (key, pubkey, kind, event_id, updated_at{identifier}) \
                     SELECT key, pubkey, kind, event_id, updated_at{identifier} \
                     FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::bigint[], $6::text[]) \
                     AS n (key, pubkey, kind, event_id, updated_at, identifier) \
                     ON CONFLICT (key) DO UPDATE SET event_id = excluded.event_id, updated_at = excluded.updated_at"
                )));
                let put = bind_arrays!(put, for key in current; key.address.digest(), key.address.pubkey(),
                    key.address.kind(), key.current, key.raised_at);
                let identifiers: Vec<_> = current.iter().map(|key| key.address.identifier()).collect();
                put.bind(identifiers).execute(&mut *self.txn).await?;
            }
        }
        Ok(())
    }

    async fn write_tombstones(&mut self) -> Result<()> {
        let target = |target: &DeletionTargetKind| match target {
            DeletionTargetKind::EventId(id) => (id.to_sql(), None),
            DeletionTargetKind::Address(address) => (address.digest().0, Some(address.clone())),
        };
        let changed = self.work.tombstones.values().flat_map(Facts::changed).map(|fact| &fact.now);
        let changed: Vec<_> = changed.map(|Noted { what, at }| (target(&what.target.target), what, at)).collect();
        write_arrays!(
            &mut *self.txn,
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
        Ok(())
    }

    async fn write_vanish_marks(&mut self) -> Result<()> {
        let changed: Vec<_> = self.work.marks.changed().map(|fact| &fact.now).collect();
        write_arrays!(
            &mut *self.txn,
            "INSERT INTO cn_relay.vanish_marks (pubkey, until, request_id, noted_at, shareable_at, shareable_id) \
             SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bytea[]) \
             ON CONFLICT (pubkey) DO UPDATE SET until = excluded.until, request_id = excluded.request_id, \
             noted_at = excluded.noted_at, shareable_at = excluded.shareable_at, shareable_id = excluded.shareable_id",
            for mark in changed; mark.what.pubkey, mark.what.until, mark.what.request_id, mark.at,
                mark.what.shareable.map(|it| it.created_at), mark.what.shareable.map(|it| it.id)
        );
        Ok(())
    }

    async fn write_outbox(&mut self) -> Result<()> {
        let columns = "seq, created_at, ingested_at, written_at, kind, event_id, topic_id, effective_key, op, reason";
        for rows in self.work.outbox.chunks(STATEMENT_ROWS) {
            let mut copy = Copy::new("events_outbox", columns);
            for row in rows {
                copy_row!(copy; row.seq, row.created_at, row.ingested_at, row.written_at, row.kind, row.event_id,
                    row.topic, row.effective_key);
                let (op, reason) = records::op_columns(row.op);
                copy.put(op)?;
                copy.put(reason)?;
            }
            copy.send(&mut self.txn).await?;
        }
        Ok(())
    }

    async fn write_topics(&mut self) -> Result<()> {
        // While another store is loaded, topics come before their rows.
        let is_loading = self.work.node.loading || self.stored.loading;
        let is_over = |topic: &Topic| !is_loading && self.work.is_topic_over(&topic.id, &topic.counters);
        let over = self.work.topics.all().filter(|fact| fact.stored.is_some() && is_over(&fact.now));
        let over: Vec<TopicNo> = over.map(|fact| fact.now.no).collect();
        let changed = self.work.topics.changed().map(|fact| &fact.now).filter(|topic| !is_over(topic));
        let changed: Vec<&Topic> = changed.collect();
        write_arrays!(&mut *self.txn, "DELETE FROM cn_relay.topics WHERE no = ANY($1)", for no in over; no);
        for changed in changed.chunks(STATEMENT_ROWS) {
            put_topics(changed, &mut self.txn).await?;
        }
        Ok(())
    }

    async fn write_partition_counters(&mut self) -> Result<()> {
        let changed = self.work.partition_counters.iter().filter(|(_, delta)| **delta != Delta::default());
        let changed: Vec<_> = changed.collect();
        write_arrays!(
            &mut *self.txn,
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
            &mut *self.txn,
            "DELETE FROM cn_relay.partition_counters p \
             USING unnest($1::text[], $2::bigint[], $3::integer[], $4::smallint[]) AS n (class, begins_at, topic, retention) \
             WHERE p.class = n.class AND p.begins_at = n.begins_at AND p.topic = n.topic AND p.retention = n.retention \
             AND p.events = 0",
            for ((class, month, topic, retention), _) in fallen; class, month, topic, retention
        );
        Ok(())
    }

    async fn write_node(&mut self) -> Result<()> {
        let node = &self.work.node;
        if *node == self.stored {
            return Ok(());
        }
        sqlx::query(
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
        .bind(node.loading)
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }
}

async fn put_topics(topics: &[&Topic], connection: &mut PgConnection) -> Result<()> {
    let query = sqlx::query(
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
    query.execute(connection).await?;
    Ok(())
}

fn put_id(copy: &mut Copy, id: &EventId, record: &IdRecord, place: Option<RowPlace>) -> Result<()> {
    let (reason, cause, since) = records::standing_columns(record.standing);
    copy_row!(*copy; id, record.first_seen_at, record.last_seen_at, record.seen_count, record.source, reason, cause, since,
        place.map(|place| place.class), place.map(|place| place.ingested_at), place.map(|place| place.no));
    Ok(())
}
