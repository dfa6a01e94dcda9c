//! What a purge would do, told from one read-only transaction.
//!
//! It goes the way of a purge (`upkeep`) with the same statements (`due`), and takes down what each row would leave behind
//! instead of taking the row away: less in the counters, an id without a row, outbox rows.

use std::collections::{BTreeMap, HashSet};

use futures_util::TryStreamExt;
use kukuri_domain::{
    EventId, Millis, TopicId,
    capacity::Thresholds,
    retention::{Keep, Retention, RetentionClass, TopicRetention},
};
use kukuri_postgres::Asking;
use kukuri_store::{Purged, StoreError, StoreRules, preview::Place, repeats::Repeats};
use sqlx::{Connection, PgConnection, PgPool, Row as _, postgres::PgRow};

use crate::{
    batch::read_node,
    codes::{signed, unsigned},
    due::{Cutoffs, oldest},
    error::{Result, damaged},
    open::FREELY,
    records, subscriptions,
    work::{KnownId, Row, TopicNo},
};

/// A purge that is only thought through.
pub(crate) struct Preview<'p> {
    retention: &'p Retention,
    now: Millis,
    /// What a purge would stamp its outbox rows with.
    stamp: Millis,
    thresholds: Thresholds,
    repeats: &'p Repeats,
    node: Place,
    topics: BTreeMap<TopicNo, Place>,
    /// Rows that would go. Another place need not get rid of them again.
    gone: HashSet<EventId>,
    /// Outbox rows that would be written.
    deletes: u64,
    purged: Purged,
}

/// What a purge would do now.
pub(crate) async fn preview(
    pool: &PgPool,
    (retention, now): (&Retention, Millis),
    rules: &StoreRules,
    repeats: &Repeats,
) -> Result<Purged> {
    let mut asking = Asking::of(pool).await?;
    // It reads as much as a purge does, and may take its time: nobody waits for it.
    let mut txn = asking.begin_with(FREELY).await?;
    let subscriptions = subscriptions::load(&mut txn).await?;
    retention.validate(subscriptions.retentions()).map_err(StoreError::from)?;
    let node = read_node(&mut txn).await?;
    let clock = node.clock.tick(now);
    if clock.held {
        return Ok(Purged { held: true, ..Purged::default() });
    }
    let mut names: Vec<(TopicNo, TopicId)> = Vec::new();
    let mut topics = BTreeMap::new();
    for row in sqlx::query("SELECT * FROM cn_relay.topics ORDER BY topic_id").fetch_all(&mut *txn).await? {
        let (no, topic) = records::topic(&row)?;
        let policy = subscriptions.policy(&topic.id);
        topics.insert(no, Place::new(policy.retention, policy.capacity(), &topic.counters));
        names.push((no, topic.id));
    }
    let mut preview = Preview {
        retention,
        now,
        stamp: clock.latest,
        thresholds: rules.thresholds,
        repeats,
        node: Place::new(TopicRetention::default(), rules.capacity, &node.counters),
        topics,
        gone: HashSet::new(),
        deletes: 0,
        purged: Purged::default(),
    };
    for class in RetentionClass::ALL {
        if let Some(cutoffs) = Cutoffs::of(class, retention, now, &names, &subscriptions) {
            preview.by_age(class, &cutoffs, &mut txn).await?;
        }
    }
    for place in names.iter().map(|(no, _)| Some(*no)).chain([None]) {
        preview.for_room(place, &mut txn).await?;
    }
    preview.ids(&mut txn).await?;
    preview.outbox(&mut txn).await?;
    preview.memories(&mut txn).await?;
    txn.commit().await?;
    asking.done();
    Ok(preview.purged)
}

impl Preview<'_> {
    async fn by_age(&mut self, class: RetentionClass, cutoffs: &Cutoffs, connection: &mut PgConnection) -> Result<()> {
        let mut rows = cutoffs.due((-1, -1), None).fetch(connection);
        while let Some(row) = rows.try_next().await? {
            let (row, known) = records::row(&row)?;
            if self.is_due(&row, class)? {
                self.lose(&row, &known);
                self.purged.by_retention += 1;
            }
        }
        Ok(())
    }

    /// After retention: what is still too much.
    async fn for_room(&mut self, topic: Option<TopicNo>, connection: &mut PgConnection) -> Result<()> {
        if !self.place(topic)?.purges(&self.thresholds) {
            return Ok(());
        }
        let mut rows = oldest(topic, (-1, -1), None).fetch(connection);
        loop {
            if !self.place(topic)?.holds_too_much(&self.thresholds) {
                return Ok(());
            }
            let Some(row) = rows.try_next().await? else { return Ok(()) };
            let (row, known) = records::row(&row)?;
            if !self.gone.contains(&row.outline.id) {
                self.lose(&row, &known);
                self.purged.by_capacity += 1;
            }
        }
    }

    /// Ids that have no row now; those of rows that would go are counted with them.
    async fn ids(&mut self, connection: &mut PgConnection) -> Result<()> {
        let Some(cutoff) = self.retention.dedupe.cutoff(self.now) else { return Ok(()) };
        let mut rows = sqlx::query(
            "SELECT * FROM cn_relay.event_dedupe WHERE no IS NULL AND last_seen_at <= $1 UNION ALL \
             SELECT d.* FROM cn_relay.leaving l JOIN cn_relay.event_dedupe d \
             ON d.class = l.class AND d.ingested_at >= l.begins_at AND d.ingested_at < l.ends_at \
             WHERE d.last_seen_at <= $1",
        )
        .bind(signed(cutoff.0))
        .fetch(connection);
        while let Some(row) = rows.try_next().await? {
            let id = crate::codes::event_id(row.try_get("event_id")?);
            self.forget(&id, &records::known_id(&row)?, cutoff);
        }
        Ok(())
    }

    async fn outbox(&mut self, connection: &mut PgConnection) -> Result<()> {
        let Some(cutoff) = self.retention.outbox.cutoff(self.now) else { return Ok(()) };
        let count = sqlx::query_scalar("SELECT count(*) FROM cn_relay.events_outbox WHERE written_at <= $1");
        let count: i64 = count.bind(signed(cutoff.0)).fetch_one(connection).await?;
        // What the purge has just written goes too, if it is kept for no time.
        let own = if self.retention.outbox.is_over(self.stamp, self.now) { self.deletes } else { 0 };
        self.purged.outbox = unsigned(count) + own;
        Ok(())
    }

    async fn memories(&mut self, connection: &mut PgConnection) -> Result<()> {
        let Keep::For(_) = self.retention.requests else { return Ok(()) };
        let Some(cutoff) = self.retention.requests.cutoff(self.now) else { return Ok(()) };
        let count = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM cn_relay.deletion_tombstones WHERE noted_at <= $1) \
             + (SELECT count(*) FROM cn_relay.vanish_marks WHERE noted_at <= $1)",
        );
        let count: i64 = count.bind(signed(cutoff.0)).fetch_one(&mut *connection).await?;
        self.purged.memories = unsigned(count);
        let mut floors = sqlx::query(
            "SELECT coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
             LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
             LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.raised_at <= $1",
        )
        .bind(signed(cutoff.0))
        .fetch(connection);
        while let Some(row) = floors.try_next().await? {
            if !self.stays_current(&row)? {
                self.purged.memories += 1;
            }
        }
        Ok(())
    }

    /// Whether the key has an effective version that would be left.
    fn stays_current(&self, row: &PgRow) -> Result<bool> {
        let current = row.try_get::<Option<[u8; 32]>, _>("current")?.map(EventId::from_bytes);
        Ok(current.is_some_and(|id| !self.gone.contains(&id)))
    }

    fn place(&self, topic: Option<TopicNo>) -> Result<Place> {
        match topic {
            None => Ok(self.node),
            Some(no) => self.topics.get(&no).copied().ok_or_else(|| damaged(format!("topic number {no} has no name"))),
        }
    }

    /// Whether a row has stayed long enough in all its topics.
    fn is_due(&self, row: &Row, class: RetentionClass) -> Result<bool> {
        let places = row.topics.iter().map(|topic| self.place(Some(*topic))).collect::<Result<Vec<_>>>()?;
        let keep = self.retention.keep(class, places.iter().map(|place| &place.retention));
        Ok(keep.is_over(row.place.ingested_at, self.now))
    }

    /// A row would go.
    fn lose(&mut self, row: &Row, known: &KnownId) {
        self.gone.insert(row.outline.id);
        self.node.lose(row.bytes);
        for topic in &row.topics {
            if let Some(place) = self.topics.get_mut(topic) {
                place.lose(row.bytes);
            }
        }
        if row.is_effective() {
            self.deletes += row.topics.len() as u64;
        }
        if let Some(cutoff) = self.retention.dedupe.cutoff(self.now) {
            self.forget(&row.outline.id, known, cutoff);
        }
    }

    /// An id would be forgotten, if no copy came since that a purge would write down first.
    fn forget(&mut self, id: &EventId, known: &KnownId, cutoff: Millis) {
        let mut record = known.record;
        if let Some(repeat) = self.repeats.get(id) {
            repeat.add_to(&mut record);
        }
        self.purged.ids += u64::from(record.last_seen_at <= cutoff);
    }
}
