//! Answers while an overlay withholds events (M-5): a query finds matching events as usual, then reads each one and
//! checks its visibility.

use std::{collections::HashSet, ops::ControlFlow};

use futures_util::TryStreamExt;
use kukuri_domain::{Event, EventId, Filter, Sketch, Timestamp};
use kukuri_postgres::Asking;
use kukuri_store::{Answer, BoundEvent, Count, Query};
use sqlx::{Connection, PgConnection, PgPool, Row as _};

use crate::{
    batch::read_node,
    codes::{event_id, signed},
    error::Result,
    open::AT_ONE_MOMENT,
    plan::{Part, Plan},
    query::{Cut, filters, get_on, rest, sort},
};

/// Events read at a time.
const CHUNK: usize = 500;

pub(crate) async fn query(pool: &PgPool, query: &Query) -> Result<Answer> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let seq = read_node(&mut txn).await?.head;
    let (mut events, mut cuts) = (Vec::new(), Vec::new());
    for (filter, limit) in filters(query) {
        if limit == Some(0) {
            cuts.push(Cut::Somewhere);
            continue;
        }
        let (share, mut bytes, mut found) = (query.share(), 0, 0);
        for_each_shown(&mut txn, query, filter, limit.map(|limit| limit + 1), |_, bound| {
            bytes += bound.event.json.len();
            if limit == Some(found) || (bytes > share && found > 0) {
                cuts.push(Cut::Before(bound.event.id));
                return ControlFlow::Break(());
            }
            found += 1;
            events.push(bound.event);
            ControlFlow::Continue(())
        })
        .await?;
    }
    txn.commit().await?;
    asking.done();
    let rest = rest(&cuts, &events);
    sort(&mut events);
    events.dedup_by_key(|event| event.id);
    Ok(Answer { seq, events, rest })
}

pub(crate) async fn ids(pool: &PgPool, query: &Query, max: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let (mut all, mut is_over) = (Vec::new(), false);
    for (filter, limit) in filters(query) {
        let enough = (max as u64).saturating_add(1).min(limit.unwrap_or(u64::MAX));
        let mut found = 0;
        if enough > 0 {
            for_each_shown(&mut txn, query, filter, Some(enough), |event, _| {
                all.push((event.created_at, event.id));
                found += 1;
                if found >= enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .await?;
        }
        all.sort_unstable();
        all.dedup();
        is_over |= found > max as u64 || all.len() > max;
    }
    txn.commit().await?;
    asking.done();
    Ok((!is_over).then_some(all))
}

pub(crate) async fn count(pool: &PgPool, query: &Query, mut sketch: Option<Sketch>) -> Result<Count> {
    let mut asking = Asking::of(pool).await?;
    let mut txn = asking.begin_with(AT_ONE_MOMENT).await?;
    let mut counted = HashSet::new();
    for (filter, _) in filters(query) {
        for_each_shown(&mut txn, query, filter, None, |event, _| {
            counted.insert(event.id);
            if let Some(sketch) = &mut sketch {
                sketch.add(&event.pubkey);
            }
            ControlFlow::Continue(())
        })
        .await?;
    }
    txn.commit().await?;
    asking.done();
    Ok(Count { events: counted.len() as u64, sketch })
}

/// Visits the visible events that match a filter, in answer order. `hint`: about how many are needed.
async fn for_each_shown(
    connection: &mut PgConnection,
    query: &Query,
    filter: &Filter,
    hint: Option<u64>,
    mut visit: impl FnMut(&Event, BoundEvent) -> ControlFlow<()>,
) -> Result<()> {
    let (mut limit, mut visited) = (hint, 0);
    loop {
        let plan = Plan::of(filter, &query.viewer, query.now, limit, Part::Id);
        let mut matching = Vec::new();
        let mut rows = plan.query().fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            matching.push(event_id(row.try_get("id")?));
        }
        drop(rows);
        for ids in matching[visited..].chunks(CHUNK) {
            for bound in get_on(connection, ids, signed(query.now.seconds().0)).await?.into_iter().flatten() {
                let event = bound.event.event()?;
                if query.shows(&event, &bound.topics, filter) && visit(&event, bound).is_break() {
                    return Ok(());
                }
            }
        }
        if limit.is_none_or(|limit| (matching.len() as u64) < limit) {
            return Ok(());
        }
        // Some events were withheld: read more.
        visited = matching.len();
        limit = limit.map(|limit| limit.saturating_mul(4).min(i64::MAX as u64));
    }
}
