//! Facts for the decisions on a batch: one statement per kind of fact, independent of the number of events.

use std::collections::{HashMap, HashSet};

use kukuri_domain::{
    Address, Admitted, EventId, Kind, PublicKey, TopicId,
    deletion::{DeletionTarget, DeletionTargetKind},
    sharing::FloorHint,
};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::Batch;
use crate::{
    codes::{self, event_id, signed},
    error::Result,
    records::{self, select_rows},
    work::TopicNo,
};

/// A request that names or affects more rows than this may exceed the usual statement timeout.
const SLOW_ROW_COUNT: usize = 10_000;

impl Batch<'_> {
    /// Reads the records of these ids.
    pub(crate) async fn read_ids(&mut self, ids: &[EventId]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query("SELECT * FROM cn_relay.ids WHERE event_id = ANY($1)")
            .bind(codes::ids(ids))
            .fetch_all(&mut *self.txn)
            .await?;
        for row in &rows {
            self.work.put_id(event_id(row.try_get("event_id")?), records::known_id(row)?);
        }
        Ok(())
    }

    /// Reads every fact that may affect the decisions on these events.
    pub(crate) async fn read_facts(&mut self, events: &[&Admitted]) -> Result<()> {
        let mut named = Named::default();
        events.iter().for_each(|admitted| named.add(admitted));
        self.read_tombstones(&named).await?;
        self.read_marks(&named.owners).await?;
        self.read_keys(std::mem::take(&mut named.keys)).await?;
        let currents = self.work.keys.values().filter_map(|cell| cell.now.as_ref()?.current);
        let ids: HashSet<EventId> = currents.chain(named.targets.iter().copied()).collect();
        self.read_rows_of(&ids).await?;
        self.read_hidden_versions(&named.versions).await?;
        self.read_vanishing(&named.vanishing).await?;
        self.read_references(&named.topics).await
    }

    /// Reads every fact that may affect the decisions on these hints.
    pub(crate) async fn read_hint_facts(&mut self, hints: &[FloorHint]) -> Result<()> {
        let ids: Vec<EventId> = hints.iter().map(|hint| hint.floor.id).collect();
        self.read_ids(&ids).await?;
        let stones = ids.iter().map(|id| *id.as_bytes()).collect();
        self.read_tombstones(&Named { stones, ..Named::default() }).await?;
        self.read_keys(hints.iter().map(|hint| (hint.key.digest().0, hint.key.clone())).collect()).await?;
        let currents = self.work.keys.values().filter_map(|cell| cell.now.as_ref()?.current).collect();
        self.read_rows_of(&currents).await?;
        self.read_references(&HashSet::new()).await
    }

    async fn read_tombstones(&mut self, named: &Named) -> Result<()> {
        if named.stones.is_empty() {
            return Ok(());
        }
        let targets: Vec<_> = named.stones.iter().copied().collect();
        let rows = sqlx::query("SELECT * FROM cn_relay.deletion_tombstones WHERE target = ANY($1)")
            .bind(targets)
            .fetch_all(&mut *self.txn)
            .await?;
        for row in &rows {
            self.work.put_tombstone(records::tombstone(row)?);
        }
        Ok(())
    }

    async fn read_marks(&mut self, owners: &HashSet<PublicKey>) -> Result<()> {
        if owners.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query("SELECT * FROM cn_relay.vanish_marks WHERE pubkey = ANY($1)")
            .bind(codes::keys(owners))
            .fetch_all(&mut *self.txn)
            .await?;
        for row in &rows {
            self.work.put_mark(records::vanish_mark(row)?);
        }
        Ok(())
    }

    /// Reads the floors and effective versions of these keys.
    pub(crate) async fn read_keys(&mut self, mut addresses: HashMap<[u8; 32], Address>) -> Result<()> {
        addresses.retain(|_, address| !self.work.keys.contains_key(&address.digest()));
        if addresses.is_empty() {
            return Ok(());
        }
        let digests: Vec<_> = addresses.keys().copied().collect();
        let rows = sqlx::query(
            "SELECT f.*, coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
             LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
             LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.key = ANY($1)",
        )
        .bind(digests)
        .fetch_all(&mut *self.txn)
        .await?;
        for row in &rows {
            if let Some(address) = addresses.remove(&row.try_get::<[u8; 32], _>("key")?) {
                self.work.put_key(records::key(row, address)?);
            }
        }
        Ok(())
    }

    async fn read_rows_of(&mut self, ids: &HashSet<EventId>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        if ids.len() > SLOW_ROW_COUNT {
            self.take_time().await?;
        }
        let rows = sqlx::query(select_rows!(
            "FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
             ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no WHERE d.event_id = ANY($1)"
        ))
        .bind(codes::ids(ids))
        .fetch_all(&mut *self.txn)
        .await?;
        self.put_rows(&rows)
    }

    /// Reads replaced versions of addresses that a deletion names, up to its time. Versions already deleted are
    /// skipped.
    async fn read_hidden_versions(&mut self, versions: &[([u8; 32], i64)]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        self.take_time().await?;
        let (keys, times): (Vec<_>, Vec<_>) = versions.iter().copied().unzip();
        let rows = sqlx::query(select_rows!(
            "FROM unnest($1::bytea[], $2::bigint[]) AS n (key, until) \
             JOIN cn_relay.events e ON e.key = n.key AND e.created_at <= n.until \
             JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
             WHERE NOT e.effective AND e.key IS NOT NULL AND d.reason <> $3"
        ))
        .bind(keys)
        .bind(times)
        .bind(codes::reason_code(kukuri_domain::Reason::Nip09))
        .fetch_all(&mut *self.txn)
        .await?;
        self.put_rows(&rows)
    }

    /// Reads rows of vanishing authors, gift wraps for them, and hidden rows of either.
    async fn read_vanishing(&mut self, vanishing: &[([u8; 32], i64)]) -> Result<()> {
        if vanishing.is_empty() {
            return Ok(());
        }
        self.take_time().await?;
        let (authors, times): (Vec<_>, Vec<_>) = vanishing.iter().copied().unzip();
        let rows = sqlx::query(select_rows!(
            "FROM unnest($1::bytea[], $2::bigint[]) AS n (author, until) CROSS JOIN LATERAL ( \
                 SELECT * FROM cn_relay.events WHERE effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE NOT effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE parties IS NOT NULL AND parties @> ARRAY[n.author] \
                     AND kind = $3 AND pubkey <> n.author AND created_at <= n.until \
             ) e JOIN cn_relay.event_dedupe d ON d.event_id = e.id"
        ))
        .bind(authors)
        .bind(times)
        .bind(i32::from(Kind::GIFT_WRAP.0))
        .fetch_all(&mut *self.txn)
        .await?;
        self.put_rows(&rows)
    }

    /// Adds rows that were selected with [`select_rows`].
    pub(crate) fn put_rows(&mut self, rows: &[PgRow]) -> Result<()> {
        for row in rows {
            let (row, known) = records::row(row)?;
            self.work.put_id(row.outline.id, known);
            self.work.put_row(row);
        }
        Ok(())
    }

    /// Reads these topics, the topics of the loaded rows, and the keys whose effective version they are.
    pub(crate) async fn read_references(&mut self, topics: &HashSet<TopicId>) -> Result<()> {
        let effective = self.work.rows.values().filter(|row| row.is_effective());
        let keys = effective.filter_map(|row| row.outline.address()).map(|address| (address.digest().0, address));
        let keys = keys.collect();
        self.read_keys(keys).await?;
        let names: Vec<String> = topics.iter().map(|topic| topic.as_str().to_owned()).collect();
        let numbers: HashSet<TopicNo> = self.work.rows.values().flat_map(|row| row.topics.iter().copied()).collect();
        let numbers: Vec<_> = numbers.into_iter().filter(|no| !self.work.topics.contains_key(no)).collect();
        if names.is_empty() && numbers.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query("SELECT * FROM cn_relay.topics WHERE topic_id = ANY($1) OR no = ANY($2)")
            .bind(names)
            .bind(numbers)
            .fetch_all(&mut *self.txn)
            .await?;
        for row in &rows {
            let (no, topic) = records::topic(row)?;
            self.work.put_topic(no, topic);
        }
        Ok(())
    }

    pub(crate) async fn read_all_topics(&mut self) -> Result<()> {
        let rows = sqlx::query("SELECT * FROM cn_relay.topics").fetch_all(&mut *self.txn).await?;
        for row in &rows {
            let (no, topic) = records::topic(row)?;
            self.work.put_topic(no, topic);
        }
        Ok(())
    }
}

/// Ids, keys, authors and topics that the events of a batch refer to.
#[derive(Default)]
struct Named {
    /// Possible tombstone targets: ids and digests of addresses.
    stones: HashSet<[u8; 32]>,
    owners: HashSet<PublicKey>,
    keys: HashMap<[u8; 32], Address>,
    /// Rows that deletions name by id.
    targets: HashSet<EventId>,
    /// Addresses that deletions name, each with the deletion's time.
    versions: Vec<([u8; 32], i64)>,
    /// Vanishing authors, each with the time of the vanish request.
    vanishing: Vec<([u8; 32], i64)>,
    topics: HashSet<TopicId>,
}

impl Named {
    fn add(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        self.stones.insert(*event.id.as_bytes());
        self.owners.extend(event.owners());
        self.topics.extend(admitted.topics().iter().cloned());
        if let Some(address) = event.address() {
            self.stones.insert(address.digest().0);
            self.keys.insert(address.digest().0, address);
        }
        if event.kind == Kind::DELETION {
            for target in DeletionTarget::parse_from_event(event) {
                self.add_target(target);
            }
        }
        if admitted.vanishes() {
            self.vanishing.push((*event.pubkey.as_bytes(), signed(event.created_at.0)));
        }
    }

    fn add_target(&mut self, target: DeletionTarget) {
        match target.target {
            DeletionTargetKind::EventId(id) => {
                self.stones.insert(*id.as_bytes());
                self.targets.insert(id);
            }
            DeletionTargetKind::Address(address) => {
                let digest = address.digest().0;
                self.stones.insert(digest);
                self.versions.push((digest, signed(target.request_created_at.0)));
                self.keys.insert(digest, address);
            }
        }
    }
}
