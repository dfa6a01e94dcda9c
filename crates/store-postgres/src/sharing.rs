//! Exchange with other nodes: the shared set of a topic, and hints from other nodes (G-7).

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use kukuri_domain::{
    Event, EventId, Letter, Millis, TopicId,
    retention::RetentionClass,
    sharing::{FloorHint, Trace, tells_of},
};
use kukuri_postgres::{Pool, Session, SqlRow};
use kukuri_store::{Item, Raised, Shared, SharedPage, SharedSet, Span, ingest::apply_hints};

use crate::{
    batch::{Batch, Committed},
    columns::{Column as _, ReadColumn as _, SqlQuery, array, from_columns, query, signed},
    error::Result,
    open::SNAPSHOT,
    records,
    writer::Writer,
};

/// A topic's events in a span, decided by columns where possible; the JSON of the others is returned. Most rows of
/// class `default` are regular: rows from before the window need no lookup.
pub(crate) const EVENTS: &str = "SELECT t.created_at, t.id, \
     CASE WHEN t.kind = 62 OR (t.kind = 5 AND $1 = 'kukuri:global') OR position('\\x5b222d22'::bytea IN e.json) > 0 THEN e.json END AS doubtful \
     FROM cn_relay.event_topics t \
     JOIN cn_relay.events e ON e.class = t.class AND e.ingested_at = t.ingested_at AND e.no = t.no \
     WHERE t.topic = (SELECT no FROM cn_relay.topics WHERE topic_id = $1) \
     AND t.created_at <= $2 AND (t.created_at < $2 OR t.id >= $3) \
     AND t.created_at >= $4 AND (t.created_at > $4 OR t.id < $5) \
     AND NOT t.private AND (t.expires_at IS NULL OR t.expires_at > $6) \
     AND (t.created_at >= $7 OR t.class <> 'default') AND (t.created_at >= $7 OR e.retention <> $8) \
     ORDER BY t.created_at DESC, t.id LIMIT $9";
/// Requests in a span that name a topic and are not bound to it (T-9), like [`EVENTS`].
pub(crate) const REQUESTS: &str = "SELECT t.created_at, t.id, \
     CASE WHEN t.kind = 62 OR position('\\x5b222d22'::bytea IN e.json) > 0 THEN e.json END AS doubtful \
     FROM cn_relay.event_tags t \
     JOIN cn_relay.events e ON e.class = t.class AND e.ingested_at = t.ingested_at AND e.no = t.no \
     WHERE $1::text IS NOT NULL AND t.class = 'requests' AND t.tag = $6 \
     AND t.created_at <= $2 AND (t.created_at < $2 OR t.id >= $3) \
     AND t.created_at >= $4 AND (t.created_at > $4 OR t.id < $5) \
     ORDER BY t.created_at DESC, t.id LIMIT $7";
pub(crate) const TRACES: &str = "SELECT created_at, id FROM cn_relay.traces WHERE topic_id = $1 \
     AND created_at <= $2 AND (created_at < $2 OR id >= $3) \
     AND created_at >= $4 AND (created_at > $4 OR id < $5) ORDER BY created_at DESC, id LIMIT $6";

pub(crate) async fn shared(pool: &Pool, set: &SharedSet, span: Span, most: usize) -> Result<SharedPage> {
    let session = pool.begin(SNAPSHOT).await?;
    let mut items = events(&session, set, span, most, Walk::Bound).await?;
    items.extend(events(&session, set, span, most, Walk::Requests).await?);
    let traces = Bounds::of(span).bind(TRACES, set).bind(one_more(most)).fetch_all(&session).await?;
    session.commit().await?;
    for row in &traces {
        items.push(item(row)?);
    }
    Ok(SharedPage::first(most, items))
}

/// The index that holds some events of a shared set.
#[derive(Clone, Copy)]
enum Walk {
    /// Events that are bound to the topic.
    Bound,
    /// Requests that name it.
    Requests,
}

impl Walk {
    fn query<'q>(self, bounds: &'q Bounds, set: &'q SharedSet, limit: i64) -> SqlQuery<'q> {
        match self {
            Self::Bound => {
                let query = bounds.bind(EVENTS, set).bind(set.window.now.seconds().to_sql());
                query.bind(set.window.regular_since.to_sql()).bind(RetentionClass::Regular.to_sql()).bind(limit)
            }
            Self::Requests => {
                let tag = records::tag_digest(Letter::T, set.topic.as_str());
                bounds.bind(REQUESTS, set).bind(tag).bind(limit)
            }
        }
    }
}

/// The first events of a topic in a span, one more than `most`.
async fn events(session: &Session, set: &SharedSet, span: Span, most: usize, walk: Walk) -> Result<Vec<Item>> {
    let (mut items, mut bounds) = (Vec::new(), Bounds::of(span));
    let limit = one_more(most);
    loop {
        let query = walk.query(&bounds, set, limit);
        let rows = query.fetch_all(session).await?;
        for row in &rows {
            let item = item(row)?;
            let is_shown = match row.get::<Option<&[u8]>>("doubtful")? {
                Some(json) => is_shown(set, &records::event(&item.id, json)?, true),
                None => true,
            };
            if is_shown {
                items.push(item);
            }
        }
        match rows.last() {
            Some(last) if rows.len() as i64 == limit && items.len() <= most => {
                // The smallest id greater than this one, in byte order.
                let Item { created_at, id } = item(last)?;
                bounds.from = (created_at.to_sql(), [id.as_bytes(), &[0][..]].concat());
            }
            _ => return Ok(items),
        }
    }
}

/// Whether an event is in a set, by what it is and, for a request, by the topics that it names.
fn is_shown(set: &SharedSet, event: &Event, is_bound: bool) -> bool {
    let is_told = if event.kind.is_request() { tells_of(event, &set.topic) } else { is_bound };
    is_told && set.window.shows(event)
}

fn one_more(most: usize) -> i64 {
    signed((most as u64).saturating_add(1))
}

/// Bounds of a span as columns.
struct Bounds {
    from: (i64, Vec<u8>),
    before: (i64, Vec<u8>),
}

impl Bounds {
    fn of(span: Span) -> Self {
        let bound = |item: Option<Item>, open: i64| match item {
            Some(item) => (item.created_at.to_sql(), item.id.as_bytes().to_vec()),
            None => (open, Vec::new()),
        };
        Self { from: bound(span.from, i64::MAX), before: bound(span.before, -1) }
    }

    /// A query for the items of a topic within these bounds.
    fn bind<'q>(&'q self, sql: &'static str, set: &'q SharedSet) -> SqlQuery<'q> {
        let (from, before) = (&self.from, &self.before);
        query(sql).bind(set.topic.as_str()).bind(from.0).bind(&from.1).bind(before.0).bind(&before.1)
    }
}

fn item(row: &SqlRow) -> Result<Item> {
    Ok(from_columns!(row => Item { created_at, id }))
}

/// Parses a trace and its topic.
pub(crate) fn trace(row: &SqlRow) -> Result<(TopicId, Trace)> {
    let floor = records::rank(row)?;
    let trace = match row.read("key")? {
        None => Trace::Request { created_at: floor.created_at, id: floor.id },
        Some(key) => Trace::Hint(from_columns!(row => FloorHint { request; key, floor })),
    };
    Ok((row.read("topic_id")?, trace))
}

/// The events or traces that items of a set stand for.
pub(crate) async fn share(pool: &Pool, set: &SharedSet, ids: &[EventId]) -> Result<Vec<Option<Shared>>> {
    let rows = query(
        "SELECT e.id, e.json, t.no IS NOT NULL AS is_bound FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no \
         LEFT JOIN cn_relay.topics t ON t.topic_id = $2 AND t.no = ANY(e.topics) \
         WHERE d.event_id = ANY($1) AND e.effective",
    );
    let traces = query("SELECT * FROM cn_relay.traces WHERE topic_id = $2 AND id = ANY($1)");
    let statements = [rows, traces].map(|statement| statement.bind(array(ids)).bind(set.topic.to_sql()));
    let mut answers = pool.snapshot(statements.into()).await?;
    let (traces, rows) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
    let mut traced = HashSet::new();
    let mut found: HashMap<EventId, Shared> = HashMap::new();
    for row in &traces {
        match trace(row)?.1 {
            Trace::Request { id, .. } => drop(traced.insert(id)),
            Trace::Hint(hint) => drop(found.insert(hint.floor.id, Shared::Hint(hint))),
        }
    }
    for row in &rows {
        let (id, json): (EventId, Bytes) = (row.read("id")?, row.read("json")?);
        let is_bound: bool = row.read("is_bound")?;
        if traced.contains(&id) || is_shown(set, &records::event(&id, &json)?, is_bound) {
            found.insert(id, Shared::Event(json));
        }
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}

/// Selects the stored, effective requests among these ids, for [`read_requests`].
pub(crate) fn requests_query(requests: &HashSet<EventId>) -> SqlQuery<'static> {
    let rows = query(
        "SELECT e.id, e.json FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no \
         WHERE d.event_id = ANY($1) AND e.effective",
    );
    rows.bind(requests.iter().map(|request| request.to_sql()).collect::<Vec<_>>())
}

pub(crate) fn read_requests(rows: &[SqlRow]) -> Result<HashMap<EventId, Event>> {
    let read = |row: &SqlRow| {
        let id = row.read("id")?;
        Ok((id, records::event(&id, row.get("json")?)?))
    };
    rows.iter().map(read).collect()
}

/// The stored, effective requests among these ids.
pub(crate) async fn stored(session: &Session, requests: &HashSet<EventId>) -> Result<HashMap<EventId, Event>> {
    if requests.is_empty() {
        return Ok(HashMap::new());
    }
    read_requests(&requests_query(requests).fetch_all(session).await?)
}

impl Writer {
    pub(crate) async fn raise_floors(&self, topic: &TopicId, hints: &[FloorHint], now: Millis) -> Result<Raised> {
        let mut batch = Batch::begin(self, now).await?;
        batch.read_hint_facts(topic, hints).await?;
        let outcomes = apply_hints(&mut batch.work, topic, hints)?;
        let Committed { stages, head } = batch.commit().await?;
        Ok(Raised { outcomes, head, stages })
    }
}
