//! What writing holds between transactions, and small changes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kukuri_domain::{
    EventId, Millis, TopicId,
    clock::Clock,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_postgres::name_of;
use kukuri_store::{
    Holder, Seq, StoreError, StoreRules,
    outbox::check_consumer,
    repeats::{Repeat, Repeats},
    subscriptions::Subscriptions,
};
use sqlx::PgPool;
use tokio::sync::watch;

use crate::{
    batch::{Batch, read_node},
    codes::signed,
    error::{Failure, Result},
    open::PostgresOptions,
    subscriptions,
};

/// Everything that changes the store goes through here.
pub(crate) struct Writer {
    pub(crate) pool: PgPool,
    /// Whether nothing may change at all.
    pub(crate) is_read_only: bool,
    /// Within a process writers wait here, for as long as it takes; between processes at the lock.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) rules: Arc<StoreRules>,
    pub(crate) repeats: Repeats,
    pub(crate) head: watch::Sender<Seq>,
    pub(crate) subscription_version: watch::Sender<u64>,
    subscriptions: Mutex<Option<(u64, Arc<Subscriptions>)>>,
    months: Mutex<HashSet<Millis>>,
    /// The clock as it was last seen: what copies of events are stamped with.
    clock: Mutex<Clock>,
    /// If it is this writer that loads another store's pieces: indexes that are to be made again.
    pub(crate) loading: Mutex<Option<Vec<String>>>,
    commit_delay: Option<fn() -> Duration>,
    #[cfg(test)]
    pub(crate) faults: Mutex<kukuri_store::conformance::faults::Faults>,
}

impl Writer {
    pub(crate) fn new(pool: PgPool, options: &PostgresOptions, is_read_only: bool) -> Self {
        Self {
            pool,
            is_read_only,
            turn: tokio::sync::Mutex::default(),
            rules: Arc::new(options.rules.clone()),
            repeats: Repeats::default(),
            head: watch::Sender::new(Seq::default()),
            subscription_version: watch::Sender::new(0),
            subscriptions: Mutex::default(),
            months: Mutex::default(),
            clock: Mutex::default(),
            loading: Mutex::default(),
            commit_delay: options.commit_delay,
            #[cfg(test)]
            faults: Mutex::default(),
        }
    }

    /// The configuration may have changed since the store was last open.
    pub(crate) async fn review_stages(&self) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        batch.read_all_topics().await?;
        batch.work.touch_all();
        batch.work.update_stages()?;
        self.subscription_version.send_replace(batch.work.node.subscriptions_version);
        batch.commit().await.map(drop)
    }

    /// What a store that is only read has to know: where it stands, and that it is whole.
    pub(crate) async fn look_around(&self, readers: &PgPool) -> Result<()> {
        let node = read_node(&mut *readers.acquire().await?).await?;
        if node.loading {
            return Err(self.unfinished());
        }
        self.saw(node.clock, node.head);
        self.subscription_version.send_replace(node.subscriptions_version);
        Ok(())
    }

    // What is known between transactions.

    pub(crate) fn known_subscriptions(&self, version: u64) -> Option<Arc<Subscriptions>> {
        let kept = locked(&self.subscriptions);
        kept.as_ref().filter(|(kept, _)| *kept == version).map(|(_, subscriptions)| Arc::clone(subscriptions))
    }

    pub(crate) fn keep_subscriptions(&self, version: u64, subscriptions: Arc<Subscriptions>) {
        *locked(&self.subscriptions) = Some((version, subscriptions));
    }

    pub(crate) fn knows_month(&self, month: Millis) -> bool {
        locked(&self.months).contains(&month)
    }

    pub(crate) fn note_month(&self, month: Millis) {
        locked(&self.months).insert(month);
    }

    /// Takes note of what a commit has left.
    pub(crate) fn saw(&self, clock: Clock, head: Seq) {
        *locked(&self.clock) = clock;
        self.saw_head(head);
    }

    /// The head only goes on: news of it may overtake each other.
    pub(crate) fn saw_head(&self, newest: Seq) {
        self.head.send_if_modified(|head| {
            let is_new = *head < newest;
            *head = newest.max(*head);
            is_new
        });
    }

    /// Why nothing can be done with half a copy.
    pub(crate) fn unfinished(&self) -> Failure {
        StoreError::Unfinished { path: name_of(&self.pool.connect_options()).into() }.into()
    }

    /// The time to stamp a copy of an event with.
    pub(crate) fn stamp(&self, now: Millis) -> Millis {
        locked(&self.clock).latest.max(now)
    }

    pub(crate) async fn delay_commit(&self) {
        if let Some(delay) = self.commit_delay {
            tokio::time::sleep(delay()).await;
        }
    }

    // Repeats.

    /// Counts may be lost, so a failure to write them is no failure of what they were counted for.
    pub(crate) async fn flush_if_due(&self, now: Millis) {
        if self.repeats.are_due(now)
            && let Err(error) = self.flush().await
        {
            tracing::warn!(%error, "repeats could not be written; they stay counted");
        }
    }

    /// Writes what was counted.
    pub(crate) async fn flush(&self) -> Result<()> {
        let counts = self.repeats.take();
        if counts.is_empty() || self.is_read_only {
            return Ok(());
        }
        let written = self.write_repeats(&counts.iter().map(|(id, repeat)| (*id, *repeat)).collect()).await;
        if written.is_err() {
            self.repeats.put_back(counts, Millis::default());
        }
        written
    }

    async fn write_repeats(&self, counts: &BTreeMap<EventId, Repeat>) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        sqlx::query(
            "UPDATE cn_relay.event_dedupe d SET last_seen_at = greatest(d.last_seen_at, n.at), \
             seen_count = d.seen_count + n.count FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) \
             AS n (id, at, count) WHERE d.event_id = n.id",
        )
        .bind(counts.keys().map(|id| *id.as_bytes()).collect::<Vec<_>>())
        .bind(counts.values().map(|repeat| signed(repeat.last_seen_at.0)).collect::<Vec<_>>())
        .bind(counts.values().map(|repeat| signed(repeat.count)).collect::<Vec<_>>())
        .execute(batch.connection())
        .await?;
        batch.commit().await.map(drop)
    }

    // Small changes.

    pub(crate) async fn confirm_clock(&self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        batch.work.node.clock = batch.work.node.clock.confirmed(now);
        batch.commit().await.map(drop)
    }

    pub(crate) async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        check_consumer(consumer)?;
        Batch::resume(self).await?.move_consumer(consumer, seq, now).await
    }

    // Leases: a row of their own each, so that nobody waits for writers.

    pub(crate) async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool> {
        check_consumer(consumer)?;
        let taken = sqlx::query(
            "INSERT INTO cn_relay.consumer_leases AS held (consumer, holder, until) VALUES ($1, $2, $3) \
             ON CONFLICT (consumer) DO UPDATE SET holder = excluded.holder, until = excluded.until \
             WHERE held.holder = excluded.holder OR held.until <= $4",
        )
        .bind(consumer)
        .bind(holder.0.to_be_bytes())
        .bind(signed(until.0))
        .bind(signed(now.0))
        .execute(&self.pool)
        .await?;
        Ok(taken.rows_affected() > 0)
    }

    pub(crate) async fn release(&self, consumer: &str, holder: Holder) -> Result<()> {
        let release = sqlx::query("DELETE FROM cn_relay.consumer_leases WHERE consumer = $1 AND holder = $2");
        release.bind(consumer).bind(holder.0.to_be_bytes()).execute(&self.pool).await?;
        Ok(())
    }

    /// Whether the lease is still the holder's, and the offset, in one transaction.
    pub(crate) async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        let own = sqlx::query("SELECT 1 FROM cn_relay.consumer_leases WHERE consumer = $1 AND holder = $2 FOR UPDATE");
        let own = own.bind(consumer).bind(holder.0.to_be_bytes()).fetch_optional(batch.connection()).await?;
        if own.is_none() {
            batch.abandon().await?;
            return Err(StoreError::LeaseLost { consumer: consumer.to_owned() }.into());
        }
        batch.move_consumer(consumer, seq, now).await
    }

    pub(crate) async fn change_subscription(
        &self,
        topic: &TopicId,
        change: SubscriptionChange,
        now: Millis,
    ) -> Result<NodeSubscription> {
        let mut batch = Batch::resume(self).await?;
        let changed = change.apply(topic, batch.work.subscriptions.get(topic).cloned(), now);
        subscriptions::write(std::slice::from_ref(&changed), batch.connection()).await?;
        batch.work.node.subscriptions_version += 1;
        let version = batch.work.node.subscriptions_version;
        batch.work.subscriptions = Arc::new(subscriptions::load(batch.connection()).await?);
        batch.settle(&HashSet::from([topic.clone()])).await?;
        batch.work.touch_all();
        batch.work.update_stages()?;
        let subscriptions = Arc::clone(&batch.work.subscriptions);
        batch.commit().await?;
        self.keep_subscriptions(version, subscriptions);
        self.subscription_version.send_replace(version);
        Ok(changed)
    }
}

impl Batch<'_> {
    async fn move_consumer(mut self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        let head = self.work.node.head;
        if seq > head {
            self.abandon().await?;
            return Err(StoreError::OffsetAhead { offset: seq, head }.into());
        }
        sqlx::query(
            "INSERT INTO cn_relay.consumer_offsets (consumer, last_seq, updated_at) VALUES ($1, $2, $3) \
             ON CONFLICT (consumer) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at",
        )
        .bind(consumer)
        .bind(signed(seq.0))
        .bind(signed(now.0))
        .execute(self.connection())
        .await?;
        self.commit().await.map(drop)
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these locks guard is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
