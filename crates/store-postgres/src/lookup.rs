//! Reads other than filters: the outbox, snapshots, statistics, explanations.

use std::collections::HashMap;

use kukuri_domain::{Address, EventId, Millis, TopicId, decision::KeyState, deletion::Tombstone, vanish::VanishMark};
use kukuri_postgres::{Pool, Session, SqlRow};
use kukuri_store::{
    AddressExplanation, ConsumerOffset, Explanation, OutboxRow, Seq, SnapshotCursor, SnapshotPage, Stats, StoreError,
    TopicStats, outbox::MAX_SNAPSHOT_PAGE_BYTES,
};

use crate::{
    batch::{KEYS, NODE, read_node},
    columns::{Column as _, Digest, ReadColumn as _, SqlQuery, array, from_columns, query, signed, unsigned},
    error::{Result, damaged},
    open::SNAPSHOT,
    records::{self, topic_ids},
    work::{Node, Topic},
};

/// The node's row and the rows of a statement, of one snapshot.
async fn node_and(pool: &Pool, statement: SqlQuery<'_>) -> Result<(Node, Vec<SqlRow>)> {
    let mut answers = pool.snapshot(vec![query(NODE), statement]).await?;
    let (rows, node) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    Ok((records::node(node.first().ok_or_else(|| damaged("the node has no row"))?)?, rows))
}

pub(crate) async fn outbox(pool: &Pool, after: Seq, limit: usize) -> Result<Vec<OutboxRow>> {
    let rows = query("SELECT * FROM cn_relay.events_outbox WHERE seq > $1 ORDER BY seq LIMIT $2");
    let rows = rows.bind(after.to_sql()).bind(signed(limit as u64));
    let (node, rows) = node_and(pool, rows).await?;
    let first = node.outbox_dropped.next();
    if after.next() < first {
        return Err(StoreError::Truncated { after, first }.into());
    }
    rows.iter().map(records::outbox_row).collect()
}

/// Rows in order of arrival, as many as $2 and, after the first, as $3 bytes allow. Sizes are read without the events' text.
pub(crate) const SNAPSHOT_PAGE: &str = concat!(
    "SELECT no, id, created_at, json, ingested_at, ",
    topic_ids!(),
    " AS topics FROM (SELECT *, row_number() OVER w AS place, sum(octet_length(json)) OVER w AS total \
     FROM (SELECT no, id, created_at, json, ingested_at, topics FROM cn_relay.events \
     WHERE effective AND no > $1 ORDER BY no LIMIT $2) page WINDOW w AS (ORDER BY no)) e \
     WHERE total <= $3 OR place = 1 ORDER BY no"
);
/// Whether a row comes after one.
const HAS_MORE: &str = "SELECT EXISTS (SELECT 1 FROM cn_relay.events WHERE effective AND no > $1)";

pub(crate) async fn snapshot(pool: &Pool, cursor: SnapshotCursor, limit: usize) -> Result<SnapshotPage> {
    let session = pool.begin(SNAPSHOT).await?;
    let seq = match cursor.seq {
        Some(seq) => seq,
        None => read_node(&session).await?.head,
    };
    let rows = query(SNAPSHOT_PAGE).bind(cursor.after.to_sql()).bind(signed(limit as u64));
    let rows = rows.bind(signed(MAX_SNAPSHOT_PAGE_BYTES as u64)).fetch_all(&session).await?;
    let after: u64 = rows.last().map_or(Ok(cursor.after), |last| last.read("no"))?;
    let has_more: bool = query(HAS_MORE).bind(after.to_sql()).fetch_value(&session).await?;
    session.commit().await?;
    let events = rows.iter().map(records::bound_event).collect::<Result<_>>()?;
    let next = has_more.then_some(SnapshotCursor { seq: Some(seq), after });
    Ok(SnapshotPage { seq, events, next })
}

pub(crate) async fn offsets(pool: &Pool) -> Result<Vec<ConsumerOffset>> {
    let query = query("SELECT * FROM cn_relay.consumer_offsets ORDER BY consumer");
    pool.fetch_all(query).await?.iter().map(records::offset).collect()
}

pub(crate) async fn stats(pool: &Pool) -> Result<Stats> {
    let (node, rows) = node_and(pool, query("SELECT pg_database_size(current_database())")).await?;
    let disk: i64 = rows.first().ok_or_else(|| damaged("the database has no size"))?.get(0)?;
    Ok(Stats {
        effective: node.counters.effective,
        by_class: node.counters.by_class,
        stage: node.counters.stage,
        head: node.head,
        outbox_first: node.outbox_dropped.next(),
        ids: node.ids,
        failed: node.failed,
        disk_bytes: Some(unsigned(disk)),
        clock_held: node.clock.is_held(),
    })
}

/// Statistics of these topics, in order.
pub(crate) async fn topic_stats(pool: &Pool, topics: &[TopicId]) -> Result<Vec<Option<TopicStats>>> {
    let query = query("SELECT * FROM cn_relay.topics WHERE topic_id = ANY($1)");
    let rows = pool.fetch_all(query.bind(array(topics))).await?;
    let found = rows.iter().map(|row| stats_of_topic(row).map(|stats| (stats.topic.clone(), stats)));
    let found: HashMap<TopicId, TopicStats> = found.collect::<Result<_>>()?;
    Ok(topics.iter().map(|topic| found.get(topic).cloned()).collect())
}

/// Statistics of the topics after one, ordered by id.
pub(crate) async fn list_topics(pool: &Pool, after: Option<&TopicId>, limit: usize) -> Result<Vec<TopicStats>> {
    let query = query("SELECT * FROM cn_relay.topics WHERE topic_id > $1 ORDER BY topic_id LIMIT $2");
    let query = query.bind(after.map_or("", |topic| topic.as_str())).bind(signed(limit as u64));
    pool.fetch_all(query).await?.iter().map(stats_of_topic).collect()
}

fn stats_of_topic(row: &SqlRow) -> Result<TopicStats> {
    let Topic { id, counters, last_event_at, .. } = records::topic(row)?;
    Ok(TopicStats {
        topic: id,
        effective: counters.effective,
        by_class: counters.by_class,
        stage: counters.stage,
        last_event_at: Some(last_event_at).filter(|at| *at > Millis(0)),
    })
}

pub(crate) async fn explain(pool: &Pool, id: &EventId) -> Result<Explanation> {
    let session = pool.begin(SNAPSHOT).await?;
    let row = query(concat!(
        "SELECT d.*, e.json, ",
        topic_ids!(),
        " AS topics FROM cn_relay.ids d LEFT JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no WHERE d.event_id = $1"
    ));
    let row = row.bind(id.to_sql()).fetch_optional(&session).await?;
    let tombstones = tombstones_of(&session, id.to_sql(), false).await?;
    let mut explanation = Explanation { tombstones, ..Explanation::default() };
    if let Some(row) = row {
        explanation.record = Some(records::id_record(&row)?);
        if row.get::<Option<&[u8]>>("json")?.is_some() {
            let stored = records::row_record(&row)?;
            let event = records::event(id, &stored.json)?;
            explanation.row = Some(stored);
            for owner in event.owners() {
                explanation.vanish_marks.extend(vanish_mark_of(&session, owner.to_sql()).await?);
            }
            if let Some(address) = event.address() {
                let named = tombstones_of(&session, address.digest().to_sql(), true).await?;
                explanation.tombstones.extend(named);
                explanation.key = key_of(&session, &address).await?;
            }
        }
    }
    session.commit().await?;
    Ok(explanation)
}

pub(crate) async fn explain_address(pool: &Pool, address: &Address) -> Result<AddressExplanation> {
    let session = pool.begin(SNAPSHOT).await?;
    let explanation = AddressExplanation {
        key: key_of(&session, address).await?,
        tombstone: tombstones_of(&session, address.digest().to_sql(), true).await?.into_iter().next(),
        vanish_mark: vanish_mark_of(&session, address.pubkey().to_sql()).await?,
    };
    session.commit().await?;
    Ok(explanation)
}

async fn tombstones_of(session: &Session, target: Digest, is_address: bool) -> Result<Vec<Tombstone>> {
    let rows = query("SELECT * FROM cn_relay.deletion_tombstones WHERE target = $1 AND is_address = $2");
    let rows = rows.bind(target).bind(is_address).fetch_all(session).await?;
    rows.iter().map(|row| Ok(records::tombstone(row)?.what)).collect()
}

async fn vanish_mark_of(session: &Session, owner: Digest) -> Result<Option<VanishMark>> {
    let row = query("SELECT * FROM cn_relay.vanish_marks WHERE pubkey = $1").bind(owner);
    let row = row.fetch_optional(session).await?;
    row.map(|row| Ok(records::vanish_mark(&row)?.what)).transpose()
}

async fn key_of(session: &Session, address: &Address) -> Result<Option<KeyState>> {
    let row = query(KEYS).bind(vec![address.digest().to_sql()]).fetch_optional(session).await?;
    row.map(|row| Ok(from_columns!(row => KeyState { current; floor: records::rank(&row)? }))).transpose()
}
