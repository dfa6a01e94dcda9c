//! Reads other than filters: the outbox, snapshots, statistics, explanations.

use std::collections::HashMap;

use kukuri_domain::{
    Address, EventId, TopicId,
    deletion::{DeletionTargetKind, Tombstone},
    vanish::VanishMark,
};
use kukuri_postgres::Asking;
use kukuri_store::{
    AddressExplanation, BoundEvent, ConsumerOffset, Explanation, OutboxRow, RowRecord, Seq, SnapshotCursor,
    SnapshotPage, Stats, StoreError, TopicStats,
};
use sqlx::{Connection, PgConnection, PgPool, Row as _, postgres::PgRow};

use crate::{
    batch::read_node,
    codes::{millis, signed, unsigned},
    error::{Result, damaged},
    open::AT_ONE_MOMENT,
    records,
    work::{Key, TopicNo},
};

pub(crate) async fn outbox(pool: &PgPool, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let node = read_node(&mut txn).await?;
    if after < node.outbox_dropped {
        txn.rollback().await?;
        asking.done();
        return Err(StoreError::Truncated { after, first: node.outbox_dropped.next() }.into());
    }
    let rows = sqlx::query("SELECT * FROM cn_relay.events_outbox WHERE seq > $1 ORDER BY seq LIMIT $2")
        .bind(signed(after.0))
        .bind(signed(limit as u64))
        .fetch_all(&mut *txn)
        .await?;
    txn.commit().await?;
    asking.done();
    rows.iter().map(records::outbox_row).collect()
}

/// Topic ids by number.
pub(crate) async fn topic_names(connection: &mut PgConnection) -> Result<HashMap<TopicNo, TopicId>> {
    let rows = sqlx::query("SELECT no, topic_id FROM cn_relay.topics").fetch_all(connection).await?;
    names_of(&rows)
}

pub(crate) fn names_of(rows: &[PgRow]) -> Result<HashMap<TopicNo, TopicId>> {
    rows.iter().map(|row| Ok((row.try_get("no")?, TopicId::trusted(row.try_get("topic_id")?)))).collect()
}

pub(crate) fn named(names: &HashMap<TopicNo, TopicId>, topics: &[TopicNo]) -> Result<Vec<TopicId>> {
    let name = |no| names.get(no).cloned().ok_or_else(|| damaged(format!("topic number {no} has no name")));
    topics.iter().map(name).collect()
}

/// Rows in order of arrival.
pub(crate) const SNAPSHOT: &str = "SELECT no, id, created_at, json, topics, ingested_at FROM cn_relay.events \
     WHERE effective AND no > $1 ORDER BY no LIMIT $2";

pub(crate) async fn snapshot(pool: &PgPool, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let seq = match cursor.seq {
        Some(seq) => seq,
        None => read_node(&mut txn).await?.head,
    };
    let rows = sqlx::query(SNAPSHOT)
        .bind(signed(cursor.after))
        .bind(signed((limit as u64).saturating_add(1)))
        .fetch_all(&mut *txn)
        .await?;
    let names = topic_names(&mut txn).await?;
    txn.commit().await?;
    asking.done();
    let page = &rows[..rows.len().min(limit)];
    let mut events = Vec::with_capacity(page.len());
    let mut last = cursor.after;
    for row in page {
        last = unsigned(row.try_get("no")?);
        events.push(BoundEvent {
            event: records::stored_event(row)?,
            topics: named(&names, &row.try_get::<Vec<TopicNo>, _>("topics")?)?,
            ingested_at: millis(row.try_get("ingested_at")?),
        });
    }
    let next = (rows.len() > page.len()).then_some(SnapshotCursor { seq: Some(seq), after: last });
    Ok(SnapshotPage { seq, events, next })
}

pub(crate) async fn offsets(pool: &PgPool) -> Result<Vec<ConsumerOffset>> {
    let mut asking = Asking::of(pool).await?;
    let rows = sqlx::query("SELECT * FROM cn_relay.consumer_offsets ORDER BY consumer").fetch_all(&mut *asking).await?;
    asking.done();
    rows.iter().map(records::offset).collect()
}

pub(crate) async fn stats(pool: &PgPool) -> Result<Stats> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let node = read_node(&mut txn).await?;
    let rows = sqlx::query("SELECT * FROM cn_relay.topics ORDER BY topic_id").fetch_all(&mut *txn).await?;
    let disk: i64 = sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&mut *txn).await?;
    txn.commit().await?;
    asking.done();
    let mut topics = Vec::with_capacity(rows.len());
    for row in &rows {
        let (_, topic) = records::topic(row)?;
        topics.push(TopicStats {
            topic: topic.id,
            effective: topic.counters.effective,
            by_class: topic.counters.by_class,
            stage: topic.counters.stage,
            last_event_at: Some(topic.last_event_at),
        });
    }
    Ok(Stats {
        effective: node.counters.effective,
        by_class: node.counters.by_class,
        stage: node.counters.stage,
        topics,
        head: node.head,
        outbox_first: node.outbox_dropped.next(),
        ids: node.ids,
        failed: node.failed,
        disk_bytes: Some(unsigned(disk)),
        clock_held: node.clock.held,
    })
}

pub(crate) async fn explain(pool: &PgPool, id: &EventId) -> Result<Explanation> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let row = sqlx::query(
        "SELECT d.*, e.json, e.topics FROM cn_relay.ids d LEFT JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no WHERE d.event_id = $1",
    )
    .bind(id.as_bytes())
    .fetch_optional(&mut *txn)
    .await?;
    let mut explanation =
        Explanation { tombstones: stones(&mut txn, *id.as_bytes(), false).await?, ..Explanation::default() };
    if let Some(row) = row {
        let known = records::known_id(&row)?;
        explanation.record = Some(known.record);
        if let Some(json) = row.try_get::<Option<Vec<u8>>, _>("json")? {
            let event = records::event(id, &json)?;
            let names = topic_names(&mut txn).await?;
            explanation.row = Some(RowRecord {
                json: json.into(),
                topics: named(&names, &row.try_get::<Vec<TopicNo>, _>("topics")?)?,
                ingested_at: known.place.map(|place| place.ingested_at).unwrap_or_default(),
            });
            for owner in event.owners() {
                explanation.vanish_marks.extend(mark(&mut txn, owner.as_bytes()).await?);
            }
            if let Some(address) = event.address() {
                explanation.tombstones.extend(stones(&mut txn, address.digest().0, true).await?);
                explanation.key = key(&mut txn, &address).await?.map(|key| key.state());
            }
        }
    }
    txn.commit().await?;
    asking.done();
    Ok(explanation)
}

pub(crate) async fn explain_address(pool: &PgPool, address: &Address) -> Result<AddressExplanation> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let names = |stone: &Tombstone| stone.target.target == DeletionTargetKind::Address(address.clone());
    let explanation = AddressExplanation {
        key: key(&mut txn, address).await?.map(|key| key.state()),
        tombstone: stones(&mut txn, address.digest().0, true).await?.into_iter().find(names),
        vanish_mark: mark(&mut txn, address.pubkey().as_bytes()).await?,
    };
    txn.commit().await?;
    asking.done();
    Ok(explanation)
}

async fn stones(connection: &mut PgConnection, target: [u8; 32], is_address: bool) -> Result<Vec<Tombstone>> {
    let rows = sqlx::query("SELECT * FROM cn_relay.deletion_tombstones WHERE target = $1 AND is_address = $2")
        .bind(target)
        .bind(is_address)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Ok(records::tombstone(row)?.what)).collect()
}

async fn mark(connection: &mut PgConnection, owner: &[u8; 32]) -> Result<Option<VanishMark>> {
    let row = sqlx::query("SELECT * FROM cn_relay.vanish_marks WHERE pubkey = $1")
        .bind(owner)
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok(records::vanish_mark(&row)?.what)).transpose()
}

async fn key(connection: &mut PgConnection, address: &Address) -> Result<Option<Key>> {
    let row = sqlx::query(
        "SELECT f.*, coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
         LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
         LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.key = $1",
    )
    .bind(address.digest().0)
    .fetch_optional(connection)
    .await?;
    row.map(|row| records::key(&row, address.clone())).transpose()
}
