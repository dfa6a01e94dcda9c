//! Dump of a whole store, page by page, while writers are blocked.

use kukuri_postgres::{Pool, Session, SqlRow};
use kukuri_store::{DumpCursor, DumpPage, Piece, StoreError};
use tokio::sync::Mutex;

use crate::{
    batch::{lock_writers, read_node, remains},
    columns::{ReadColumn as _, from_columns, number_at, query, signed},
    error::Result,
    records::{self, topic_ids},
    sharing, subscriptions,
    writer::Writer,
};

type ReadPiece = fn(&SqlRow) -> Result<Piece>;

/// The sections of a dump, in the order of [`Piece`]: a statement, and how its rows are read. $1 is the number of rows to
/// read, after the position $2 (and $3 for events). Column `after` is the position where the next page starts.
const SECTIONS: [(&str, ReadPiece); 11] = [
    (
        "SELECT *, convert_to(topic_id, 'UTF8') AS after FROM cn_relay.node_subscriptions \
         WHERE topic_id > convert_from($2::bytea, 'UTF8') ORDER BY topic_id LIMIT $1",
        |row| Ok(Piece::Subscription(subscriptions::read(row)?)),
    ),
    (
        "SELECT *, convert_to(topic_id, 'UTF8') AS after FROM cn_relay.topics \
         WHERE topic_id > convert_from($2::bytea, 'UTF8') ORDER BY topic_id LIMIT $1",
        |row| Ok(from_columns!(row => Piece::Topic { stage, last_event_at; topic: row.read("topic_id")? })),
    ),
    ("SELECT *, key AS after FROM cn_relay.floors WHERE key > $2 ORDER BY key LIMIT $1", |row| {
        Ok(from_columns!(row => Piece::Floor { key, raised_at; floor: records::rank(row)? }))
    }),
    (
        "SELECT *, target || boolsend(is_address) || requester AS after FROM cn_relay.deletion_tombstones \
         WHERE (target, is_address, requester) > (substr($2::bytea, 1, 32), substr($2::bytea, 33, 1) = '\\x01', substr($2::bytea, 34)) \
         ORDER BY target, is_address, requester LIMIT $1",
        |row| records::tombstone(row).map(|noted| Piece::Tombstone(noted.what, noted.at)),
    ),
    ("SELECT *, pubkey AS after FROM cn_relay.vanish_marks WHERE pubkey > $2 ORDER BY pubkey LIMIT $1", |row| {
        records::vanish_mark(row).map(|noted| Piece::Vanish(noted.what, noted.at))
    }),
    (
        "SELECT *, id || convert_to(topic_id, 'UTF8') AS after FROM cn_relay.traces \
         WHERE (id, topic_id) > (substr($2::bytea, 1, 32), convert_from(substr($2::bytea, 33), 'UTF8')) ORDER BY id, topic_id LIMIT $1",
        |row| sharing::trace(row).map(|(topic, trace)| Piece::Trace(topic, trace)),
    ),
    (
        "SELECT *, subject || convert_to(topic_id, 'UTF8') AS after FROM cn_relay.remains \
         WHERE (subject, topic_id) > (substr($2::bytea, 1, 33), convert_from(substr($2::bytea, 34), 'UTF8')) \
         ORDER BY subject, topic_id LIMIT $1",
        |row| remains(row).map(|noted| Piece::Remains(noted.what, noted.at)),
    ),
    // Arrival times never decrease: within a class this is the order of an index, and of the months.
    (
        concat!(
            "SELECT e.id, e.ingested_at, e.json, ",
            topic_ids!(),
            " AS topics, int8send(e.ingested_at) || int8send(e.no) AS after, \
             d.source, d.first_seen_at, d.last_seen_at, d.seen_count, d.reason, d.cause, d.since \
             FROM ( \
                 (SELECT ingested_at, no, id, topics, json FROM cn_relay.events WHERE class = 'default' \
                     AND ingested_at >= $2 AND (ingested_at, no) > ($2, $3) ORDER BY ingested_at, no LIMIT $1) \
                 UNION ALL \
                 (SELECT ingested_at, no, id, topics, json FROM cn_relay.events WHERE class = 'long' \
                     AND ingested_at >= $2 AND (ingested_at, no) > ($2, $3) ORDER BY ingested_at, no LIMIT $1) \
                 UNION ALL \
                 (SELECT ingested_at, no, id, topics, json FROM cn_relay.events WHERE class = 'requests' \
                     AND ingested_at >= $2 AND (ingested_at, no) > ($2, $3) ORDER BY ingested_at, no LIMIT $1) \
                 ORDER BY ingested_at, no LIMIT $1 \
             ) e LEFT JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.ingested_at, e.no"
        ),
        |row| Ok(Piece::Event(row.read("id")?, records::id_record(row)?, records::row_record(row)?)),
    ),
    (
        "SELECT *, event_id AS after FROM cn_relay.ids WHERE event_id > $2 AND no IS NULL ORDER BY event_id LIMIT $1",
        |row| Ok(Piece::Id(row.read("event_id")?, records::id_record(row)?)),
    ),
    ("SELECT *, int8send(seq) AS after FROM cn_relay.events_outbox WHERE seq > $2 ORDER BY seq LIMIT $1", |row| {
        records::outbox_row(row).map(Piece::Outbox)
    }),
    (
        "SELECT *, convert_to(consumer, 'UTF8') AS after FROM cn_relay.consumer_offsets \
         WHERE consumer > convert_from($2::bytea, 'UTF8') ORDER BY consumer LIMIT $1",
        |row| records::offset(row).map(Piece::Offset),
    ),
];
const EVENTS: usize = 7;
const OUTBOX: usize = 9;

/// Takes the writers' lock: waits up to 60 s for the current writer, then blocks all others until the session ends. Pages
/// have no timeout.
const HOLD: &str = concat!(
    "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = 0; \
     SET LOCAL statement_timeout = '60s'; ",
    lock_writers!(),
    "; SET LOCAL statement_timeout = 0"
);

/// The session of the dump in progress, if any.
#[derive(Default)]
pub(crate) struct Dumping(Mutex<Option<Session>>);

impl Dumping {
    pub(crate) async fn page(
        &self,
        readers: &Pool,
        writer: &Writer,
        cursor: DumpCursor,
        limit: usize,
    ) -> Result<DumpPage> {
        let mut held = self.0.lock().await;
        // Taken out of the mutex, so that a failed page ends the dump.
        let session = held.take();
        let session = if cursor == DumpCursor::default() {
            drop(session);
            begin(readers, writer).await?
        } else {
            let lost = || StoreError::Backend("this dump was interrupted; it has to begin again".into());
            session.ok_or_else(lost)?
        };
        let page = read_page(cursor, limit.max(1), &session).await?;
        if page.next.is_some() {
            *held = Some(session);
        } else {
            session.close().await;
        }
        Ok(page)
    }
}

async fn begin(readers: &Pool, writer: &Writer) -> Result<Session> {
    let session = readers.acquire().await?.detach();
    session.run(HOLD).await?;
    if read_node(&session).await?.loading {
        return Err(writer.unfinished());
    }
    Ok(session)
}

async fn read_page(cursor: DumpCursor, limit: usize, session: &Session) -> Result<DumpPage> {
    let section = usize::from(cursor.section);
    let Some((sql, read)) = SECTIONS.get(section) else {
        let node = read_node(session).await?;
        let standing = Piece::Standing {
            head: node.head,
            dropped: node.outbox_dropped,
            clock: node.clock,
            failed: node.failed,
            stage: node.counters.stage,
        };
        return Ok(DumpPage { pieces: vec![standing], next: None });
    };
    let query = query(*sql).bind(signed(limit as u64));
    let query = match section {
        EVENTS => query.bind(number_at(&cursor.after, 0)).bind(number_at(&cursor.after, 8)),
        OUTBOX => query.bind(number_at(&cursor.after, 0)),
        _ => query.bind(cursor.after),
    };
    let rows = query.fetch_all(session).await?;
    let pieces = rows.iter().map(read).collect::<Result<_>>()?;
    let next = match rows.last() {
        Some(last) if rows.len() == limit => DumpCursor { section: cursor.section, after: last.get("after")? },
        _ => DumpCursor { section: cursor.section + 1, after: Vec::new() },
    };
    Ok(DumpPage { pieces, next: Some(next) })
}
