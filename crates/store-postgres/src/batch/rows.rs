//! Inserts, hides and deletes rows and their index rows, each with one statement per table.

use std::collections::BTreeSet;

use kukuri_domain::{Address, Event, EventId, TopicId};
use kukuri_postgres::{ColumnOf, RowSet, Type};

use super::{Batch, STATEMENT_ROWS, write::Statements};
use crate::{
    columns::{Class, Column as _, SqlQuery, bind_arrays, query},
    error::Result,
    records,
    work::{Row, RowSource},
};

impl Batch<'_> {
    pub(super) fn write_rows<'b>(&'b self, statements: &mut Statements<'b>) -> Result<()> {
        let mut new = NewRows::default();
        let (mut unlisted, mut hidden, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        // In order of arrival, like the tables.
        let mut rows: Vec<&Row> = self.work.rows.values().collect();
        rows.sort_unstable_by_key(|row| row.place.no);
        for row in rows {
            match &row.source {
                RowSource::Admitted(_) if row.is_gone => {}
                RowSource::Admitted(admitted) => {
                    let topics =
                        row.topics.iter().filter_map(|no| self.work.topics.get(no)).map(|topic| topic.id.clone());
                    new.add(row, admitted.event(), &topics.collect::<Vec<_>>(), admitted.json())?;
                }
                RowSource::Loaded(loaded) => new.add(row, &loaded.0, &loaded.1.topics, &loaded.1.json)?,
                RowSource::Stored { .. } => {
                    let is_hidden = row.was_effective() && !row.is_effective();
                    let is_deleted = row.is_deleted() && !row.was_deleted();
                    unlisted.extend(is_hidden.then_some(row));
                    hidden.extend(((is_hidden || is_deleted) && !row.is_gone).then_some(row));
                    removed.extend(row.is_gone.then_some(row));
                }
            }
        }
        for (rows, sql) in [(&unlisted, UNLIST_TOPICS), (&unlisted, UNLIST_TAGS), (&hidden, HIDE), (&removed, REMOVE)] {
            for rows in rows.chunks(STATEMENT_ROWS) {
                let query = by_place(sql, rows);
                statements.push(match sql {
                    HIDE => bind_arrays!(query, for row in rows; row.class(), row.is_deleted()),
                    _ => query,
                });
            }
        }
        statements.extend([new.events, new.topics, new.tags].into_iter().filter_map(RowSet::insert));
        Ok(())
    }

    /// Moves rows with their index rows to another partition class.
    pub(crate) async fn move_rows(&mut self, ids: &[EventId], class: Class) -> Result<()> {
        let rows: Vec<&Row> = ids.iter().filter_map(|id| self.work.row(id)).collect();
        let moves = [MOVE_TOPICS, MOVE_TAGS, MOVE].map(|sql| by_place(sql, &rows).bind(class.as_str()));
        self.session.pipeline(moves.into()).await?;
        ids.iter().try_for_each(|id| self.work.change_class(id, class))
    }
}

/// A statement on the rows at $1, $2, $3: class, time and number.
fn by_place<'b>(sql: &'static str, rows: &[&'b Row]) -> SqlQuery<'b> {
    bind_arrays!(query(sql), for row in rows; row.place.class, row.place.ingested_at, row.place.no)
}

/// Changes the index rows of the rows at these places.
macro_rules! index_rows {
    ($change:literal, $column:literal of $columns:literal) => {
        concat!(
            $change,
            " (SELECT e.class, e.ingested_at, e.no, e.created_at, e.id, unnest(e.",
            $columns,
            ") AS value FROM cn_relay.events e \
             JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
             ON e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no \
             ) o WHERE i.class = o.class AND i.ingested_at = o.ingested_at AND i.no = o.no AND i.",
            $column,
            " = o.value AND i.created_at = o.created_at AND i.id = o.id"
        )
    };
}

const UNLIST_TOPICS: &str = index_rows!("DELETE FROM cn_relay.event_topics i USING", "topic" of "topics");
const UNLIST_TAGS: &str = index_rows!("DELETE FROM cn_relay.event_tags i USING", "tag" of "tags");
const MOVE_TOPICS: &str = index_rows!("UPDATE cn_relay.event_topics i SET class = $4 FROM", "topic" of "topics");
const MOVE_TAGS: &str = index_rows!("UPDATE cn_relay.event_tags i SET class = $4 FROM", "tag" of "tags");
const MOVE: &str = "UPDATE cn_relay.events e SET class = $4 \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";
const HIDE: &str = "UPDATE cn_relay.events e SET effective = false, retention = n.retention, deleted = n.deleted \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::boolean[]) \
     AS n (class, ingested_at, no, retention, deleted) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";
const REMOVE: &str = "DELETE FROM cn_relay.events e \
     USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS n (class, ingested_at, no) \
     WHERE e.class = n.class AND e.ingested_at = n.ingested_at AND e.no = n.no";

/// The columns that all three tables begin with, and others.
macro_rules! placed_columns {
    ($($name:literal: $type:ident),+) => {
        &[
            ("ingested_at", Type::INT8),
            ("no", Type::INT8),
            ("created_at", Type::INT8),
            ("expires_at", Type::INT8),
            ("kind", Type::INT4),
            ("class", Type::TEXT),
            ("id", Type::BYTEA),
            ("pubkey", Type::BYTEA),
            $(($name, Type::$type)),+
        ]
    };
}

const EVENTS: &[ColumnOf] = placed_columns!(
    "retention": INT2, "effective": BOOL, "deleted": BOOL, "key": BYTEA, "identifier": TEXT, "topics": INT4_ARRAY,
    "tags": BYTEA_ARRAY, "parties": BYTEA_ARRAY, "json": BYTEA
);
const TOPICS: &[ColumnOf] = placed_columns!("private": BOOL, "topic": INT4);
const TAGS: &[ColumnOf] = placed_columns!("private": BOOL, "tag": BYTEA);

/// Puts the values of a row.
macro_rules! put_row {
    ($rows:expr; $($value:expr),+ $(,)?) => {{
        let rows = &mut $rows;
        $(rows.put(&$value.to_sql())?;)+
    }};
}
pub(crate) use put_row;

/// Rows to insert.
struct NewRows {
    events: RowSet,
    topics: RowSet,
    tags: RowSet,
}

impl Default for NewRows {
    fn default() -> Self {
        Self {
            events: RowSet::new("cn_relay.events", EVENTS),
            topics: RowSet::new("cn_relay.event_topics", TOPICS),
            tags: RowSet::new("cn_relay.event_tags", TAGS),
        }
    }
}

impl NewRows {
    fn add(&mut self, row: &Row, event: &Event, topics: &[TopicId], json: &[u8]) -> Result<()> {
        let (tags, parties) = (records::tag_digests(event, topics), records::parties(event));
        let (address, expires_at) = (event.address(), event.expiration());
        let (place, is_private) = (row.place, parties.is_some());
        put_row!(self.events; place.ingested_at, place.no, event.created_at, expires_at, event.kind, place.class,
            event.id, event.pubkey, row.class(), row.is_effective(), row.is_deleted(), address.as_ref().map(Address::digest));
        self.events.put(&address.as_ref().and_then(records::identifier))?;
        self.events.put(&row.topics)?;
        self.events.put(&tags)?;
        self.events.put(&parties)?;
        self.events.put(&json)?;
        if !row.is_effective() {
            return Ok(());
        }
        for topic in row.topics.iter().collect::<BTreeSet<_>>() {
            put_row!(self.topics; place.ingested_at, place.no, event.created_at, expires_at, event.kind, place.class,
                event.id, event.pubkey, is_private, topic);
        }
        for tag in &tags {
            put_row!(self.tags; place.ingested_at, place.no, event.created_at, expires_at, event.kind, place.class,
                event.id, event.pubkey, is_private);
            self.tags.put(tag)?;
        }
        Ok(())
    }
}
