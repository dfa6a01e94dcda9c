//! SQL for a filter: one statement per shape of filter, independent of its values.
//!
//! A statement scans ranges of one index, newest first, each up to the limit, and merges them. Conditions that an index
//! row can't decide are checked on the event's row.

use kukuri_domain::{Address, Filter, KindClass, Letter, Viewer, topic::claims_to_be_topic};
use kukuri_store::Query;

use crate::{
    columns::{Column as _, Digest, SqlQuery, TagDigest, array, query},
    records::tag_digest,
};

/// Most ranges made by combining two lists of a filter.
const MAX_RANGES: usize = 1_024;

/// First row of an answer with events: the head of the outbox in the same snapshot.
const HEAD: &str = "SELECT head, NULL::bigint AS created_at, NULL::bytea AS id, NULL::bytea AS json \
     FROM cn_relay.node UNION ALL";

/// A bind parameter.
pub(crate) enum Bind {
    Number(Option<i64>),
    Numbers(Vec<i32>),
    Ids(Vec<Digest>),
    Digests(Vec<TagDigest>),
    Texts(Vec<String>),
}

/// The columns selected of matching events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// First a row with the head of the outbox, then the events of that snapshot, one by one in answer order.
    Event,
    /// `created_at`, id and author.
    Key,
}

/// A statement and its bind parameters.
pub(crate) struct Plan {
    pub(crate) sql: String,
    pub(crate) binds: Vec<Bind>,
}

/// A statement under construction.
struct Planner<'q> {
    query: &'q Query,
    filter: &'q Filter,
    binds: Vec<Bind>,
    /// Rows that are looked up one by one are read once, with their JSON.
    has_json: bool,
}

/// The index that a scan uses; it determines which columns are at hand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Events,
    Topics,
    Tags,
}

impl Index {
    const fn table(self) -> &'static str {
        match self {
            Self::Events => "cn_relay.events",
            Self::Topics => "cn_relay.event_topics",
            Self::Tags => "cn_relay.event_tags",
        }
    }
}

/// Conditions of a filter that the scanned range already guarantees.
#[derive(Clone, Copy, Default)]
struct Met {
    authors: bool,
    kinds: bool,
    tag: Option<Letter>,
}

impl Plan {
    /// The statement for a filter of a query. Returns at most `limit` rows.
    pub(crate) fn of(query: &Query, filter: &Filter, limit: Option<u64>, part: Part) -> Self {
        let mut planner = Planner::new(query, filter, limit);
        let found = planner.found();
        let sql = match part {
            Part::Key => format!("SELECT created_at, id, pubkey FROM ({found}) found"),
            Part::Event if planner.has_json => {
                format!("{HEAD} (SELECT NULL, created_at, id, json FROM ({found}) found)")
            }
            Part::Event => format!(
                "{HEAD} (SELECT NULL, f.created_at, f.id, e.json FROM ({found}) f JOIN cn_relay.events e \
                 ON e.class = f.class AND e.ingested_at = f.ingested_at AND e.no = f.no ORDER BY f.created_at DESC, f.id)"
            ),
        };
        Self { sql, binds: planner.binds }
    }

    /// The statement that counts the events that any of the filters match, each once; at most `limit` of each filter. It selects
    /// `register`, `events` and `lowest`: one row, or with the offset of a sketch one row for each register, with the lowest
    /// rest of a key (NIP-45).
    pub(crate) fn count(query: &Query, filters: &[&Filter], limit: Option<u64>, offset: Option<usize>) -> Option<Self> {
        let (first, others) = filters.split_first()?;
        let mut planner = Planner::new(query, first, limit);
        let mut matching = format!("SELECT a.id, a.pubkey FROM ({}) a", planner.found());
        for filter in others {
            (planner.filter, planner.has_json) = (filter, false);
            matching += &format!(" UNION SELECT a.id, a.pubkey FROM ({}) a", planner.found());
        }
        let sql = match offset {
            None => format!(
                "SELECT NULL::integer AS register, count(*) AS events, NULL::text AS lowest FROM ({matching}) m"
            ),
            Some(offset) => {
                let offset = planner.bind(Bind::Number(Some(offset as i64)));
                format!(
                    "SELECT get_byte(m.pubkey, {offset}::bigint::integer) AS register, count(*) AS events, \
                     min(encode(substring(m.pubkey FROM {offset}::bigint::integer + 2 FOR 8), 'hex') COLLATE \"C\") AS lowest \
                     FROM ({matching}) m GROUP BY 1"
                )
            }
        };
        Some(Self { sql, binds: planner.binds })
    }

    /// The query with its bind parameters.
    pub(crate) fn query(self) -> SqlQuery<'static> {
        let query = query(self.sql);
        self.binds.into_iter().fold(query, |query, bind| match bind {
            Bind::Number(number) => query.bind(number),
            Bind::Numbers(numbers) => query.bind(numbers),
            Bind::Ids(ids) => query.bind(ids),
            Bind::Digests(digests) => query.bind(digests),
            Bind::Texts(texts) => query.bind(texts),
        })
    }
}

impl<'q> Planner<'q> {
    fn new(query: &'q Query, filter: &'q Filter, limit: Option<u64>) -> Self {
        // $1 is the limit in every statement.
        Self { query, filter, binds: vec![Bind::Number(limit.to_sql())], has_json: false }
    }

    /// The events that the filter matches, in answer order.
    fn found(&mut self) -> String {
        let walks = self.walks();
        let json = if self.has_json { ", f.json" } else { "" };
        format!(
            "SELECT DISTINCT ON (f.created_at, f.id) f.created_at, f.id, f.class, f.ingested_at, f.no, f.pubkey{json} \
             FROM ({walks}) f ORDER BY f.created_at DESC, f.id LIMIT $1"
        )
    }

    /// Adds a bind parameter and returns its placeholder.
    fn bind(&mut self, bind: Bind) -> String {
        self.binds.push(bind);
        format!("${}", self.binds.len())
    }

    /// Picks the most selective index for the filter.
    fn walks(&mut self) -> String {
        let filter = self.filter;
        if let Some(ids) = filter.ids() {
            let ids = self.bind(Bind::Ids(array(ids)));
            return self.look_up(&format!("SELECT * FROM cn_relay.event_dedupe WHERE event_id = ANY({ids})"));
        }
        if let Some(keys) = keys_of(filter) {
            let keys = self.bind(Bind::Ids(keys));
            let places = format!(
                "SELECT d.* FROM cn_relay.replaceable_current c JOIN cn_relay.event_dedupe d ON d.event_id = c.event_id \
                 WHERE c.key = ANY({keys})"
            );
            return self.look_up(&places);
        }
        let topics = filter.tag_values(Letter::T).map(|values| TagValues::of(Letter::T, values, filter));
        // Of several tags other than `t`, the one with the fewest values is the most selective.
        let other_tags = filter.tags().iter().filter(|(letter, _)| *letter != Letter::T);
        if let Some((letter, values)) = other_tags.min_by_key(|(_, values)| values.len()) {
            return self.by_tag(*letter, values);
        }
        match (filter.authors(), &topics) {
            (Some(authors), Some(topics)) if topics.others.is_empty() && fits(authors, &topics.topics) => {
                let authors = self.bind(Bind::Ids(array(authors)));
                let source = format!("{} CROSS JOIN unnest({authors}::bytea[]) AS y (pubkey)", self.topics(topics));
                let met = Met { authors: true, tag: Some(Letter::T), ..Met::default() };
                let bound = self.walk(&source, Index::Topics, "i.topic = x.no AND i.pubkey = y.pubkey", met);
                [Some(bound), self.by_request(topics)].into_iter().flatten().collect::<Vec<_>>().join(" UNION ALL ")
            }
            (Some(authors), _) => {
                let authors = self.bind(Bind::Ids(array(authors)));
                let source = format!("unnest({authors}::bytea[]) AS x (pubkey)");
                let met = Met { authors: true, ..Met::default() };
                self.walk(&source, Index::Events, "i.effective AND i.pubkey = x.pubkey", met)
            }
            (None, Some(topics)) => {
                let mut walks = Vec::new();
                if !topics.topics.is_empty() {
                    walks.push(self.by_topic(topics));
                }
                if !topics.others.is_empty() {
                    walks.push(self.by_tag(Letter::T, &topics.others));
                }
                walks.extend(self.by_request(topics));
                walks.join(" UNION ALL ")
            }
            (None, None) => match filter.kinds() {
                Some(kinds) => {
                    let kinds = self.bind(Bind::Numbers(array(kinds)));
                    let source = format!("unnest({kinds}::integer[]) AS x (kind)");
                    let met = Met { kinds: true, ..Met::default() };
                    self.walk(&source, Index::Events, "i.effective AND i.kind = x.kind", met)
                }
                None => self.walk("(VALUES (1)) AS x (one)", Index::Events, "i.effective", Met::default()),
            },
        }
    }

    fn by_topic(&mut self, topics: &TagValues) -> String {
        let (source, met) = (self.topics(topics), Met { tag: Some(Letter::T), ..Met::default() });
        match self.filter.kinds().filter(|kinds| fits(kinds, &topics.topics)) {
            Some(kinds) => {
                let kinds = self.bind(Bind::Numbers(array(kinds)));
                let source = format!("{source} CROSS JOIN unnest({kinds}::integer[]) AS y (kind)");
                self.walk(&source, Index::Topics, "i.topic = x.no AND i.kind = y.kind", Met { kinds: true, ..met })
            }
            None => self.walk(&source, Index::Topics, "i.topic = x.no", met),
        }
    }

    fn by_tag(&mut self, letter: Letter, values: &[impl AsRef<str>]) -> String {
        let source = format!("unnest({}::bytea[]) AS x (tag)", self.digests(letter, values));
        self.walk(&source, Index::Tags, "i.tag = x.tag", Met { tag: Some(letter), ..Met::default() })
    }

    /// Requests that name these topics and are not bound to them (T-9).
    fn by_request(&mut self, topics: &TagValues) -> Option<String> {
        if topics.requested.is_empty() {
            return None;
        }
        let source = format!("unnest({}::bytea[]) AS x (tag)", self.digests(Letter::T, &topics.requested));
        let range = "i.tag = x.tag AND i.class = 'requests'";
        Some(self.walk(&source, Index::Tags, range, Met { tag: Some(Letter::T), ..Met::default() }))
    }

    fn topics(&mut self, topics: &TagValues) -> String {
        format!("(SELECT no FROM cn_relay.topics WHERE topic_id = ANY({})) AS x", self.names(topics))
    }

    /// Binds the names of topics.
    fn names(&mut self, topics: &TagValues) -> String {
        self.bind(Bind::Texts(topics.topics.iter().map(ToString::to_string).collect()))
    }

    /// Binds the digests of tags.
    fn digests(&mut self, letter: Letter, values: &[impl AsRef<str>]) -> String {
        self.bind(Bind::Digests(values.iter().map(|value| tag_digest(letter, value.as_ref())).collect()))
    }

    /// Scans one range for each row of `source`, newest first, up to the limit.
    fn walk(&mut self, source: &str, index: Index, range: &str, met: Met) -> String {
        let conditions = self.conditions(index, met);
        format!(
            "SELECT w.* FROM {source} CROSS JOIN LATERAL (SELECT i.created_at, i.id, i.class, i.ingested_at, i.no, \
             i.pubkey FROM {} i WHERE {range}{conditions} ORDER BY i.created_at DESC, i.id LIMIT $1) w",
            index.table()
        )
    }

    /// Looks up known rows one by one. `OFFSET 0` keeps the planner from rewriting the subquery.
    fn look_up(&mut self, places: &str) -> String {
        let conditions = self.conditions(Index::Events, Met::default());
        self.has_json = true;
        format!(
            "SELECT w.* FROM ({places} OFFSET 0) p CROSS JOIN LATERAL (SELECT i.created_at, i.id, i.class, \
             i.ingested_at, i.no, i.pubkey, i.json FROM cn_relay.events i WHERE i.class = p.class \
             AND i.ingested_at = p.ingested_at AND i.no = p.no AND i.effective{conditions} OFFSET 0) w"
        )
    }

    /// Remaining conditions on an index row and on its event.
    fn conditions(&mut self, index: Index, met: Met) -> String {
        let filter = self.filter;
        let mut conditions = String::new();
        let window = filter.window();
        if window.start().0 > 0 {
            let since = self.bind(Bind::Number(Some(window.start().to_sql())));
            conditions += &format!(" AND i.created_at >= {since}");
        }
        if window.end().0 < i64::MAX as u64 {
            let until = self.bind(Bind::Number(Some(window.end().to_sql())));
            conditions += &format!(" AND i.created_at <= {until}");
        }
        if let Some(kinds) = filter.kinds().filter(|_| !met.kinds) {
            let kinds = self.bind(Bind::Numbers(array(kinds)));
            conditions += &format!(" AND i.kind = ANY({kinds})");
        }
        if let Some(authors) = filter.authors().filter(|_| !met.authors) {
            let authors = self.bind(Bind::Ids(array(authors)));
            conditions += &format!(" AND i.pubkey = ANY({authors})");
        }
        let now = self.bind(Bind::Number(Some(self.query.now.seconds().to_sql())));
        conditions += &format!(" AND (i.expires_at IS NULL OR i.expires_at > {now})");

        let on_tags = self.conditions_on_tags(met);
        if !on_tags.is_empty() {
            conditions += &format!(" AND {}", on_event(index, &on_tags.join(" AND ")));
        }
        // Only its parties see a private event (E-10).
        let public = if index == Index::Events { "i.parties IS NULL" } else { "NOT i.private" };
        match &self.query.viewer {
            Viewer::Node => {}
            viewer if viewer.is_unauthenticated() => conditions += &format!(" AND {public}"),
            Viewer::Client(keys) => {
                let keys = self.bind(Bind::Ids(array(keys.iter())));
                let is_party = on_event(index, &format!("parties && {keys}::bytea[]"));
                conditions += &format!(" AND ({public} OR {is_party})");
            }
        }
        conditions
    }

    /// Conditions for tags and topics that the scanned range does not guarantee, by columns that only events have.
    fn conditions_on_tags(&mut self, met: Met) -> Vec<String> {
        let mut conditions = Vec::new();
        for (letter, values) in self.filter.tags().iter().filter(|(letter, _)| Some(*letter) != met.tag) {
            let values = TagValues::of(*letter, values, self.filter);
            let mut any = Vec::new();
            if !values.topics.is_empty() {
                let names = self.names(&values);
                any.push(format!("topics && ARRAY(SELECT no FROM cn_relay.topics WHERE topic_id = ANY({names}))"));
            }
            let tags: Vec<&str> = values.others.iter().chain(&values.requested).copied().collect();
            if !tags.is_empty() {
                any.push(format!("tags && {}::bytea[]", self.digests(*letter, &tags)));
            }
            conditions.push(format!("({})", any.join(" OR ")));
        }
        conditions
    }
}

/// A condition on the event of an index row.
fn on_event(index: Index, condition: &str) -> String {
    match index {
        Index::Events => format!("({condition})"),
        Index::Topics | Index::Tags => format!(
            "EXISTS (SELECT 1 FROM cn_relay.events e WHERE e.class = i.class AND e.ingested_at = i.ingested_at \
             AND e.no = i.no AND {condition})"
        ),
    }
}

/// The values of a tag in a filter: topics, and hashtags or values of other tags.
struct TagValues<'q> {
    topics: Vec<&'q str>,
    others: Vec<&'q str>,
    /// The topics, if the filter may match requests: these may name a topic without being bound to it (T-9).
    requested: Vec<&'q str>,
}

impl<'q> TagValues<'q> {
    fn of(letter: Letter, values: &'q [Box<str>], filter: &Filter) -> Self {
        let is_topic = |value: &&str| letter == Letter::T && claims_to_be_topic(value);
        let (topics, others): (Vec<&str>, _) = values.iter().map(|value| &**value).partition(is_topic);
        let has_requests = filter.kinds().is_none_or(|kinds| kinds.iter().any(|kind| kind.is_request()));
        let requested = if has_requests { topics.clone() } else { Vec::new() };
        Self { topics, others, requested }
    }
}

/// Whether the product of two lists is within [`MAX_RANGES`].
fn fits<A, B>(some: &[A], others: &[B]) -> bool {
    some.len().saturating_mul(others.len()) <= MAX_RANGES
}

/// Key digests, if the filter names authors and only kinds of which an author has one event.
fn keys_of(filter: &Filter) -> Option<Vec<Digest>> {
    let (authors, kinds) = (filter.authors()?, filter.kinds()?);
    if !fits(authors, kinds) || !kinds.iter().all(|kind| kind.class() == KindClass::Replaceable) {
        return None;
    }
    let keys = authors.iter().flat_map(|author| kinds.iter().map(|kind| Address::replaceable(*kind, *author)));
    Some(keys.map(|key| key.digest().to_sql()).collect())
}
