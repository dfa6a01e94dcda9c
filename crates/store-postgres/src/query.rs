//! Answers to filters.
//!
//! While an overlay withholds events (M-5), a query finds matching events as usual, then reads each one and checks its
//! visibility.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow::{self, Break, Continue},
};

use futures_util::TryStreamExt;
use kukuri_domain::{Event, EventId, Filter, Millis, PublicKey, Sketch, Timestamp};
use kukuri_postgres::{Pool, Session, SqlRow};
use kukuri_store::{Answer, BoundEvent, Completeness, Count, Query, Seq, StoreError, StoredEvent};

use crate::{
    attempt::{Attempt, QueryPools, Question},
    batch::read_node,
    columns::{Column as _, ReadColumn as _, array, query as sql, unsigned},
    error::{Result, damaged},
    plan::{Part, Plan},
    records::{self, topic_ids},
};

/// Events that an overlay checks at a time.
const CHECKED_EVENTS: usize = 500;

/// The filters of a query that can match anything, with their limits.
fn filters(query: &Query) -> impl Iterator<Item = (&Filter, Option<u64>)> {
    let with_limit = |filter: &'_ Filter| filter.limit().filter(|limit| *limit < i64::MAX as usize).map(|n| n as u64);
    query.filters.iter().filter(|filter| !filter.is_empty()).map(move |filter| (filter, with_limit(filter)))
}

/// The filters of a query that can match anything and have a limit above zero, with their limits.
fn asked(query: &Query) -> impl Iterator<Item = (&Filter, Option<u64>)> {
    filters(query).filter(|(_, limit)| *limit != Some(0))
}

pub(crate) async fn query(pools: &QueryPools, query: &Query) -> Result<Answer> {
    pools.answer(&query.budget, &EventsOf(query)).await
}

/// Asks for events.
struct EventsOf<'q>(&'q Query);

impl Question for EventsOf<'_> {
    type Answer = Answer;

    fn is_single_statement(&self) -> bool {
        asked(self.0).count() <= 1 && !self.0.visibility.has_overlay()
    }

    async fn ask(&self, attempt: &Attempt) -> Result<Answer> {
        let query = self.0;
        let mut found = Found { is_cut: filters(query).any(|(_, limit)| limit == Some(0)), ..Found::default() };
        for (filter, limit) in asked(query) {
            found.begin_filter(limit, query.share());
            // One row over the limit shows whether more events match.
            let limit = limit.map(|limit| limit + 1);
            if query.visibility.has_overlay() {
                for_each_shown(attempt, query, filter, limit, |_, bound| found.add(bound.event)).await?;
            } else {
                found.read(attempt.statement().await?, Plan::of(query, filter, limit, Part::Event)).await?;
            }
        }
        let seq = match found.head {
            Some(head) => head,
            None => read_node(attempt.statement().await?).await?.head,
        };
        Ok(found.into_answer(seq))
    }
}

/// The events found so far.
#[derive(Default)]
struct Found {
    events: Vec<StoredEvent>,
    /// The head of the outbox in the same snapshot.
    head: Option<Seq>,
    /// Whether a limit ended the answer to a filter, and the matching events before which it did.
    is_cut: bool,
    cut_before: Vec<EventId>,
    // Limits of the current filter, and how much of them is used.
    max_events: Option<u64>,
    max_bytes: usize,
    event_count: u64,
    bytes: usize,
}

impl Found {
    fn begin_filter(&mut self, max_events: Option<u64>, max_bytes: usize) {
        (self.max_events, self.max_bytes, self.event_count, self.bytes) = (max_events, max_bytes, 0, 0);
    }

    async fn read(&mut self, session: &Session, plan: Plan) -> Result<()> {
        let mut rows = plan.query().fetch(session).await?;
        while let Some(row) = rows.try_next().await? {
            if let Some(head) = row.read("head")? {
                self.head = Some(head);
            } else if self.add(records::stored_event(&row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Events come newest first, so everything past a limit is left out. At least one event is always sent.
    fn add(&mut self, event: StoredEvent) -> ControlFlow<()> {
        self.bytes += event.json.len();
        if self.max_events == Some(self.event_count) || (self.bytes > self.max_bytes && self.event_count > 0) {
            self.is_cut = true;
            self.cut_before.push(event.id);
            return Break(());
        }
        self.event_count += 1;
        self.events.push(event);
        Continue(())
    }

    /// Sorts by time, newest first, ties by the lower id (W-1).
    fn into_answer(mut self, seq: Seq) -> Answer {
        // An event cut off from one filter's answer may have been sent in another's.
        let is_left_out = |id: &EventId| self.events.iter().all(|event| event.id != *id);
        let rest = match self.cut_before.iter().any(is_left_out) {
            true => Completeness::Truncated,
            false if self.is_cut => Completeness::Unknown,
            false => Completeness::Complete,
        };
        self.events.sort_by(|left, right| right.created_at.cmp(&left.created_at).then(left.id.cmp(&right.id)));
        self.events.dedup_by_key(|event| event.id);
        Answer { seq, events: self.events, rest }
    }
}

pub(crate) async fn ids(pools: &QueryPools, query: &Query, max: usize) -> Result<Option<Vec<(Timestamp, EventId)>>> {
    pools.answer(&query.budget, &IdsOf { query, max }).await
}

/// Asks for ids, at most `max`.
struct IdsOf<'q> {
    query: &'q Query,
    max: usize,
}

impl Question for IdsOf<'_> {
    type Answer = Option<Vec<(Timestamp, EventId)>>;

    fn is_single_statement(&self) -> bool {
        asked(self.query).count() <= 1 && !self.query.visibility.has_overlay()
    }

    async fn ask(&self, attempt: &Attempt) -> Result<Self::Answer> {
        let Self { query, max } = *self;
        let mut all = Vec::new();
        for (filter, limit) in asked(query) {
            let limit = (max as u64).saturating_add(1).min(limit.unwrap_or(u64::MAX));
            let mut found = 0;
            for_each_match(attempt, query, filter, Some(limit), |created_at, id, _| {
                found += 1;
                all.push((created_at, id));
                if found < limit { Continue(()) } else { Break(()) }
            })
            .await?;
            all.sort_unstable();
            all.dedup();
            if found > max as u64 || all.len() > max {
                return Ok(None);
            }
        }
        Ok(Some(all))
    }
}

pub(crate) async fn count(pools: &QueryPools, query: &Query, sketch: Option<Sketch>) -> Result<Count> {
    pools.answer(&query.budget, &CountOf { query, sketch }).await
}

/// Asks for a number. The server counts, unless an overlay has to be asked about each event.
struct CountOf<'q> {
    query: &'q Query,
    sketch: Option<Sketch>,
}

impl Question for CountOf<'_> {
    type Answer = Count;

    fn is_single_statement(&self) -> bool {
        !self.query.visibility.has_overlay()
    }

    async fn ask(&self, attempt: &Attempt) -> Result<Count> {
        let (query, mut sketch) = (self.query, self.sketch.clone());
        let asked: Vec<_> = filters(query).map(|(filter, _)| filter).collect();
        if query.visibility.has_overlay() {
            return count_shown(attempt, query, &asked, sketch).await;
        }
        // One row over the budget shows that it is spent.
        let limit = (query.budget.rows < i64::MAX as usize).then(|| query.budget.rows as u64 + 1);
        let mut events = 0;
        if let Some(plan) = Plan::count(query, &asked, limit, sketch.as_ref().map(Sketch::offset)) {
            for row in plan.query().fetch_all(attempt.statement().await?).await? {
                events += unsigned(row.get("events")?);
                if let (Some(sketch), Some(register)) = (&mut sketch, row.get::<Option<i32>>("register")?) {
                    let lowest: &str = row.get("lowest")?;
                    let lowest = u64::from_str_radix(lowest, 16).map_err(|_| damaged("a public key is too short"))?;
                    sketch.add_part(register as u8, lowest);
                }
            }
        }
        if events > query.budget.rows as u64 {
            return Err(StoreError::TooCostly.into());
        }
        Ok(Count { events, sketch })
    }
}

/// Counts events that an overlay shows.
async fn count_shown(attempt: &Attempt, query: &Query, asked: &[&Filter], mut sketch: Option<Sketch>) -> Result<Count> {
    let mut counted = HashSet::new();
    for filter in asked {
        for_each_match(attempt, query, filter, None, |_, id, author| {
            // An event that several filters match counts once.
            counted.insert(id);
            sketch.iter_mut().for_each(|sketch| sketch.add(&author));
            if counted.len() > query.budget.rows { Break(()) } else { Continue(()) }
        })
        .await?;
        if counted.len() > query.budget.rows {
            return Err(StoreError::TooCostly.into());
        }
    }
    Ok(Count { events: counted.len() as u64, sketch })
}

/// Visits time, id and author of the events that a filter matches and that are shown, in answer order.
async fn for_each_match(
    attempt: &Attempt,
    query: &Query,
    filter: &Filter,
    limit: Option<u64>,
    mut visit: impl FnMut(Timestamp, EventId, PublicKey) -> ControlFlow<()> + Send,
) -> Result<()> {
    if query.visibility.has_overlay() {
        let visit = |event: &Event, _| visit(event.created_at, event.id, event.pubkey);
        return for_each_shown(attempt, query, filter, limit, visit).await;
    }
    let mut rows = Plan::of(query, filter, limit, Part::Key).query().fetch(attempt.statement().await?).await?;
    while let Some(row) = rows.try_next().await? {
        if visit(row.read("created_at")?, row.read("id")?, row.read("pubkey")?).is_break() {
            break;
        }
    }
    Ok(())
}

/// Visits the matching events that an overlay shows, in answer order. `hint`: about how many are needed.
async fn for_each_shown(
    attempt: &Attempt,
    query: &Query,
    filter: &Filter,
    hint: Option<u64>,
    mut visit: impl FnMut(&Event, BoundEvent) -> ControlFlow<()> + Send,
) -> Result<()> {
    let (mut limit, mut visited) = (hint, 0);
    loop {
        let rows = Plan::of(query, filter, limit, Part::Key).query().fetch(attempt.statement().await?).await?;
        let rows = rows.map_err(Into::into).and_then(|row: SqlRow| async move { row.read::<EventId>("id") });
        let matching: Vec<EventId> = rows.try_collect().await?;
        for ids in matching[visited..].chunks(CHECKED_EVENTS) {
            for bound in get_on(attempt.statement().await?, ids, query.now).await?.into_iter().flatten() {
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

/// Effective events by id, in the order of `ids`.
pub(crate) async fn get(pool: &Pool, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
    let session = pool.acquire().await?;
    let found = get_on(&session, ids, now).await?;
    session.release();
    Ok(found)
}

/// [`get`] on a given session.
async fn get_on(session: &Session, ids: &[EventId], now: Millis) -> Result<Vec<Option<BoundEvent>>> {
    let rows = sql(concat!(
        "SELECT e.id, e.created_at, e.json, e.ingested_at, ",
        topic_ids!(),
        " AS topics FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
         ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no \
         WHERE d.event_id = ANY($1) AND e.effective AND (e.expires_at IS NULL OR e.expires_at > $2)"
    ));
    let rows = rows.bind(array(ids)).bind(now.seconds().to_sql()).fetch_all(session).await?;
    let found = rows.iter().map(|row| records::bound_event(row).map(|bound| (bound.event.id, bound)));
    let found: HashMap<EventId, BoundEvent> = found.collect::<Result<_>>()?;
    Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
}
