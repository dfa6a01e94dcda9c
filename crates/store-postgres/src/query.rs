//! Answers to filters.

use std::collections::HashSet;

use futures_util::TryStreamExt;
use kukuri_domain::{EventId, Filter, PublicKey, Sketch, Timestamp, TopicId};
use kukuri_postgres::Asking;
use kukuri_store::{Answer, BoundEvent, Count, Query, Rest, Seq, StoredEvent};
use sqlx::{Connection, PgConnection, PgPool, Row as _};

use crate::{
    codes::{event_id, millis, timestamp, unsigned},
    error::Result,
    open::AT_ONE_MOMENT,
    overlay,
    plan::{Part, Plan},
    records,
};

/// Where a limit ended the answer to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Before this matching event.
    Before(EventId),
    /// Unknown without more reading whether anything was left out.
    Somewhere,
}

/// Whether all answers together leave anything out: an event cut off from one answer may have been sent in another.
pub(crate) fn rest(cuts: &[Cut], sent: &[StoredEvent]) -> Rest {
    let is_left_out = |cut: &Cut| matches!(cut, Cut::Before(id) if sent.iter().all(|event| event.id != *id));
    match cuts {
        [] => Rest::None,
        cuts if cuts.iter().any(is_left_out) => Rest::More,
        _ => Rest::Unknown,
    }
}

/// The filters of a query that can match anything, with their limits.
pub(crate) fn filters(query: &Query) -> impl Iterator<Item = (&Filter, Option<u64>)> {
    let with_limit = |filter: &'_ Filter| filter.limit().filter(|limit| *limit < i64::MAX as usize).map(|n| n as u64);
    query.filters.iter().filter(|filter| !filter.is_empty()).map(move |filter| (filter, with_limit(filter)))
}

pub(crate) async fn query(pool: &PgPool, query: &Query) -> Result<Answer> {
    if query.visibility.has_overlay() {
        return overlay::query(pool, query).await;
    }
    let mut asking = Asking::of(pool).await?;
    let asked: Vec<_> = filters(query).filter(|(_, limit)| *limit != Some(0)).collect();
    let is_cut = filters(query).any(|(_, limit)| limit == Some(0));
    let mut cuts = if is_cut { vec![Cut::Somewhere] } else { Vec::new() };
    let (mut events, mut seq) = (Vec::new(), None);
    match asked.as_slice() {
        [(filter, limit)] => {
            // A single statement needs no transaction: it is its own snapshot.
            let found = answer(&mut asking, query, (filter, *limit)).await?;
            events = found.events;
            cuts.extend(found.cut);
            seq = Some(found.head);
        }
        [] => {}
        several => {
            let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
            for (filter, limit) in several {
                let found = answer(&mut txn, query, (filter, *limit)).await?;
                events.extend(found.events);
                cuts.extend(found.cut);
                seq = Some(found.head);
            }
            txn.commit().await?;
        }
    }
    let seq = match seq {
        Some(seq) => seq,
        None => crate::batch::read_node(&mut asking).await?.head,
    };
    asking.done();
    let rest = rest(&cuts, &events);
    sort(&mut events);
    events.dedup_by_key(|event| event.id);
    Ok(Answer { seq, events, rest })
}

/// The answer to one filter.
struct Found {
    events: Vec<StoredEvent>,
    head: Seq,
    cut: Option<Cut>,
}

async fn answer(
    connection: &mut PgConnection,
    query: &Query,
    (filter, limit): (&Filter, Option<u64>),
) -> Result<Found> {
    // One row over the limit shows whether more events match.
    let plan = Plan::of(filter, &query.viewer, query.now, limit.map(|limit| limit + 1), Part::Event);
    let mut found = Found { events: Vec::new(), head: Seq::default(), cut: None };
    let (share, mut bytes) = (query.share(), 0);
    let mut rows = plan.query().fetch(connection);
    while let Some(row) = rows.try_next().await? {
        if let Some(head) = row.try_get::<Option<i64>, _>("head")? {
            found.head = Seq(unsigned(head));
            continue;
        }
        let id = event_id(row.try_get("id")?);
        let json: Vec<u8> = row.try_get("json")?;
        bytes += json.len();
        // Rows come newest first, so everything past a bound is left out. At least one event is always sent.
        if limit == Some(found.events.len() as u64) || (bytes > share && !found.events.is_empty()) {
            found.cut = Some(Cut::Before(id));
            break;
        }
        found.events.push(StoredEvent { id, created_at: timestamp(row.try_get("created_at")?), json: json.into() });
    }
    Ok(found)
}

/// Newest first, ties by the lower id (W-1).
pub(crate) fn sort(events: &mut [StoredEvent]) {
    events.sort_by(|left, right| right.created_at.cmp(&left.created_at).then(left.id.cmp(&right.id)));
}

pub(crate) async fn ids(pool: &PgPool, query: &Query, most: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
    if query.visibility.has_overlay() {
        return overlay::ids(pool, query, most).await;
    }
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let mut all = Vec::new();
    for (filter, limit) in filters(query) {
        let one_too_many = (most as u64).saturating_add(1);
        let limit = limit.map_or(one_too_many, |limit| limit.min(one_too_many));
        let mut found = 0;
        let plan = Plan::of(filter, &query.viewer, query.now, Some(limit), Part::Id);
        let mut rows = plan.query().fetch(&mut *txn);
        while let Some(row) = rows.try_next().await? {
            found += 1;
            all.push((timestamp(row.try_get("created_at")?), event_id(row.try_get("id")?)));
        }
        drop(rows);
        all.sort_unstable();
        all.dedup();
        if found > most || all.len() > most {
            txn.rollback().await?;
            asking.done();
            return Ok(None);
        }
    }
    txn.commit().await?;
    asking.done();
    Ok(Some(all))
}

pub(crate) async fn count(pool: &PgPool, query: &Query, mut sketch: Option<Sketch>) -> Result<Count> {
    if query.visibility.has_overlay() {
        return overlay::count(pool, query, sketch).await;
    }
    let mut asking = Asking::of(pool).await?;
    let asked: Vec<_> = filters(query).map(|(filter, _)| filter).collect();
    if let ([filter], None) = (asked.as_slice(), &sketch) {
        let plan = Plan::of(filter, &query.viewer, query.now, None, Part::Count);
        let row = plan.query().fetch_one(&mut *asking).await?;
        asking.done();
        return Ok(Count { events: unsigned(row.try_get(0)?), sketch });
    }
    let is_single = asked.len() == 1;
    let (mut count, mut numbers) = (0, HashSet::new());
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    for filter in asked {
        let plan = Plan::of(filter, &query.viewer, query.now, None, Part::Author);
        let mut rows = plan.query().fetch(&mut *txn);
        while let Some(row) = rows.try_next().await? {
            // An event that several filters match counts once.
            if is_single || numbers.insert(row.try_get::<i64, _>("no")?) {
                count += 1;
            }
            if let Some(sketch) = &mut sketch {
                sketch.add(&PublicKey::from_bytes(row.try_get("pubkey")?));
            }
        }
    }
    txn.commit().await?;
    asking.done();
    Ok(Count { events: count, sketch })
}

/// Effective events by id, in the order of `ids`.
pub(crate) async fn get(pool: &PgPool, ids: &[EventId], now: i64) -> Result<Vec<Option<BoundEvent>>> {
    let mut asking = Asking::of(pool).await?;
    let found = get_on(&mut asking, ids, now).await?;
    asking.done();
    Ok(found)
}

/// [`get`] on a given session.
pub(crate) async fn get_on(
    connection: &mut PgConnection,
    ids: &[EventId],
    now: i64,
) -> Result<Vec<Option<BoundEvent>>> {
    let rows = sqlx::query(
        "SELECT e.id, e.created_at, e.json, e.ingested_at, ARRAY(SELECT t.topic_id FROM unnest(e.topics) \
         WITH ORDINALITY AS u (no, place) JOIN cn_relay.topics t ON t.no = u.no ORDER BY u.place) AS topic_ids FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no \
         WHERE d.event_id = ANY($1) AND e.effective AND (e.expires_at IS NULL OR e.expires_at > $2)",
    )
    .bind(crate::codes::ids(ids))
    .bind(now)
    .fetch_all(connection)
    .await?;
    let mut found = std::collections::HashMap::with_capacity(rows.len());
    for row in &rows {
        let topics = row.try_get::<Vec<String>, _>("topic_ids")?;
        let bound = BoundEvent {
            event: records::stored_event(row)?,
            topics: topics.iter().map(|topic| TopicId::trusted(topic)).collect(),
            ingested_at: millis(row.try_get("ingested_at")?),
        };
        found.insert(bound.event.id, bound);
    }
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
