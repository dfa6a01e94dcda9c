//! Facts for the decisions on a batch: one statement per kind of fact, independent of the number of events.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures_util::TryStreamExt;
use kukuri_domain::{
    Address, AddressDigest, Admitted, EventId, Kind, Letter, PublicKey, Timestamp, TopicId,
    capacity::{Permanent, Usage},
    deletion::{DeletionTarget, DeletionTargetKind},
    remains::Subject,
    sharing::FloorHint,
};
use kukuri_store::counters::Tally as _;
use sqlx::{
    Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{Batch, STATEMENT_ROWS};
use crate::{
    columns::{Column as _, ReadColumn as _, array, bind_arrays},
    error::Result,
    records::{self, select_rows, tag_digest},
    sharing::stored,
    work::{Row, TopicNo},
};

/// A request that names or affects more rows than this may exceed the usual statement timeout.
pub(crate) const SLOW_ROW_COUNT: usize = 10_000;

/// Requests whose tags are read in one statement.
const REQUESTS_AT_A_TIME: usize = 500;

/// A key's floor and effective version, by the digests of keys.
pub(crate) const KEYS: &str = "SELECT f.*, coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
     LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
     LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.key = ANY($1)";

/// The authors of $1 that have an effective event besides those of $2. By its order the planner takes the index by author: one
/// seek per author and partition, also if it expects many rows of each author.
pub(crate) const AUTHORS: &str = "SELECT n.pubkey FROM unnest($1::bytea[]) AS n (pubkey) CROSS JOIN LATERAL ( \
     SELECT 1 FROM cn_relay.events e WHERE e.effective AND e.pubkey = n.pubkey AND e.id <> ALL($2) \
     ORDER BY e.created_at DESC, e.id LIMIT 1) e";

/// Hidden versions of the keys $1 up to the times $2, except deleted ones, which the index does not hold: a request that comes
/// again reads none of them.
pub(crate) const VERSIONS: &str = select_rows!(
    "FROM unnest($1::bytea[], $2::bigint[]) AS n (key, until) \
     JOIN cn_relay.events e ON e.key = n.key AND e.created_at <= n.until \
     JOIN cn_relay.event_dedupe d ON d.event_id = e.id \
     WHERE NOT e.effective AND e.key IS NOT NULL AND NOT e.deleted"
);

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
        self.read_remains(&named.remains).await?;
        self.read_references(&named.topics).await?;
        self.read_authors(&named.authors, named.permanent, &named.topics).await
    }

    /// Reads which of these authors of requests and versions have an effective event besides the rows that were read: only
    /// those can this transaction retire. Not needed while the share of permanent rows has room for all of them (P-6).
    async fn read_authors(
        &mut self,
        authors: &HashSet<PublicKey>,
        permanent: Permanent,
        topics: &HashSet<TopicId>,
    ) -> Result<()> {
        if authors.is_empty() || !self.work.would_fill_share(topics, permanent)? {
            return Ok(());
        }
        let is_of_author = |row: &&Row| row.is_effective() && authors.contains(&row.outline.pubkey);
        let read = array(self.work.rows.values().filter(is_of_author).map(|row| &row.outline.id));
        let rows = sqlx::query(AUTHORS).bind(array(authors)).bind(read).fetch_all(&mut *self.txn).await?;
        for row in rows {
            self.work.authors.insert(row.read("pubkey")?);
        }
        Ok(())
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

    /// Reads replaced versions of addresses that a deletion names, up to its time.
    async fn read_hidden_versions(&mut self, versions: &[(AddressDigest, Timestamp)]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = bind_arrays!(sqlx::query(VERSIONS), for (key, until) in versions; key, until);
        self.read_rows(query).await.map(drop)
    }

    /// Reads rows of vanishing authors, gift wraps for them, and hidden rows of either.
    async fn read_vanishing(&mut self, vanishing: &[(PublicKey, Timestamp)]) -> Result<()> {
        if vanishing.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = sqlx::query(select_rows!(
            "FROM unnest($1::bytea[], $2::bigint[], $4::bytea[]) AS n (author, until, recipient) CROSS JOIN LATERAL ( \
                 SELECT * FROM cn_relay.events WHERE effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE NOT effective AND pubkey = n.author AND created_at <= n.until \
                 UNION ALL \
                 SELECT w.* FROM cn_relay.event_tags t JOIN cn_relay.events w \
                     ON w.class = t.class AND w.ingested_at = t.ingested_at AND w.no = t.no \
                     WHERE t.tag = n.recipient AND t.kind = $3 AND t.pubkey <> n.author AND t.created_at <= n.until \
                 UNION ALL \
                 SELECT * FROM cn_relay.events WHERE parties IS NOT NULL AND NOT effective \
                     AND parties @> ARRAY[n.author] AND kind = $3 AND pubkey <> n.author AND created_at <= n.until \
             ) e JOIN cn_relay.event_dedupe d ON d.event_id = e.id"
        ));
        let query = bind_arrays!(query, for (author, until) in vanishing; author, until).bind(Kind::GIFT_WRAP.to_sql());
        let recipients: Vec<_> =
            vanishing.iter().map(|(author, _)| tag_digest(Letter::P, &author.to_string())).collect();
        let mut ids = self.read_rows(query.bind(recipients)).await?;
        ids.retain(|id| self.work.row(id).is_some_and(|row| row.outline.kind.is_request()));
        self.read_named_topics(&ids).await?;
        self.read_topics_of_traces(&ids).await
    }

    /// Reads the topics that these rows name, which are requests: outlines do not have them.
    async fn read_named_topics(&mut self, requests: &[EventId]) -> Result<()> {
        for some in requests.chunks(REQUESTS_AT_A_TIME) {
            for (id, request) in stored(&mut self.txn, &some.iter().copied().collect()).await? {
                if let Some(row) = self.work.rows.get_mut(&id) {
                    let named = request.tags.values("t").map(|topic| vec!["t".to_owned(), topic.to_owned()]);
                    row.outline.tags = named.collect();
                }
            }
        }
        Ok(())
    }

    /// Reads rows that are selected with [`select_rows`]. Returns their ids, in order.
    pub(crate) async fn read_rows(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<EventId>> {
        let mut ids = Vec::new();
        let Self { txn, work, .. } = self;
        // Row by row: while the statement runs, the session is not idle, however long the rows take to read.
        let mut rows = query.fetch(&mut **txn);
        while let Some(row) = rows.try_next().await? {
            let row = records::row(&row)?;
            ids.push(row.outline.id);
            work.put_row(row);
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

    /// Reads the topics that have a retention of their own.
    pub(crate) async fn read_topics_with_retention(&mut self) -> Result<()> {
        let topics = self.work.subscriptions.with_retention().map(|subscription| subscription.topic.clone()).collect();
        self.read_references(&topics).await
    }

    /// Reads the topics that have a capacity of their own: only these can have a stage.
    pub(crate) async fn read_topics_with_capacity(&mut self) -> Result<()> {
        let topics = self.work.subscriptions.with_capacity().cloned().collect();
        self.read_references(&topics).await
    }

    /// Reads topics by their numbers.
    pub(crate) async fn read_topics(&mut self, numbers: &[TopicNo]) -> Result<()> {
        for numbers in numbers.chunks(STATEMENT_ROWS) {
            let query = sqlx::query("SELECT * FROM cn_relay.topics WHERE no = ANY($1)");
            let rows = query.bind(numbers).fetch_all(&mut *self.txn).await?;
            self.put_topics(&rows)?;
        }
        Ok(())
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
    /// Targets of deletions, and vanishing authors, of which only remains may be left.
    remains: Vec<Subject>,
    topics: HashSet<TopicId>,
    /// Authors of requests and of versions.
    authors: HashSet<PublicKey>,
    /// Those requests and versions.
    permanent: Permanent,
}

impl Named {
    fn add(&mut self, admitted: &Admitted) {
        let event = admitted.event();
        self.tombstones.push(event.id.to_sql());
        self.owners.extend(event.owners());
        self.topics.extend(admitted.topics().iter().cloned());
        // A request that names no known topic is bound to it (T-9).
        self.topics.extend(event.kind.is_request().then(TopicId::global));
        if event.kind.is_request() || event.kind.is_keyed() {
            self.authors.insert(event.pubkey);
            let usage = Usage { events: 1, bytes: admitted.json().len() as u64 };
            let is_request = event.kind.is_request();
            self.permanent = self.permanent.with(Permanent {
                requests: if is_request { usage } else { Usage::default() },
                current: if is_request { Usage::default() } else { usage },
            });
        }
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
            self.remains.push(Subject::Author(event.pubkey));
        }
    }

    fn add_target(&mut self, target: DeletionTarget) {
        match target.target {
            DeletionTargetKind::EventId(id) => {
                self.tombstones.push(id.to_sql());
                self.remains.push(Subject::Event(id));
                self.targets.insert(id);
            }
            DeletionTargetKind::Address(address) => {
                self.tombstones.push(address.digest().0);
                self.versions.push((address.digest(), target.request_created_at));
                self.remains.push(Subject::Key(address.digest()));
                self.keys.push(address);
            }
        }
    }
}
