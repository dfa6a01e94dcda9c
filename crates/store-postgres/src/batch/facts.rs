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
use kukuri_postgres::SqlRow;
use kukuri_store::counters::Tally as _;

use super::{Batch, STATEMENT_ROWS, remains::remains};
use crate::{
    columns::{Column as _, Digest, ReadColumn as _, SqlQuery, array, bind_arrays, query},
    error::{Result, damaged},
    records::{self, select_rows, tag_digest},
    sharing::{read_requests, requests_query, stored},
    work::{Noted, Row, TopicNo},
    writer::Writer,
};

/// A request that names or affects more rows than this may exceed the usual statement timeout.
pub(crate) const SLOW_ROW_COUNT: usize = 10_000;

/// Requests whose tags are read in one statement.
const REQUESTS_AT_A_TIME: usize = 500;

/// A key's floor and effective version, by the digests of keys.
pub(crate) const KEYS: &str = "SELECT f.*, coalesce(r.event_id, a.event_id) AS current FROM cn_relay.floors f \
     LEFT JOIN cn_relay.replaceable_current r ON r.key = f.key \
     LEFT JOIN cn_relay.addressable_current a ON a.key = f.key WHERE f.key = ANY($1)";

const TOMBSTONES: &str = "SELECT * FROM cn_relay.deletion_tombstones WHERE target = ANY($1)";
const VANISH_MARKS: &str = "SELECT * FROM cn_relay.vanish_marks WHERE pubkey = ANY($1)";
const REMAINS: &str = "SELECT * FROM cn_relay.remains WHERE subject = ANY($1)";

fn keys_query(keys: &[Address]) -> SqlQuery<'static> {
    query(KEYS).bind(keys.iter().map(|key| key.digest().to_sql()).collect::<Vec<_>>())
}

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

/// A kind of fact that is read before any other.
#[derive(Clone, Copy)]
enum FirstFact {
    State,
    Tombstone,
    VanishMark,
    Key,
    Remains,
    Topic,
}

impl<'w> Batch<'w> {
    /// Begins a transaction and reads, in the same round trip, every fact about these events that needs no other.
    pub(crate) async fn begin_for(writer: &'w Writer, events: &[&Admitted]) -> Result<Self> {
        let named = Named::by(events);
        let ids = array(events.iter().map(|admitted| &admitted.event().id));
        let statements =
            [(FirstFact::State, query(records::STATES).bind(ids))].into_iter().chain(named.first_statements());
        let (kinds, statements): (Vec<_>, Vec<_>) = statements.unzip();
        let (mut batch, answers) = Batch::begin_with(writer, statements).await?;
        if batch.work.node.loading {
            return Err(writer.unfinished());
        }
        for (kind, rows) in kinds.into_iter().zip(answers) {
            batch.take_up(kind, &rows, &named.keys)?;
        }
        Ok(batch)
    }

    fn take_up(&mut self, kind: FirstFact, rows: &[SqlRow], keys: &[Address]) -> Result<()> {
        let work = &mut self.work;
        match kind {
            FirstFact::State => {
                for row in rows {
                    let (id, state) = records::state(row)?;
                    work.known.insert(id, state);
                }
            }
            FirstFact::Tombstone => {
                for row in rows {
                    let noted = records::tombstone(row)?;
                    let (target, requester) = (noted.what.target.target.clone(), noted.what.target.requester_pubkey);
                    work.tombstones.entry(target).or_default().load(requester, noted);
                }
            }
            FirstFact::VanishMark => {
                for row in rows {
                    let noted = records::vanish_mark(row)?;
                    work.marks.load(noted.what.pubkey, noted);
                }
            }
            FirstFact::Key => self.put_keys(rows, keys.iter().cloned())?,
            FirstFact::Remains => {
                for row in rows {
                    let Noted { what, .. } = remains(row)?;
                    work.remains.entry(what.subject).or_default().insert(what.topic.clone(), what);
                }
            }
            FirstFact::Topic => self.put_topics(rows)?,
        }
        Ok(())
    }

    /// Reads every other fact that may affect the decisions on these events, which are new.
    pub(crate) async fn read_facts(&mut self, events: &[&Admitted]) -> Result<()> {
        let named = Named::by(events);
        self.read_rows_of(named.targets).await?;
        self.read_hidden_versions(&named.versions).await?;
        self.read_vanishing(&named.vanishing).await?;
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
        let rows = query(AUTHORS).bind(array(authors)).bind(read).fetch_all(&self.session).await?;
        for row in rows {
            self.work.authors.insert(row.read("pubkey")?);
        }
        Ok(())
    }

    /// Reads every fact that may affect the decisions on these hints.
    pub(crate) async fn read_hint_facts(&mut self, topic: &TopicId, hints: &[FloorHint]) -> Result<()> {
        let ids: Vec<EventId> = hints.iter().map(|hint| hint.floor.id).collect();
        let items: Vec<EventId> = hints.iter().flat_map(|hint| [hint.request, hint.floor.id]).collect();
        let traced = query("SELECT id FROM cn_relay.traces WHERE topic_id = $1 AND id = ANY($2)");
        let requests = hints.iter().map(|hint| hint.request).collect();
        let statements = vec![
            query(records::STATES).bind(array(&ids)),
            query(TOMBSTONES).bind(array(&ids)),
            traced.bind(topic.to_sql()).bind(array(&items)),
            requests_query(&requests),
        ];
        let answers = self.session.pipeline(statements).await?;
        let [states, tombstones, traced, requests] = &answers[..] else {
            return Err(damaged("four statements have four answers"));
        };
        self.take_up(FirstFact::State, states, &[])?;
        self.take_up(FirstFact::Tombstone, tombstones, &[])?;
        for row in traced {
            self.work.traced.insert((topic.clone(), row.read("id")?));
        }
        let requests = read_requests(requests)?;
        self.work.requests = requests.into_iter().map(|(id, request)| (id, Arc::new(request))).collect();
        self.read_keys(hints.iter().map(|hint| hint.key.clone())).await?;
        self.read_rows_of(HashSet::new()).await?;
        self.read_references(&HashSet::new()).await
    }

    /// Reads every fact that a vanish mark without a request needs.
    pub(crate) async fn read_vanish_facts(&mut self, author: &PublicKey, until: Timestamp) -> Result<()> {
        let marks = query(VANISH_MARKS).bind(array([author])).fetch_all(&self.session).await?;
        self.take_up(FirstFact::VanishMark, &marks, &[])?;
        self.read_vanishing(&[(*author, until)]).await?;
        self.read_references(&HashSet::new()).await
    }

    /// Reads the floors and effective versions of these keys.
    pub(crate) async fn read_keys(&mut self, keys: impl IntoIterator<Item = Address>) -> Result<()> {
        let keys = self.unread_keys(keys);
        if keys.is_empty() {
            return Ok(());
        }
        let rows = keys_query(&keys).fetch_all(&self.session).await?;
        self.put_keys(&rows, keys)
    }

    fn unread_keys(&self, keys: impl IntoIterator<Item = Address>) -> Vec<Address> {
        keys.into_iter().filter(|key| self.work.keys.get(&key.digest()).is_none()).collect()
    }

    fn put_keys(&mut self, rows: &[SqlRow], keys: impl IntoIterator<Item = Address>) -> Result<()> {
        let mut keys: HashMap<AddressDigest, Address> = keys.into_iter().map(|key| (key.digest(), key)).collect();
        for row in rows {
            let digest = row.read("key")?;
            if let Some(address) = keys.remove(&digest) {
                self.work.keys.load(digest, records::key(row, address)?);
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
            self.read_rows(query(sql).bind(array(&ids))).await?;
        }
        Ok(())
    }

    /// Reads replaced versions of addresses that a deletion names, up to its time.
    async fn read_hidden_versions(&mut self, versions: &[(AddressDigest, Timestamp)]) -> Result<()> {
        if versions.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = bind_arrays!(query(VERSIONS), for (key, until) in versions; key, until);
        self.read_rows(query).await.map(drop)
    }

    /// Reads rows of vanishing authors, gift wraps for them, and hidden rows of either.
    async fn read_vanishing(&mut self, vanishing: &[(PublicKey, Timestamp)]) -> Result<()> {
        if vanishing.is_empty() {
            return Ok(());
        }
        self.raise_timeout().await?;
        let query = query(select_rows!(
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
            for (id, request) in stored(&self.session, &some.iter().copied().collect()).await? {
                if let Some(row) = self.work.rows.get_mut(&id) {
                    let named = request.tags.values("t").map(|topic| vec!["t".to_owned(), topic.to_owned()]);
                    row.outline.tags = named.collect();
                }
            }
        }
        Ok(())
    }

    /// Reads rows that are selected with [`select_rows`]. Returns their ids, in order.
    pub(crate) async fn read_rows(&mut self, query: SqlQuery<'_>) -> Result<Vec<EventId>> {
        let mut ids = Vec::new();
        let Self { session, work, .. } = self;
        // Row by row: while the statement runs, the session is not idle, however long the rows take to read.
        let mut rows = query.fetch(session).await?;
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
        let keys = self.unread_keys(effective.filter_map(|row| row.outline.address()));
        let numbers: HashSet<TopicNo> = self.work.rows.values().flat_map(|row| row.topics.iter().copied()).collect();
        let numbers: Vec<_> = numbers.into_iter().filter(|no| self.work.topics.get(no).is_none()).collect();
        let names: Vec<_> = topics.iter().filter(|topic| !self.work.topic_nos.contains_key(*topic)).collect();
        let has_topics = !names.is_empty() || !numbers.is_empty();
        let of_topics = query("SELECT * FROM cn_relay.topics WHERE topic_id = ANY($1) OR no = ANY($2)");
        let of_topics = has_topics.then(|| of_topics.bind(array(names)).bind(numbers));
        let of_keys = (!keys.is_empty()).then(|| keys_query(&keys));
        let has_keys = of_keys.is_some();
        let statements: Vec<_> = of_keys.into_iter().chain(of_topics).collect();
        if statements.is_empty() {
            return Ok(());
        }
        let mut answers = self.session.pipeline(statements).await?.into_iter();
        if has_keys {
            self.put_keys(&answers.next().unwrap_or_default(), keys)?;
        }
        self.put_topics(&answers.next().unwrap_or_default())
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
            let query = query("SELECT * FROM cn_relay.topics WHERE no = ANY($1)");
            let rows = query.bind(numbers).fetch_all(&self.session).await?;
            self.put_topics(&rows)?;
        }
        Ok(())
    }

    fn put_topics(&mut self, rows: &[SqlRow]) -> Result<()> {
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
    tombstones: Vec<Digest>,
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
    fn by(events: &[&Admitted]) -> Self {
        let mut named = Self::default();
        events.iter().for_each(|admitted| named.add(admitted));
        named
    }

    /// Statements for the facts that need no other.
    fn first_statements(&self) -> Vec<(FirstFact, SqlQuery<'_>)> {
        let mut statements = Vec::new();
        if !self.tombstones.is_empty() {
            statements.push((FirstFact::Tombstone, query(TOMBSTONES).bind(&self.tombstones)));
        }
        if !self.owners.is_empty() {
            statements.push((FirstFact::VanishMark, query(VANISH_MARKS).bind(array(&self.owners))));
        }
        if !self.keys.is_empty() {
            statements.push((FirstFact::Key, keys_query(&self.keys)));
        }
        if !self.remains.is_empty() {
            let subjects: Vec<_> = self.remains.iter().map(|subject| subject.to_sql()).collect();
            statements.push((FirstFact::Remains, query(REMAINS).bind(subjects)));
        }
        if !self.topics.is_empty() {
            let topics = query("SELECT * FROM cn_relay.topics WHERE topic_id = ANY($1)");
            statements.push((FirstFact::Topic, topics.bind(array(&self.topics))));
        }
        statements
    }

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
            self.tombstones.push(address.digest().to_sql());
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
                self.tombstones.push(address.digest().to_sql());
                self.versions.push((address.digest(), target.request_created_at));
                self.remains.push(Subject::Key(address.digest()));
                self.keys.push(address);
            }
        }
    }
}
