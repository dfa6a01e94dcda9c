//! Writes the changes of a transaction: one statement per kind of change, independent of their number.

use kukuri_domain::{
    EventId, KindClass,
    deletion::{DeletionTargetKind, Tombstone},
};
use kukuri_store::Standing;

use super::Batch;
use crate::{
    codes::{self, reason_code, retention_code, signed, source_code, stage_code},
    copy::Copy,
    error::Result,
    records,
    work::{Cell, Key, KnownId, Noted},
};

impl Batch<'_> {
    pub(super) async fn write(&mut self) -> Result<()> {
        self.write_rows().await?;
        self.write_ids().await?;
        self.write_traces().await?;
        self.write_keys().await?;
        self.write_memories().await?;
        self.write_outbox().await?;
        self.write_topics().await?;
        self.write_parts().await?;
        self.write_node().await
    }

    // Ids, keys, tombstones, vanish marks.

    async fn write_ids(&mut self) -> Result<()> {
        let mut new = Copy::new(
            "COPY cn_relay.event_dedupe (event_id, first_seen_at, last_seen_at, seen_count, since, ingested_at, no, \
             source, reason, class, cause) FROM STDIN (FORMAT binary)",
            11,
        );
        let mut changed = Vec::new();
        for (id, cell) in &self.work.ids {
            match (&cell.was, &cell.now) {
                (None, Some(known)) => put_id(&mut new, id, known),
                (Some(_), Some(known)) if cell.is_changed() => changed.push((id, known)),
                _ => {}
            }
        }
        // Every transaction locks these rows in the same order.
        changed.sort_unstable_by_key(|(id, _)| **id);
        if !changed.is_empty() {
            let standing = |known: &KnownId| Gone::of(known.record.standing);
            sqlx::query(
                "UPDATE cn_relay.event_dedupe d SET reason = n.reason, cause = n.cause, since = n.since, \
                 class = n.class, no = CASE WHEN n.class IS NOT NULL THEN d.no END, \
                 ingested_at = CASE WHEN n.class IS NOT NULL THEN d.ingested_at END \
                 FROM unnest($1::bytea[], $2::smallint[], $3::bytea[], $4::bigint[], $5::text[]) \
                 AS n (id, reason, cause, since, class) WHERE d.event_id = n.id",
            )
            .bind(codes::ids(changed.iter().map(|(id, _)| *id)))
            .bind(changed.iter().map(|(_, known)| standing(known).reason).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, known)| standing(known).cause).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, known)| standing(known).since).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, known)| known.place.map(|place| place.class.as_str())).collect::<Vec<_>>())
            .execute(&mut *self.txn)
            .await?;
        }
        new.send(&mut self.txn).await
    }

    async fn write_keys(&mut self) -> Result<()> {
        let changed: Vec<&Cell<Key>> = self.work.keys.values().filter(|cell| cell.is_changed()).collect();
        let raised = changed.iter().filter(|cell| {
            let floor = |key: &Key| (key.floor, key.raised_at);
            cell.was.as_ref().map(floor) != cell.now.as_ref().map(floor)
        });
        let raised: Vec<&Key> = raised.filter_map(|cell| cell.now.as_ref()).collect();
        if !raised.is_empty() {
            sqlx::query(
                "INSERT INTO cn_relay.floors (key, created_at, id, raised_at) \
                 SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[]) \
                 ON CONFLICT (key) DO UPDATE SET created_at = excluded.created_at, id = excluded.id, \
                 raised_at = excluded.raised_at",
            )
            .bind(raised.iter().map(|key| key.address.digest().0).collect::<Vec<_>>())
            .bind(raised.iter().map(|key| signed(key.floor.created_at.0)).collect::<Vec<_>>())
            .bind(codes::ids(raised.iter().map(|key| &key.floor.id)))
            .bind(raised.iter().map(|key| signed(key.raised_at.0)).collect::<Vec<_>>())
            .execute(&mut *self.txn)
            .await?;
        }
        let changed: Vec<&Key> = changed.iter().filter_map(|cell| cell.now.as_ref()).collect();
        for class in [KindClass::Replaceable, KindClass::Addressable] {
            let of_class = |key: &&&Key| key.address.kind().class() == class;
            let current: Vec<(&Key, EventId)> =
                changed.iter().filter(of_class).filter_map(|key| Some((*key, key.current?))).collect();
            let left = changed.iter().filter(of_class).filter(|key| key.current.is_none());
            let left: Vec<[u8; 32]> = left.map(|key| key.address.digest().0).collect();
            let is_addressable = class == KindClass::Addressable;
            if !left.is_empty() {
                let leave = if is_addressable {
                    "DELETE FROM cn_relay.addressable_current WHERE key = ANY($1)"
                } else {
                    "DELETE FROM cn_relay.replaceable_current WHERE key = ANY($1)"
                };
                sqlx::query(leave).bind(left).execute(&mut *self.txn).await?;
            }
            if current.is_empty() {
                continue;
            }
            let query = sqlx::query(if is_addressable { PUT_ADDRESSABLE } else { PUT_REPLACEABLE })
                .bind(current.iter().map(|(key, _)| key.address.digest().0).collect::<Vec<_>>())
                .bind(current.iter().map(|(key, _)| *key.address.pubkey().as_bytes()).collect::<Vec<_>>())
                .bind(current.iter().map(|(key, _)| i32::from(key.address.kind().0)).collect::<Vec<_>>())
                .bind(codes::ids(current.iter().map(|(_, id)| id)))
                .bind(current.iter().map(|(key, _)| signed(key.raised_at.0)).collect::<Vec<_>>());
            let identifiers = || current.iter().map(|(key, _)| key.address.identifier().to_owned()).collect::<Vec<_>>();
            let query = if is_addressable { query.bind(identifiers()) } else { query };
            query.execute(&mut *self.txn).await?;
        }
        Ok(())
    }

    async fn write_memories(&mut self) -> Result<()> {
        let stones = self.work.tombstones.values().filter(|cell| cell.is_changed());
        let stones: Vec<_> = stones.filter_map(|cell| cell.now.as_ref()).collect();
        if !stones.is_empty() {
            let target = |stone: &Noted<Tombstone>| match &stone.what.target.target {
                DeletionTargetKind::EventId(id) => (*id.as_bytes(), None),
                DeletionTargetKind::Address(address) => (address.digest().0, Some(address.to_string())),
            };
            sqlx::query(
                "INSERT INTO cn_relay.deletion_tombstones \
                 (target, is_address, requester, target_a, deletion_event_id, requested_at, applied_at, noted_at) \
                 SELECT target, target_a IS NOT NULL, requester, target_a, deletion, requested_at, applied_at, noted_at \
                 FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], \
                 $7::bigint[]) AS n (target, target_a, requester, deletion, requested_at, applied_at, noted_at) \
                 ON CONFLICT (target, is_address, requester) DO UPDATE SET \
                 deletion_event_id = excluded.deletion_event_id, requested_at = excluded.requested_at, \
                 applied_at = excluded.applied_at, noted_at = excluded.noted_at",
            )
            .bind(stones.iter().map(|stone| target(stone).0).collect::<Vec<_>>())
            .bind(stones.iter().map(|stone| target(stone).1).collect::<Vec<_>>())
            .bind(stones.iter().map(|stone| *stone.what.target.requester_pubkey.as_bytes()).collect::<Vec<_>>())
            .bind(codes::ids(stones.iter().map(|stone| &stone.what.deletion_id)))
            .bind(stones.iter().map(|stone| signed(stone.what.target.request_created_at.0)).collect::<Vec<_>>())
            .bind(stones.iter().map(|stone| stone.what.applied_at.map(|at| signed(at.0))).collect::<Vec<_>>())
            .bind(stones.iter().map(|stone| signed(stone.at.0)).collect::<Vec<_>>())
            .execute(&mut *self.txn)
            .await?;
        }
        let marks = self.work.marks.values().filter(|cell| cell.is_changed());
        let marks: Vec<_> = marks.filter_map(|cell| cell.now.as_ref()).collect();
        if !marks.is_empty() {
            sqlx::query(
                "INSERT INTO cn_relay.vanish_marks (pubkey, until, request_id, noted_at) \
                 SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bigint[]) \
                 ON CONFLICT (pubkey) DO UPDATE SET until = excluded.until, request_id = excluded.request_id, \
                 noted_at = excluded.noted_at",
            )
            .bind(marks.iter().map(|mark| *mark.what.pubkey.as_bytes()).collect::<Vec<_>>())
            .bind(marks.iter().map(|mark| signed(mark.what.until.0)).collect::<Vec<_>>())
            .bind(codes::ids(marks.iter().map(|mark| &mark.what.request_id)))
            .bind(marks.iter().map(|mark| signed(mark.at.0)).collect::<Vec<_>>())
            .execute(&mut *self.txn)
            .await?;
        }
        Ok(())
    }

    // Outbox and counters.

    async fn write_outbox(&mut self) -> Result<()> {
        let mut copy = Copy::new(
            "COPY cn_relay.events_outbox (seq, created_at, ingested_at, written_at, kind, op, event_id, topic_id, \
             effective_key, reason) FROM STDIN (FORMAT binary)",
            10,
        );
        for row in &self.work.outbox {
            let (op, reason) = codes::op_texts(row.op);
            copy.row()
                .i64(signed(row.seq.0))
                .i64(signed(row.created_at.0))
                .i64(signed(row.ingested_at.0))
                .i64(signed(row.written_at.0))
                .i32(row.kind.0.into())
                .text(op)
                .bytes(row.event_id.as_bytes())
                .text(row.topic.as_str())
                .or_null(row.effective_key.as_ref(), |copy, key| copy.text(&key.to_string()))
                .or_null(reason, |copy, reason| copy.text(reason));
        }
        copy.send(&mut self.txn).await
    }

    async fn write_topics(&mut self) -> Result<()> {
        let changed = self.work.topics.iter().filter(|(_, cell)| cell.is_changed());
        let changed: Vec<_> = changed.filter_map(|(no, cell)| Some((*no, cell.now.as_ref()?))).collect();
        if changed.is_empty() {
            return Ok(());
        }
        // Postgres arrays of arrays lose their inner bounds, so the four numbers are sent as columns.
        let column = |class: usize, of_bytes: bool| -> Vec<i64> {
            let usage = changed.iter().map(|(_, topic)| topic.counters.by_class[class]);
            usage.map(|usage| signed(if of_bytes { usage.bytes } else { usage.events })).collect()
        };
        let mut query = sqlx::query(PUT_TOPICS)
            .bind(changed.iter().map(|(no, _)| *no).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, topic)| topic.id.as_str().to_owned()).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, topic)| signed(topic.counters.effective)).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, topic)| stage_code(topic.counters.stage)).collect::<Vec<_>>())
            .bind(changed.iter().map(|(_, topic)| signed(topic.last_event_at.0)).collect::<Vec<_>>());
        for of_bytes in [false, true] {
            for class in 0..4 {
                query = query.bind(column(class, of_bytes));
            }
        }
        query.execute(&mut *self.txn).await?;
        Ok(())
    }

    async fn write_parts(&mut self) -> Result<()> {
        let parts: Vec<_> = self.work.parts.iter().filter(|(_, delta)| **delta != Default::default()).collect();
        if parts.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO cn_relay.partition_counters AS p (class, begins_at, topic, retention, effective, events, bytes) \
             SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::smallint[], $5::bigint[], $6::bigint[], \
             $7::bigint[]) ON CONFLICT (class, begins_at, topic, retention) DO UPDATE SET \
             effective = p.effective + excluded.effective, events = p.events + excluded.events, \
             bytes = p.bytes + excluded.bytes",
        )
        .bind(parts.iter().map(|((class, ..), _)| class.as_str()).collect::<Vec<_>>())
        .bind(parts.iter().map(|((_, month, ..), _)| signed(month.0)).collect::<Vec<_>>())
        .bind(parts.iter().map(|((_, _, topic, _), _)| *topic).collect::<Vec<_>>())
        .bind(parts.iter().map(|((.., retention), _)| retention_code(*retention)).collect::<Vec<_>>())
        .bind(parts.iter().map(|(_, delta)| delta.effective).collect::<Vec<_>>())
        .bind(parts.iter().map(|(_, delta)| delta.events).collect::<Vec<_>>())
        .bind(parts.iter().map(|(_, delta)| delta.bytes).collect::<Vec<_>>())
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }

    async fn write_node(&mut self) -> Result<()> {
        let node = &self.work.node;
        if *node == self.stored {
            return Ok(());
        }
        let (events, bytes) = records::counter_columns(&node.counters);
        sqlx::query(
            "UPDATE cn_relay.node SET head = $1, outbox_dropped = $2, last_event = $3, last_topic = $4, \
             clock_latest = $5, clock_last = $6, clock_held = $7, effective = $8, events = $9, bytes = $10, \
             stage = $11, ids = $12, failed = $13, subscriptions_version = $14, loading = $15",
        )
        .bind(signed(node.head.0))
        .bind(signed(node.outbox_dropped.0))
        .bind(signed(node.last_event))
        .bind(node.last_topic)
        .bind(signed(node.clock.latest.0))
        .bind(signed(node.clock.last.0))
        .bind(node.clock.held)
        .bind(signed(node.counters.effective))
        .bind(events)
        .bind(bytes)
        .bind(stage_code(node.counters.stage))
        .bind(signed(node.ids))
        .bind(signed(node.failed))
        .bind(signed(node.subscriptions_version))
        .bind(node.loading)
        .execute(&mut *self.txn)
        .await?;
        Ok(())
    }
}

const PUT_REPLACEABLE: &str = "INSERT INTO cn_relay.replaceable_current (key, pubkey, kind, event_id, updated_at) \
     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::bigint[]) \
     ON CONFLICT (key) DO UPDATE SET event_id = excluded.event_id, updated_at = excluded.updated_at";
const PUT_ADDRESSABLE: &str = "INSERT INTO cn_relay.addressable_current (key, pubkey, kind, event_id, updated_at, identifier) \
     SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::integer[], $4::bytea[], $5::bigint[], $6::text[]) \
     ON CONFLICT (key) DO UPDATE SET event_id = excluded.event_id, updated_at = excluded.updated_at";
const PUT_TOPICS: &str = "INSERT INTO cn_relay.topics (no, topic_id, effective, stage, last_event_at, events, bytes) \
     SELECT no, topic_id, effective, stage, last_event_at, ARRAY[e0, e1, e2, e3], ARRAY[b0, b1, b2, b3] \
     FROM unnest($1::integer[], $2::text[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[]) \
     AS n (no, topic_id, effective, stage, last_event_at, e0, e1, e2, e3, b0, b1, b2, b3) \
     ON CONFLICT (no) DO UPDATE SET effective = excluded.effective, events = excluded.events, bytes = excluded.bytes, \
     stage = excluded.stage, last_event_at = excluded.last_event_at";

/// A [`Standing`] as columns.
struct Gone {
    reason: Option<i16>,
    cause: Option<[u8; 32]>,
    since: Option<i64>,
}

impl Gone {
    fn of(standing: Standing) -> Self {
        match standing {
            Standing::Effective => Self { reason: None, cause: None, since: None },
            Standing::Gone { reason, cause, since } => Self {
                reason: Some(reason_code(reason)),
                cause: cause.map(|id| *id.as_bytes()),
                since: Some(signed(since.0)),
            },
        }
    }
}

fn put_id(copy: &mut Copy, id: &EventId, known: &KnownId) {
    let gone = Gone::of(known.record.standing);
    copy.row()
        .bytes(id.as_bytes())
        .i64(signed(known.record.first_seen_at.0))
        .i64(signed(known.record.last_seen_at.0))
        .i64(signed(known.record.seen_count))
        .or_null(gone.since, Copy::i64)
        .or_null(known.place.map(|place| signed(place.ingested_at.0)), Copy::i64)
        .or_null(known.place.map(|place| signed(place.no)), Copy::i64)
        .i16(source_code(known.record.source))
        .or_null(gone.reason, Copy::i16)
        .or_null(known.place.map(|place| place.class.as_str()), Copy::text)
        .or_null(gone.cause.as_ref(), |copy, cause| copy.bytes(cause));
}
