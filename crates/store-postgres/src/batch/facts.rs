//! Facts for the decisions on a batch: one statement per kind of fact, independent of the number of events.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kukuri_domain::{
    Address, AddressDigest, Admitted, EventId, Kind, PublicKey, Reason, Timestamp, TopicId,
    deletion::{DeletionTarget, DeletionTargetKind},
    sharing::FloorHint,
};
use sqlx::{
    Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::Batch;
use crate::{
    columns::{Column as _, ReadColumn as _, array, bind_arrays},
    error::Result,
    records::{self, select_rows},
    sharing::stored,
    work::TopicNo,
};

/// A request that names or affects more rows than this may exceed the usual statement timeout.
const SLOW_ROW_COUNT: usize = 10_000;

/// A key's floor and effective version, by the digests of keys.
pub(crate) const KEYS: &str = "SELECT f.*, coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
     LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
     LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.key = ANY($1)";

impl Batch<'_> {
    /// Reads the states of these ids.
    pub(crate) async fn read_ids(&mut self, ids: &[EventId]) -> Result<()> {
        for row in self.fetch(records::STATES, array(ids)).await? {
            let (id, state) = records::state(&row)?;
            self.work.known.insert(id, state);
        }
        Ok(())
    }

    /// Reads every fact that may affect the decisions on these events.
    pub(crate) async fn read_facts(&mut self, events: &[&Admitted]) -> Result<()> {
        let mut named = Named::default();
        events.iter().for_each(|admitted| named.add(admitted));
        self.read_tombstones(named.tombstones).await?;
        for row in
            self.fetch("SELECT * FROM cn_relay.vanish_marks WHERE pubkey = ANY($1)", array(&named.owners)).await?
        {
            let noted = records::vanish_mark(&row)?;
            self.work.marks.load(noted.what.pubkey, noted);
        }
        self.read_keys(named.keys).await?;
        self.read_rows_of(named.targets).await?;
        self.read_hidden_versions(&named.versions).await?;
        self.read_vanishing(&named.vanishing).await?;
        self.read_references(&named.topics).await
    }

    /// Reads every fact that may affect the decisions on these hints.
    pub(crate) async fn read_hint_facts(&mut self, topic: &TopicId, hints: &[FloorHint]) -> Result<()> {
        let ids: Vec<EventId> = hints.iter().map(|hint| hint.floor.id).collect();
        self.read_ids(&ids).await?;
        self.read_tombstones(array(&ids)).await?;
        self.read_keys(hints.iter().map(|hint| hint.key.clone())).await?;
        self.read_rows_of(HashSet::new()).await?;
        self.read_references(&HashSet::new()).await?;
        let requests = stored(&mut self.txn, &hints.iter().map(|hint| hint.request).collect()).await?;
        self.work.requests = requests.into_iter().map(|(id, request)| (id, Arc::new(request))).collect();
        let items: Vec<EventId> = hints.iter().flat_map(|hint| [hint.request, hint.floor.id]).collect();
        let rows = sqlx::query("SELECT id FROM cn_relay.traces WHERE topic_id = $1 AND id = ANY($2)");
        for row in rows.bind(topic.to_sql()).bind(array(&items)).fetch_all(&mut *self.txn).await? {
            self.work.traced.insert((topic.clone(), row.read("id")?));
        }
        Ok(())
    }

    /// The rows that a statement selects by these keys.
    async fn fetch(&mut self, sql: &'static str, keys: Vec<[u8; 32]>) -> Result<Vec<PgRow>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        Ok(sqlx::query(sql).bind(keys).fetch_all(&mut *self.txn).await?)
    }

    async fn read_tombstones(&mut self, targets: Vec<[u8; 32]>) -> Result<()> {
        for row in self.fetch("SELECT * FROM cn_relay.deletion_tombstones WHERE target = ANY($1)", targets).await? {
            let noted = records::tombstone(&row)?;
            let (target, requester) = (noted.what.target.target.clone(), noted.what.target.requester_pubkey);
            self.work.tombstones.entry(target).or_default().load(requester, noted);
        }
        Ok(())
    }

    /// Reads the floors and effective versions of these keys.
    pub(crate) async fn read_keys(&mut self, keys: impl IntoIterator<Item = Address>) -> Result<()> {
        let keys = keys.into_iter().map(|address| (address.digest(), address));
        let mut keys: HashMap<AddressDigest, Address> =
            keys.filter(|(digest, _)| self.work.keys.get(digest).is_none()).collect();
        for row in self.fetch(KEYS, array(keys.keys())).await? {
            let digest = row.read("key")?;
            if let Some(address) = keys.remove(&digest) {
                self.work.keys.load(digest, records::key(&row, address)?);
            }
        }
        Ok(())
    }

    /// Reads the rows of these ids, and the effective versions of the keys that were read.
    async fn read_rows_of(&mut self, mut ids: HashSet<EventId>) -> Result<()> {
        ids.extend(self.work.keys.values().filter_map(|key| key.current));
        if ids.len() > SLOW_ROW_COUNT {
            self.raise_timeout().await?;
        }
        let sql = select_rows!(
            "FROM cn_relay.event_dedupe d JOIN cn_relay.events e \
             ON e.class = d.class AND e.ingested_at = d.ingested_at AND e.no = d.no WHERE d.event_id = ANY($1)"
        );
        if !ids.is_empty() {
            self.read_rows(sqlx::query(sql).bind(array(&ids))).await?;
        }
        Ok(())
    }

    /// Reads replaced versions of addresses that a deletion names, up to its time. Versions already deleted are
    /// skipped.
    async fn read_hidden_versions(&mut self, versions: &[(AddressDigest, Timestamp)]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = sqlx::query(select_rows!(
            "FROM unnest($1::bytea[], $2::bigint[]) AS n (key, until) \
             JOIN cn_relay.events e ON e.key = n.key AND e.created_at <= n.until \
             JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
             WHERE NOT e.effective AND e.key IS NOT NULL AND d.reason <> $3"
        ));
        let query = bind_arrays!(query, for (key, until) in versions; key, until).bind(Reason::Nip09.to_sql());
        self.read_rows(query).await.map(drop)
    }

    /// Reads rows of vanishing authors, gift wraps for them, and hidden rows of either.
    async fn read_vanishing(&mut self, vanishing: &[(PublicKey, Timestamp)]) -> Result<()> {
        if vanishing.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = sqlx::query(select_rows!(
            "FROM unnest($1::bytea[], $2::bigint[]) AS n (author, until) CROSS JOIN LATERAL ( \
                 SELECT * FROM cn_relay.events WHERE effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE NOT effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE parties IS NOT NULL AND parties @> ARRAY[n.author] \
                     AND kind = $3 AND pubkey <> n.author AND created_at <= n.until \
             ) e JOIN cn_relay.event_dedupe d ON d.event_id = e.id"
        ));
        let query = bind_arrays!(query, for (author, until) in vanishing; author, until).bind(Kind::GIFT_WRAP.to_sql());
        self.read_rows(query).await.map(drop)
    }

    /// Reads rows that are selected with [`select_rows`]. Returns their ids, in order.
    pub(crate) async fn read_rows(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<EventId>> {
        let mut ids = Vec::new();
        for row in query.fetch_all(&mut *self.txn).await? {
            let row = records::row(&row)?;
            ids.push(row.outline.id);
            self.work.put_row(row);
        }
        Ok(ids)
    }

    /// Reads these topics, the topics of the loaded rows, and the keys whose effective version they are.
    pub(crate) async fn read_references(&mut self, topics: &HashSet<TopicId>) -> Result<()> {
        let effective = self.work.rows.values().filter(|row| row.is_effective());
        let keys: Vec<Address> = effective.filter_map(|row| row.outline.address()).collect();
        self.read_keys(keys).await?;
        let numbers: HashSet<TopicNo> = self.work.rows.values().flat_map(|row| row.topics.iter().copied()).collect();
        let numbers: Vec<_> = numbers.into_iter().filter(|no| self.work.topics.get(no).is_none()).collect();
        if topics.is_empty() && numbers.is_empty() {
            return Ok(());
        }
        let query = sqlx::query("SELECT * FROM cn_relay.topics WHERE topic_id = ANY($1) OR no = ANY($2)");
        let rows = query.bind(array(topics)).bind(numbers).fetch_all(&mut *self.txn).await?;
        self.put_topics(&rows)
    }

    pub(crate) async fn read_all_topics(&mut self) -> Result<()> {
        let rows = sqlx::query("SELECT * FROM cn_relay.topics").fetch_all(&mut *self.txn).await?;
        self.put_topics(&rows)
    }

    fn put_topics(&mut self, rows: &[PgRow]) -> Result<()> {
        for row in rows {
            let topic = records::topic(row)?;
            self.work.topic_nos.insert(topic.id.clone(), topic.no);
            self.work.topics.load(topic.no, topic);
        }
        Ok(())
    }
}

/// Ids, keys, authors and topics that the events of a batch refer to.
#[derive(Default)]
struct Named {
    /// Possible targets of tombstones: ids and digests of addresses.
    tombstones: Vec<[u8; 32]>,
    owners: HashSet<PublicKey>,
    keys: Vec<Address>,
    /// Rows that deletions name by id.
    targets: HashSet<EventId>,
    /// Addresses that deletions name, each with the deletion's time.
    versions: Vec<(AddressDigest, Timestamp)>,
    /// Vanishing authors, each with the time of the vanish request.
    vanishing: Vec<(PublicKey, Timestamp)>,
    topics: HashSet<TopicId>,
}

impl Named {
    fn add(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        self.tombstones.push(event.id.to_sql());
        self.owners.extend(event.owners());
        self.topics.extend(admitted.topics().iter().cloned());
        if let Some(address) = event.address() {
            self.tombstones.push(address.digest().0);
            self.keys.push(address);
        }
        if event.kind == Kind::DELETION {
            for target in DeletionTarget::parse_from_event(event) {
                self.add_target(target);
            }
        }
        if admitted.vanishes() {
            self.vanishing.push((event.pubkey, event.created_at));
        }
    }

    fn add_target(&mut self, target: DeletionTarget) {
        match target.target {
            DeletionTargetKind::EventId(id) => {
                self.tombstones.push(id.to_sql());
                self.targets.insert(id);
            }
            DeletionTargetKind::Address(address) => {
                self.tombstones.push(address.digest().0);
                self.versions.push((address.digest(), target.request_created_at));
                self.keys.push(address);
            }
        }
    }
}
