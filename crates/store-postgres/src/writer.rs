//! The writer's state between transactions, and small writes.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kukuri_domain::{
    EventId, Millis, TopicId,
    clock::Clock,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_postgres::Pool;
use kukuri_store::{
    Epoch, Holder, Seq, StoreError, StoreRules,
    counters::Tally as _,
    outbox::check_consumer,
    repeats::{Repeat, Repeats},
    subscriptions::Subscriptions,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    batch::{Batch, read_node},
    columns::{Column as _, query, write_arrays},
    error::{Failure, Result},
    open::PostgresOptions,
    subscriptions,
    work::Node,
};

/// Every write to the store goes through the writer.
pub(crate) struct Writer {
    pub(crate) pool: Pool,
    /// Whether the store was opened for reading: every write fails.
    pub(crate) is_read_only: bool,
    /// Serializes the writers of this process, without a timeout. The writers' lock serializes processes.
    pub(crate) turn: tokio::sync::Mutex<()>,
    pub(crate) rules: Arc<StoreRules>,
    pub(crate) repeats: Repeats,
    pub(crate) head: watch::Sender<Seq>,
    /// The history of the sequences (Y-5). Only the follower sets it.
    pub(crate) epoch: watch::Sender<Epoch>,
    pub(crate) subscription_version: watch::Sender<u64>,
    /// The subscriptions at a version.
    pub(crate) subscriptions: Mutex<Option<(u64, Arc<Subscriptions>)>>,
    /// Months whose partitions exist.
    pub(crate) months: Mutex<HashSet<Millis>>,
    /// The clock as last seen. It stamps repeated copies of events.
    clock: Mutex<Clock>,
    /// While this writer loads another store: the indexes to create afterwards.
    pub(crate) loading: Mutex<Option<Vec<String>>>,
    pub(crate) commit_delay: Option<fn() -> Duration>,
    /// Interval of the statements that keep a writing session alive while this process computes.
    pub(crate) keep_alive_interval: Duration,
    pub(crate) compute_delay: Duration,
    #[cfg(test)]
    pub(crate) faults: Mutex<kukuri_store::conformance::faults::Faults>,
}

impl Writer {
    pub(crate) fn new(pool: Pool, options: &PostgresOptions, is_read_only: bool) -> Self {
        Self {
            pool,
            is_read_only,
            turn: tokio::sync::Mutex::default(),
            rules: Arc::new(options.rules.clone()),
            repeats: Repeats::default(),
            head: watch::Sender::new(Seq::default()),
            epoch: watch::Sender::new(Epoch::default()),
            subscription_version: watch::Sender::new(0),
            subscriptions: Mutex::default(),
            months: Mutex::default(),
            clock: Mutex::default(),
            loading: Mutex::default(),
            commit_delay: options.commit_delay,
            keep_alive_interval: options.writer_idle_timeout / 3,
            compute_delay: options.compute_delay,
            #[cfg(test)]
            faults: Mutex::default(),
        }
    }

    /// Recomputes capacity stages, because the configuration may have changed while the store was closed.
    pub(crate) async fn review_stages(&self) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        batch.read_topics_with_capacity().await?;
        batch.update_all_stages()?;
        self.subscription_version.send_replace(batch.work.node.subscriptions_version);
        batch.commit().await.map(drop)
    }

    /// For a read-only store: reads the clock, the head and the version of the subscriptions. Fails if a load is
    /// unfinished.
    pub(crate) async fn read_standing(&self, readers: &Pool) -> Result<()> {
        let session = readers.acquire().await?;
        let node = read_node(&session).await?;
        session.release();
        if node.loading {
            return Err(self.unfinished());
        }
        self.note_commit(node.clock, node.head);
        self.subscription_version.send_replace(node.subscriptions_version);
        Ok(())
    }

    /// Records the clock and the head of a commit.
    pub(crate) fn note_commit(&self, clock: Clock, head: Seq) {
        *self.clock.lock() = clock;
        raise(&self.head, head);
    }

    /// Records the standing of the node, and the epoch if it was read. In another epoch, head and versions may be lower than
    /// before, and what was committed before may be gone. Returns whether the epoch is another one.
    pub(crate) fn note_standing(&self, epoch: Option<Epoch>, node: &Node) -> bool {
        let is_other =
            epoch.is_some_and(|epoch| self.epoch.send_if_modified(|known| std::mem::replace(known, epoch) != epoch));
        if is_other {
            *self.subscriptions.lock() = None;
            self.months.lock().clear();
            self.head.send_replace(node.head);
            self.subscription_version.send_replace(node.subscriptions_version);
        } else {
            raise(&self.head, node.head);
            raise(&self.subscription_version, node.subscriptions_version);
        }
        is_other
    }

    /// Begins another epoch, for all processes: the head of the outbox is lower than it was (Y-5).
    pub(crate) async fn begin_epoch(&self) -> Result<()> {
        if !self.is_read_only {
            tracing::warn!("the outbox went back to an older state: its sequences get another epoch");
            self.pool.execute(query("UPDATE cn_relay.node SET epoch = gen_random_uuid()")).await?;
        }
        Ok(())
    }

    /// The error for a store with an unfinished load.
    pub(crate) fn unfinished(&self) -> Failure {
        StoreError::Unfinished(self.pool.name().into()).into()
    }

    /// The time that stamps a repeated copy of an event.
    pub(crate) fn stamp(&self, now: Millis) -> Millis {
        self.clock.lock().tick(now, &self.rules.clock).latest
    }

    /// Writes the pending repeat counts. They may be lost, so a failure fails no other operation.
    pub(crate) async fn write_duplicate_counts_or_warn(&self) {
        if let Err(error) = self.write_duplicate_counts().await {
            tracing::warn!(%error, "can't write the counts of repeated events; trying again later");
        }
    }

    /// Writes the pending repeat counts.
    pub(crate) async fn write_duplicate_counts(&self) -> Result<()> {
        let counts = self.repeats.take();
        if counts.is_empty() || self.is_read_only {
            return Ok(());
        }
        let mut sorted: Vec<_> = counts.iter().map(|(id, repeat)| (*id, *repeat)).collect();
        // Every transaction locks these rows in the same order.
        sorted.sort_unstable_by_key(|(id, _)| *id);
        let written = self.write_repeats(&sorted).await;
        if written.is_err() {
            self.repeats.put_back(counts, Millis::default());
        }
        written
    }

    async fn write_repeats(&self, counts: &[(EventId, Repeat)]) -> Result<()> {
        let batch = Batch::resume(self).await?;
        let mut statements = Vec::new();
        write_arrays!(
            statements,
            "UPDATE cn_relay.event_dedupe d SET last_seen_at = greatest(d.last_seen_at, n.at), \
             seen_count = d.seen_count + n.count FROM unnest($1::bytea[], $2::bigint[], $3::bigint[]) \
             AS n (id, at, count) WHERE d.event_id = n.id",
            for (id, repeat) in counts; id, repeat.last_seen_at, repeat.count
        );
        batch.session().pipeline(statements).await?;
        batch.commit().await.map(drop)
    }

    // Small writes.

    pub(crate) async fn observe_clock(&self, now: Millis) -> Result<Clock> {
        let batch = Batch::begin(self, now).await?;
        let clock = batch.clock();
        batch.commit().await?;
        Ok(clock)
    }

    pub(crate) async fn confirm_clock(&self, now: Millis) -> Result<()> {
        let mut batch = Batch::resume(self).await?;
        batch.work.node.clock = batch.work.node.clock.confirmed(now);
        batch.commit().await.map(drop)
    }

    pub(crate) async fn set_offset(&self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        check_consumer(consumer)?;
        Batch::resume(self).await?.move_consumer(consumer, seq, now).await
    }

    // Leases: one row each, so that they do not wait for writers.

    pub(crate) async fn lease(&self, consumer: &str, holder: Holder, until: Millis, now: Millis) -> Result<bool> {
        check_consumer(consumer)?;
        let lease = query(
            "INSERT INTO cn_relay.consumer_leases AS held (consumer, holder, until) VALUES ($1, $2, $3) \
             ON CONFLICT (consumer) DO UPDATE SET holder = excluded.holder, until = excluded.until \
             WHERE held.holder = excluded.holder OR held.until <= $4",
        )
        .bind(consumer)
        .bind(bytes_of(holder))
        .bind(until.to_sql())
        .bind(now.to_sql());
        Ok(self.pool.execute(lease).await? > 0)
    }

    pub(crate) async fn release(&self, consumer: &str, holder: Holder) -> Result<()> {
        let release = query("DELETE FROM cn_relay.consumer_leases WHERE consumer = $1 AND holder = $2");
        self.pool.execute(release.bind(consumer).bind(bytes_of(holder))).await?;
        Ok(())
    }

    /// Checks the lease and writes the offset, in one transaction.
    pub(crate) async fn advance(&self, consumer: &str, holder: Holder, seq: Seq, now: Millis) -> Result<()> {
        let batch = Batch::resume(self).await?;
        let own = query("SELECT 1 FROM cn_relay.consumer_leases WHERE consumer = $1 AND holder = $2 FOR UPDATE");
        let own = own.bind(consumer).bind(bytes_of(holder)).fetch_optional(batch.session()).await?;
        if own.is_none() {
            return Err(StoreError::LeaseLost(consumer.to_owned()).into());
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
        if changed.is_forgettable() {
            subscriptions::remove(topic, batch.session()).await?;
        } else {
            subscriptions::write(std::slice::from_ref(&changed), batch.session()).await?;
        }
        batch.work.node.subscriptions_version += 1;
        let version = batch.work.node.subscriptions_version;
        batch.work.subscriptions = Arc::new(subscriptions::load(batch.session()).await?);
        batch.read_references(&HashSet::from([topic.clone()])).await?;
        batch.update_all_stages()?;
        let subscriptions = Arc::clone(&batch.work.subscriptions);
        batch.commit().await?;
        *self.subscriptions.lock() = Some((version, subscriptions));
        self.subscription_version.send_replace(version);
        Ok(changed)
    }
}

impl Batch<'_> {
    async fn move_consumer(self, consumer: &str, seq: Seq, now: Millis) -> Result<()> {
        let head = self.work.node.head;
        if seq > head {
            return Err(StoreError::OffsetAhead { offset: seq, head }.into());
        }
        let query = query(
            "INSERT INTO cn_relay.consumer_offsets (consumer, last_seq, updated_at) VALUES ($1, $2, $3) \
             ON CONFLICT (consumer) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at",
        );
        query.bind(consumer).bind(seq.to_sql()).bind(now.to_sql()).execute(self.session()).await?;
        self.commit().await.map(drop)
    }

    /// Recomputes the stages of the node and of all topics that were read.
    fn update_all_stages(&mut self) -> Result<()> {
        self.work.changed_topics.extend(self.work.topics.values().map(|topic| topic.no));
        self.work.update_stages()
    }
}

/// A holder as a `bytea`.
fn bytes_of(holder: Holder) -> Vec<u8> {
    holder.0.to_be_bytes().to_vec()
}

/// Raises a watched number. It never falls: reports of commits may arrive out of order.
pub(crate) fn raise<T: Ord>(watched: &watch::Sender<T>, newest: T) {
    watched.send_if_modified(|number| {
        let is_new = *number < newest;
        if is_new {
            *number = newest;
        }
        is_new
    });
}
