//! Inserts, hides and deletes rows and their index rows, each with one statement per table.

use std::collections::BTreeSet;

use kukuri_domain::{Event, EventId, TopicId};
use sqlx::PgConnection;

use super::Batch;
use crate::{
    codes::{Class, retention_code, signed},
    copy::Copy,
    error::Result,
    records,
    work::{Filed, Row},
};

impl Batch<'_> {
    pub(super) async fn write_rows(&mut self) -> Result<()> {
        let mut changes = RowChanges::default();
        // In order of arrival, like the tables.
        let mut rows: Vec<&Row> = self.work.rows.values().collect();
        rows.sort_unstable_by_key(|row| row.place.no);
        for row in rows {
            match &row.filed {
                Filed::New(_) if row.is_gone => {}
                Filed::New(admitted) => changes.add(row, admitted.event(), admitted.topics(), admitted.json()),
                Filed::Loaded(loaded) => changes.add(row, &loaded.event, &loaded.row.topics, &loaded.row.json),
                Filed::Stored { effective } => {
                    if *effective && !row.is_effective() {
                        changes.unlisted.push(row);
                    }
                    if row.is_gone {
                        changes.removed.push(row);
                    } else if *effective && !row.is_effective() {
                        changes.hidden.push(row);
                    }
                }
            }
        }
        let RowChanges { events, topics, tags, unlisted, hidden, removed } = changes;
        let (unlisted, hidden, removed) = (Places::of(&unlisted), Places::of(&hidden), Places::of(&removed));
        let connection = &mut *self.txn;
        if !unlisted.is_empty() {
            unlisted.run(UNLIST_TOPICS, connection).await?;
            unlisted.run(UNLIST_TAGS, connection).await?;
        }
        if !hidden.is_empty() {
            hidden.run_with_retention(HIDE, connection).await?;
        }
        if !removed.is_empty() {
            removed.run(REMOVE, connection).await?;
        }
        events.send(connection).await?;
        topics.send(connection).await?;
        tags.send(connection).await
    }

    /// Moves rows with their index rows to another partition class.
    pub(crate) async fn move_rows(&mut self, ids: &[EventId], class: Class) -> Result<()> {
        let rows: Vec<&Row> = ids.iter().filter_map(|id| self.work.row(id)).collect();
        let places = Places::of(&rows);
        for sql in [MOVE_TOPICS, MOVE_TAGS, MOVE] {
            let query = sqlx::query(sql).bind(&places.classes).bind(&places.times).bind(&places.numbers);
            query.bind(class.as_str()).execute(&mut *self.txn).await?;
        }
        ids.iter().try_for_each(|id| self.work.change_class(id, class))
    }
}

const UNLIST_TOPICS: &str = "DELETE FROM cn_relay.event_topics i USING ( \
         SELECT e.class, e.ingested_at, e.no, e.created_at, e.id, unnest(e.topics) AS topic FROM cn_relay.events e \
         JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
         ON e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no \
     ) o WHERE i.class = o.class AND i.ingested_at = o.ingested_at AND i.no = o.no \
     AND i.topic = o.topic AND i.created_at = o.created_at AND i.id = o.id";
const UNLIST_TAGS: &str = "DELETE FROM cn_relay.event_tags i USING ( \
         SELECT e.class, e.ingested_at, e.no, e.created_at, e.id, unnest(e.tags) AS tag FROM cn_relay.events e \
         JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
         ON e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no \
     ) o WHERE i.class = o.class AND i.ingested_at = o.ingested_at AND i.no = o.no \
     AND i.tag = o.tag AND i.created_at = o.created_at AND i.id = o.id";
const HIDE: &str = "UPDATE cn_relay.events e SET effective = false, retention = n.retention \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[]) AS n (class, ingested_at, no, retention) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";
const REMOVE: &str = "DELETE FROM cn_relay.events e \
     USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";

const MOVE_TOPICS: &str = "UPDATE cn_relay.event_topics i SET class = $4 FROM ( \
         SELECT e.class, e.ingested_at, e.no, e.created_at, e.id, unnest(e.topics) AS topic FROM cn_relay.events e \
         JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
         ON e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no \
     ) o WHERE i.class = o.class AND i.ingested_at = o.ingested_at AND i.no = o.no \
     AND i.topic = o.topic AND i.created_at = o.created_at AND i.id = o.id";
const MOVE_TAGS: &str = "UPDATE cn_relay.event_tags i SET class = $4 FROM ( \
         SELECT e.class, e.ingested_at, e.no, e.created_at, e.id, unnest(e.tags) AS tag FROM cn_relay.events e \
         JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
         ON e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no \
     ) o WHERE i.class = o.class AND i.ingested_at = o.ingested_at AND i.no = o.no \
     AND i.tag = o.tag AND i.created_at = o.created_at AND i.id = o.id";
const MOVE: &str = "UPDATE cn_relay.events e SET class = $4 \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";

/// Changes to rows, by kind of change.
struct RowChanges<'r> {
    events: Copy,
    topics: Copy,
    tags: Copy,
    unlisted: Vec<&'r Row>,
    hidden: Vec<&'r Row>,
    removed: Vec<&'r Row>,
}

impl Default for RowChanges<'_> {
    fn default() -> Self {
        Self {
            events: Copy::new(
                "COPY cn_relay.events (ingested_at, no, created_at, expires_at, kind, retention, effective, class, id, \
                 pubkey, key, identifier, topics, tags, parties, json) FROM STDIN (FORMAT binary)",
                16,
            ),
            topics: Copy::new(
                "COPY cn_relay.event_topics (ingested_at, no, created_at, expires_at, topic, kind, private, class, id, \
                 pubkey) FROM STDIN (FORMAT binary)",
                10,
            ),
            tags: Copy::new(
                "COPY cn_relay.event_tags (ingested_at, no, created_at, expires_at, kind, private, class, tag, id, \
                 pubkey) FROM STDIN (FORMAT binary)",
                10,
            ),
            unlisted: Vec::new(),
            hidden: Vec::new(),
            removed: Vec::new(),
        }
    }
}

impl RowChanges<'_> {
    fn add(&mut self, row: &Row, event: &Event, topics: &[TopicId], json: &[u8]) {
        let (at, no) = (signed(row.place.ingested_at.0), signed(row.place.no));
        let (created_at, expires_at) = (signed(event.created_at.0), records::expires_at(event));
        let (kind, class) = (i32::from(event.kind.0), row.place.class.as_str());
        let (id, pubkey) = (event.id.as_bytes(), event.pubkey.as_bytes());
        let address = event.address();
        let tags = records::tag_digests(event, topics);
        let parties = records::parties(event);
        self.events
            .row()
            .i64(at)
            .i64(no)
            .i64(created_at)
            .or_null(expires_at, Copy::i64)
            .i32(kind)
            .i16(retention_code(row.class()))
            .bool(row.is_effective())
            .text(class)
            .bytes(id)
            .bytes(pubkey)
            .or_null(address.as_ref(), |copy, address| copy.bytes(&address.digest().0))
            .or_null(address.as_ref().and_then(records::identifier), Copy::text)
            .numbers(&row.topics)
            .byte_strings(&tags)
            .or_null(parties.as_deref(), Copy::byte_strings)
            .bytes(json);
        if !row.is_effective() {
            return;
        }
        let private = parties.is_some();
        let topics: BTreeSet<_> = row.topics.iter().collect();
        for topic in topics {
            let copy = self.topics.row().i64(at).i64(no).i64(created_at).or_null(expires_at, Copy::i64);
            copy.i32(*topic).i32(kind).bool(private).text(class).bytes(id).bytes(pubkey);
        }
        for tag in &tags {
            let copy = self.tags.row().i64(at).i64(no).i64(created_at).or_null(expires_at, Copy::i64);
            copy.i32(kind).bool(private).text(class).bytes(tag).bytes(id).bytes(pubkey);
        }
    }
}

/// Positions of rows as columns.
struct Places {
    classes: Vec<&'static str>,
    times: Vec<i64>,
    numbers: Vec<i64>,
    retentions: Vec<i16>,
}

impl Places {
    fn of(rows: &[&Row]) -> Self {
        Self {
            classes: rows.iter().map(|row| row.place.class.as_str()).collect(),
            times: rows.iter().map(|row| signed(row.place.ingested_at.0)).collect(),
            numbers: rows.iter().map(|row| signed(row.place.no)).collect(),
            retentions: rows.iter().map(|row| retention_code(row.class())).collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    async fn run(&self, sql: &'static str, connection: &mut PgConnection) -> Result<()> {
        let query = sqlx::query(sql).bind(&self.classes).bind(&self.times).bind(&self.numbers);
        query.execute(connection).await?;
        Ok(())
    }

    async fn run_with_retention(&self, sql: &'static str, connection: &mut PgConnection) -> Result<()> {
        let query = sqlx::query(sql).bind(&self.classes).bind(&self.times).bind(&self.numbers).bind(&self.retentions);
        query.execute(connection).await?;
        Ok(())
    }
}
