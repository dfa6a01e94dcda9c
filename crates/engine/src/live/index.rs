//! The index of live subscriptions: an event costs as much as the subscriptions it may match (Y-3).
//!
//! Each filter is indexed by the narrowest condition it has: ids, then a tag other than `t`, then authors, topics and
//! hashtags; or as matching everything. Below that it is indexed by a word that it searches for, or by kind. Equal filters of
//! any number of subscriptions are one entry, compared once. What ends costs what it is: no list is searched or moved for it.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, Hash, RandomState},
    sync::Arc,
};

use hashbrown::HashTable;
use kukuri_domain::{Admitted, Event, EventId, Filter, Kind, Letter, PublicKey, Timestamp, TopicId, Viewer};
use kukuri_search::SearchQuery;
use kukuri_store::Seq;
use parking_lot::Mutex;
use slab::Slab;

use super::queue::{ClientQueue, Delivery, LiveEvent};
use crate::{engine::SharedVisibility, networks::Share};

/// Room that an event's list of matching subscriptions has at once for each filter. A longer list grows as it fills.
const MAX_RESERVED_MATCHES: usize = 256;
/// Places of one filter below which it is indexed by kind. A filter with more is found by its values alone; it counts as
/// many filters.
const MAX_PLACES_BY_KIND: usize = 256;
/// A value of a filter counts once more for each of these many bytes. Ids, keys and topics are shorter.
pub const VALUE_BYTES: usize = 128;
/// Values or places that count as one filter.
pub const VALUES_PER_FILTER: usize = 8;
/// A table that is larger than this, and nearly empty, gives memory back.
const MIN_SHRUNK_CAPACITY: usize = 1_024;

/// A condition that filters are indexed by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Id(EventId),
    Tag(Letter, Box<str>),
    Author(PublicKey),
    Everything,
}

/// A filter, with its `search` parsed (NIP-50).
#[derive(Clone, Debug)]
pub struct LiveFilter {
    /// The filter.
    pub filter: Filter,
    /// The words it searches for.
    pub words: Option<SearchQuery>,
}

impl LiveFilter {
    /// How many filters it counts as: its values and its places in the index take memory.
    pub fn weight(&self) -> usize {
        let words = self.words.as_ref().map_or(0, |words| words.tokens().len());
        let kinds = indexed_kinds(&self.filter, self.words.as_ref()).map_or(1, <[_]>::len);
        let places = key_count(&self.filter) * kinds;
        (values_of(&self.filter) + words).max(places).div_ceil(VALUES_PER_FILTER).max(1)
    }
}

/// How many values a filter counts as.
pub fn values_of(filter: &Filter) -> usize {
    let values = filter.tags().iter().flat_map(|(_, values)| values);
    filter.value_count() + values.map(|value| value.len() / VALUE_BYTES).sum::<usize>()
}

/// A filter of one or more subscriptions.
struct SharedFilter {
    conditions: Filter,
    /// The hash of the conditions.
    hash: u64,
    words: Option<SearchQuery>,
    /// Positions of its rows, in the order of [`places_of`].
    positions: Vec<usize>,
    subscribers: Vec<Subscriber>,
}

struct Subscriber {
    /// The number of its subscription.
    number: u64,
    /// Which filter of its subscription this is.
    nth: usize,
    viewer: Viewer,
    queue: Arc<ClientQueue>,
}

/// One of the places where a filter is indexed. Most filters that can't match are told by their time, without a look at them.
struct Row {
    since: Timestamp,
    until: Timestamp,
    filter: usize,
    /// Which place of its filter this is.
    nth: usize,
}

/// The filters under one key.
#[derive(Default)]
struct Bucket {
    others: Vec<Row>,
    by_kind: HashMap<Kind, Vec<Row>>,
    /// Filters that search. Few buckets have any.
    #[allow(clippy::box_collection, reason = "buckets without any stay small")]
    by_word: Option<Box<HashMap<Box<str>, Vec<Row>>>>,
}

/// Where in its buckets a filter is indexed.
enum Narrowing {
    Kind(Kind),
    /// One of the words that it searches for.
    Word(Box<str>),
    None,
}

/// A filter of a subscription: its number, and the subscriber's position in it.
#[derive(Clone, Copy)]
struct FilterRef {
    filter: usize,
    position: usize,
}

#[derive(Default)]
struct Entries {
    subscriptions: HashMap<u64, Box<[FilterRef]>>,
    filters: Slab<SharedFilter>,
    /// The numbers of the filters, by a hash of their conditions: hashing all values of a filter is done once.
    by_conditions: HashTable<usize>,
    hasher: RandomState,
    by_key: HashMap<Key, Bucket>,
    /// Under [`Key::Everything`].
    everything: Bucket,
    last: u64,
}

impl Bucket {
    fn is_empty(&self) -> bool {
        self.others.is_empty() && self.by_kind.is_empty() && self.by_word.is_none()
    }

    fn push(&mut self, narrowing: Narrowing, row: Row) -> usize {
        let rows = match narrowing {
            Narrowing::None => &mut self.others,
            Narrowing::Kind(kind) => self.by_kind.entry(kind).or_default(),
            Narrowing::Word(word) => self.by_word.get_or_insert_default().entry(word).or_default(),
        };
        if rows.is_empty() {
            // Most keys are those of one filter.
            rows.reserve_exact(1);
        }
        rows.push(row);
        rows.len() - 1
    }

    /// Removes a row. The last one takes its position, and is returned.
    fn remove(&mut self, narrowing: &Narrowing, position: usize) -> Option<&Row> {
        let rows = self.rows_mut(narrowing)?;
        rows.swap_remove(position);
        if !rows.is_empty() {
            return self.rows_mut(narrowing)?.get(position);
        }
        match narrowing {
            Narrowing::None => self.others = Vec::new(),
            Narrowing::Kind(kind) => drop(self.by_kind.remove(kind)),
            Narrowing::Word(word) => {
                if let Some(by_word) = &mut self.by_word {
                    by_word.remove(word);
                    shrink(by_word);
                }
                if self.by_word.as_ref().is_some_and(|by_word| by_word.is_empty()) {
                    self.by_word = None;
                }
            }
        }
        None
    }

    fn rows_mut(&mut self, narrowing: &Narrowing) -> Option<&mut Vec<Row>> {
        match narrowing {
            Narrowing::None => Some(&mut self.others),
            Narrowing::Kind(kind) => self.by_kind.get_mut(kind),
            Narrowing::Word(word) => self.by_word.as_mut()?.get_mut(word),
        }
    }

    fn rows_for<'e>(&'e self, event: &'e Event, words: &'e EventWords<'e>) -> impl Iterator<Item = &'e Row> {
        let of_kind = self.by_kind.get(&event.kind).map_or(&[][..], Vec::as_slice);
        let of_words = self.by_word.iter().flat_map(|by_word| {
            let words = words.get().into_iter().flatten();
            words.filter_map(|word| by_word.get(word.as_str())).flatten()
        });
        let created_at = event.created_at;
        let rows = self.others.iter().chain(of_kind).chain(of_words);
        rows.filter(move |row| row.since <= created_at && created_at <= row.until)
    }
}

/// The words of an event: analysed once, and only if a filter searches.
struct EventWords<'e> {
    words_of: Option<&'e WordsOf>,
    event: &'e Event,
    words: OnceCell<Option<HashSet<String>>>,
}

impl<'e> EventWords<'e> {
    fn new(words_of: Option<&'e WordsOf>, event: &'e Event) -> Self {
        Self { words_of, event, words: OnceCell::new() }
    }

    fn get(&self) -> Option<&HashSet<String>> {
        self.words.get_or_init(|| self.words_of.and_then(|words_of| words_of(self.event))).as_ref()
    }

    fn have(&self, query: &SearchQuery) -> bool {
        self.get().is_some_and(|words| query.is_in(words))
    }
}

impl Entries {
    /// Adds a subscriber to a filter, which may be new.
    fn add(&mut self, LiveFilter { filter, words }: LiveFilter, subscriber: Subscriber) -> FilterRef {
        let conditions = filter.into_conditions();
        let hash = self.hasher.hash_one(&conditions);
        let number = match self.by_conditions.find(hash, |number| self.filters[*number].conditions == conditions) {
            Some(number) => *number,
            None => self.insert(conditions, hash, words),
        };
        let subscribers = &mut self.filters[number].subscribers;
        if subscribers.is_empty() {
            subscribers.reserve_exact(1);
        }
        subscribers.push(subscriber);
        FilterRef { filter: number, position: subscribers.len() - 1 }
    }

    fn insert(&mut self, conditions: Filter, hash: u64, words: Option<SearchQuery>) -> usize {
        let Self { filters, by_key, everything, .. } = self;
        let slot = filters.vacant_entry();
        let number = slot.key();
        let (since, until) = conditions.window().into_inner();
        let places = places_of(&conditions, words.as_ref()).into_iter().enumerate().map(|(nth, (key, narrowing))| {
            let bucket = match key {
                Key::Everything => &mut *everything,
                key => by_key.entry(key).or_default(),
            };
            bucket.push(narrowing, Row { since, until, filter: number, nth })
        });
        let positions = places.collect();
        slot.insert(SharedFilter { conditions, hash, words, positions, subscribers: Vec::new() });
        self.by_conditions.insert_unique(hash, number, |number| self.filters[*number].hash);
        number
    }

    /// Removes a subscriber of a filter, and the filter with its last one.
    fn remove(&mut self, FilterRef { filter: number, position }: FilterRef) {
        let Some(filter) = self.filters.get_mut(number) else { return };
        filter.subscribers.swap_remove(position);
        if let Some(moved) = filter.subscribers.get(position) {
            let filters = self.subscriptions.get_mut(&moved.number);
            if let Some(own) = filters.and_then(|filters| filters.get_mut(moved.nth)) {
                own.position = position;
            }
        }
        if !filter.subscribers.is_empty() {
            return;
        }
        if let Ok(entry) = self.by_conditions.find_entry(filter.hash, |other| *other == number) {
            entry.remove();
        }
        let SharedFilter { conditions, words, positions, .. } = self.filters.remove(number);
        let Self { filters, by_key, everything, .. } = self;
        for ((key, narrowing), position) in places_of(&conditions, words.as_ref()).into_iter().zip(positions) {
            let bucket = match &key {
                Key::Everything => Some(&mut *everything),
                key => by_key.get_mut(key),
            };
            let Some(bucket) = bucket else { continue };
            if let Some(&Row { filter, nth, .. }) = bucket.remove(&narrowing, position) {
                // The row that took the position of this one.
                let moved = filters.get_mut(filter).and_then(|filter| filter.positions.get_mut(nth));
                moved.into_iter().for_each(|moved| *moved = position);
            }
            if bucket.is_empty() && key != Key::Everything {
                by_key.remove(&key);
            }
        }
        if filters.is_empty() {
            *filters = Slab::new();
        }
        if is_sparse(self.by_conditions.capacity(), self.by_conditions.len()) {
            self.by_conditions.shrink_to(filters.len() * 2, |number| filters[*number].hash);
        }
        shrink(&mut self.by_key);
        shrink(&mut self.everything.by_kind);
    }

    /// The filters that an event may match, each with the tag condition that it is known to match.
    fn candidates<'e>(
        &'e self,
        event: &'e Event,
        topics: &'e [TopicId],
        words: &'e EventWords<'e>,
    ) -> impl Iterator<Item = (Option<Letter>, &'e SharedFilter)> {
        let by_key = keys_of_event(event, topics).filter_map(|key| {
            let known = if let Key::Tag(letter, _) = &key { Some(*letter) } else { None };
            Some((known, self.by_key.get(&key)?))
        });
        by_key.chain([(None, &self.everything)]).flat_map(move |(known, bucket)| {
            bucket.rows_for(event, words).filter_map(move |row| Some((known, self.filters.get(row.filter)?)))
        })
    }
}

fn shrink<K: Eq + Hash, V>(table: &mut HashMap<K, V>) {
    if is_sparse(table.capacity(), table.len()) {
        table.shrink_to(table.len() * 2);
    }
}

/// Whether a table is so empty that it should shrink.
fn is_sparse(capacity: usize, len: usize) -> bool {
    capacity > MIN_SHRUNK_CAPACITY && len < capacity / 8
}

/// Tells the words of an event; `None` if events of its kind are not searched.
pub type WordsOf = Box<dyn Fn(&Event) -> Option<HashSet<String>> + Send + Sync>;

/// All live subscriptions of this process.
pub struct LiveIndex {
    entries: Mutex<Entries>,
    /// For filters that search. `None`: nothing is searched.
    words_of: Option<WordsOf>,
    visibility: SharedVisibility,
}

/// A live subscription. Dropped, it ends.
pub struct LiveSubscription {
    index: Arc<LiveIndex>,
    number: u64,
    /// What it holds of the live filters of its address and of the node.
    pub(crate) share: Option<Share>,
}

impl LiveSubscription {
    /// Unique; a later subscription has a higher number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its filters, copied.
    pub fn filters(&self) -> Vec<Filter> {
        let entries = self.index.entries.lock();
        let Entries { subscriptions, filters, .. } = &*entries;
        let own = subscriptions.get(&self.number).into_iter().flatten();
        own.filter_map(|own| Some(filters.get(own.filter)?.conditions.clone())).collect()
    }

    /// Changes the viewer, for events that are queued from now on.
    pub fn set_viewer(&self, viewer: &Viewer) {
        let mut entries = self.index.entries.lock();
        let Entries { subscriptions, filters, .. } = &mut *entries;
        for own in subscriptions.get(&self.number).into_iter().flatten() {
            let filter = filters.get_mut(own.filter);
            if let Some(subscriber) = filter.and_then(|filter| filter.subscribers.get_mut(own.position)) {
                subscriber.viewer = viewer.clone();
            }
        }
    }
}

impl Drop for LiveSubscription {
    fn drop(&mut self) {
        let mut entries = self.index.entries.lock();
        // While it is listed, the positions of its filters are kept right.
        let count = entries.subscriptions.get(&self.number).map_or(0, |filters| filters.len());
        for nth in 0..count {
            if let Some(own) = entries.subscriptions.get(&self.number).map(|filters| filters[nth]) {
                entries.remove(own);
            }
        }
        entries.subscriptions.remove(&self.number);
        shrink(&mut entries.subscriptions);
    }
}

impl LiveIndex {
    /// An empty index.
    pub fn new(words_of: Option<WordsOf>, visibility: SharedVisibility) -> Self {
        Self { entries: Mutex::default(), words_of, visibility }
    }

    /// Queues matching events from now on, for as long as the returned subscription is held.
    pub fn subscribe(
        self: &Arc<Self>,
        filters: Vec<LiveFilter>,
        viewer: &Viewer,
        queue: &Arc<ClientQueue>,
    ) -> LiveSubscription {
        let mut entries = self.entries.lock();
        entries.last += 1;
        let number = entries.last;
        let add = |(nth, filter)| {
            let subscriber = Subscriber { number, nth, viewer: viewer.clone(), queue: Arc::clone(queue) };
            entries.add(filter, subscriber)
        };
        let filters = filters.into_iter().enumerate().map(add).collect();
        entries.subscriptions.insert(number, filters);
        LiveSubscription { index: Arc::clone(self), number, share: None }
    }

    /// Queues an event that this process admitted for every subscription it matches. Returns how many those are.
    pub fn deliver(&self, admitted: &Admitted, seq: Option<Seq>) -> usize {
        self.deliver_event(admitted.event(), admitted.topics(), admitted.json(), seq)
    }

    /// Queues an event for every subscription it matches, once each. Returns how many those are.
    pub(crate) fn deliver_event(
        &self,
        event: &Event,
        topics: &[TopicId],
        json: &bytes::Bytes,
        seq: Option<Seq>,
    ) -> usize {
        let entries = self.entries.lock();
        if entries.subscriptions.is_empty() {
            return 0;
        }
        let event_words = EventWords::new(self.words_of.as_ref(), event);
        let visibility = self.visibility.load();
        let mut found: Vec<(u64, &ClientQueue)> = Vec::new();
        for (known, shared) in entries.candidates(event, topics, &event_words) {
            let SharedFilter { conditions, words, subscribers, .. } = shared;
            // The condition a filter is indexed by need not be compared again.
            if !conditions.matches_besides(known, event, topics)
                || !words.as_ref().is_none_or(|words| event_words.have(words))
            {
                continue;
            }
            found.reserve(subscribers.len().min(MAX_RESERVED_MATCHES));
            for Subscriber { number, viewer, queue, .. } in subscribers {
                if visibility.shows(event, topics, viewer, Some(conditions)) {
                    found.push((*number, queue));
                }
            }
        }
        if found.is_empty() {
            return 0;
        }
        // Several filters of a subscription may match, and a filter may be indexed by several keys.
        found.sort_unstable_by_key(|(number, _)| *number);
        found.dedup_by_key(|(number, _)| *number);
        let live = Arc::new(LiveEvent { id: event.id, seq, json: json.clone(), deliveries: found.len() });
        for (number, queue) in &found {
            queue.push_live(Delivery { number: *number, event: Arc::clone(&live) });
        }
        found.len()
    }

    /// Whether there is no live subscription.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of live subscriptions.
    pub fn len(&self) -> usize {
        self.entries.lock().subscriptions.len()
    }
}

/// The values that a filter is indexed by, and of what.
enum Narrowest<'f> {
    Ids(&'f [EventId]),
    Tag(Letter, &'f [Box<str>]),
    Authors(&'f [PublicKey]),
    Everything,
}

fn narrowest_of(filter: &Filter) -> Narrowest<'_> {
    if let Some(ids) = filter.ids() {
        return Narrowest::Ids(ids);
    }
    let tag = filter.tags().iter().filter(|(letter, _)| *letter != Letter::T).min_by_key(|(_, values)| values.len());
    if let Some((letter, values)) = tag {
        return Narrowest::Tag(*letter, values);
    }
    if let Some(authors) = filter.authors() {
        return Narrowest::Authors(authors);
    }
    filter.tag_values(Letter::T).map_or(Narrowest::Everything, |topics| Narrowest::Tag(Letter::T, topics))
}

fn key_count(filter: &Filter) -> usize {
    match narrowest_of(filter) {
        Narrowest::Ids(ids) => ids.len(),
        Narrowest::Tag(_, values) => values.len(),
        Narrowest::Authors(authors) => authors.len(),
        Narrowest::Everything => 1,
    }
}

fn keys_of(filter: &Filter) -> Vec<Key> {
    match narrowest_of(filter) {
        Narrowest::Ids(ids) => ids.iter().copied().map(Key::Id).collect(),
        Narrowest::Tag(letter, values) => values.iter().map(|value| Key::Tag(letter, value.clone())).collect(),
        Narrowest::Authors(authors) => authors.iter().copied().map(Key::Author).collect(),
        Narrowest::Everything => vec![Key::Everything],
    }
}

/// The kinds that a filter is indexed by. `None`: it is not indexed by kind.
fn indexed_kinds<'f>(filter: &'f Filter, words: Option<&SearchQuery>) -> Option<&'f [Kind]> {
    let is_narrow = filter.ids().is_some() || words.is_some();
    filter.kinds().filter(|kinds| !is_narrow && kinds.len() * key_count(filter) <= MAX_PLACES_BY_KIND)
}

/// Where a filter is indexed, in an order that follows from the filter alone.
fn places_of(filter: &Filter, words: Option<&SearchQuery>) -> Vec<(Key, Narrowing)> {
    // The longest word is the rarest, as a rule.
    let word = words.and_then(|words| words.tokens().iter().max_by_key(|word| word.len()));
    let keys = keys_of(filter).into_iter();
    match (word, indexed_kinds(filter, words)) {
        (Some(word), _) => keys.map(|key| (key, Narrowing::Word(word.as_str().into()))).collect(),
        (None, Some([kind])) => keys.map(|key| (key, Narrowing::Kind(*kind))).collect(),
        (None, Some(kinds)) => {
            keys.flat_map(|key| kinds.iter().map(move |kind| (key.clone(), Narrowing::Kind(*kind)))).collect()
        }
        (None, None) => keys.map(|key| (key, Narrowing::None)).collect(),
    }
}

/// The keys an event is found by, each once, besides [`Key::Everything`].
fn keys_of_event<'e>(event: &'e Event, topics: &'e [TopicId]) -> impl Iterator<Item = Key> + 'e {
    // An event may be bound to a topic that it does not name (T-7), and may repeat a tag.
    let topics = topics.iter().map(|topic| (Letter::T, topic.as_str()));
    let mut tags: Vec<(Letter, &str)> = event.tags.indexed().chain(topics).collect();
    tags.sort_unstable();
    tags.dedup();
    let tags = tags.into_iter().map(|(letter, value)| Key::Tag(letter, value.into()));
    [Key::Id(event.id), Key::Author(event.pubkey)].into_iter().chain(tags)
}

#[cfg(test)]
mod tests {
    use kukuri_store::conformance::build::{
        ALICE, BOB, CAROL, OTHER_TOPIC, TOPIC, admitted, at, bare, event, note, other_topic,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::live::queue::{Outgoing, client_queue};

    /// Filters with every combination of conditions.
    fn filters(ids: [EventId; 2]) -> Vec<Filter> {
        let [id, other_id] = ids.map(|id| id.to_string());
        let people = [ALICE, BOB, CAROL].map(|key| key.to_string());
        let conditions: [(&str, [Value; 2]); 7] = [
            ("ids", [json!([id]), json!([id, other_id])]),
            ("authors", [json!([people[0]]), json!([people[1], people[2]])]),
            ("kinds", [json!([1]), json!([7, 30023])]),
            ("#e", [json!([id]), json!([id, other_id])]),
            ("#t", [json!([TOPIC]), json!([OTHER_TOPIC, "cats"])]),
            ("since", [json!(at(5).0), json!(at(6).0)]),
            ("until", [json!(at(5).0), json!(at(4).0)]),
        ];
        let mut filters = vec![json!({})];
        for (name, values) in conditions {
            let with = |filter: &Value| {
                values.clone().map(|value| {
                    let mut filter = filter.clone();
                    filter[name] = value;
                    filter
                })
            };
            let more: Vec<Value> = filters.iter().flat_map(with).collect();
            filters.extend(more);
        }
        filters.iter().map(|filter| Filter::from_json(filter.to_string()).unwrap()).collect()
    }

    #[test]
    fn an_event_reaches_every_matching_subscription_once_and_no_other() {
        // W-1, W-2, T-7
        let (first, second) = (note("first").at(5).build(), note("second").tag(["t", "cats"]).by(BOB).at(4).build());
        let (id, other_id) = (first.id.to_string(), second.id.to_string());
        let events = [
            first.clone(),
            second.clone(),
            note("an answer").tag(["e", &id]).tag(["e", &other_id]).tag(["e", &id]).at(6).build(),
            event(7).tag(["e", &other_id]).tag(["t", OTHER_TOPIC]).tag(["t", "cats"]).by(CAROL).at(5).build(),
            bare(30023).tag(["d", "x"]).tag(["e", &id]).at(4).build(),
        ];
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let (queue, mut receiver) = client_queue();
        let filters = filters([first.id, second.id]);
        let mut live: Vec<(LiveSubscription, Vec<Filter>)> = Vec::new();
        for (n, filter) in filters.iter().enumerate() {
            // Alone, and with another one.
            for filters in [vec![filter.clone()], vec![filters[n * 31 % filters.len()].clone(), filter.clone()]] {
                let wanted = filters.iter().map(|filter| LiveFilter { filter: filter.clone(), words: None }).collect();
                let subscription = index.subscribe(wanted, &Viewer::unauthenticated(), &queue);
                live.push((subscription, filters));
            }
        }
        let mut deliver = |event: &Event, topics: &[TopicId]| {
            let count = index.deliver_event(event, topics, &event.to_json(), None);
            let mut numbers = Vec::new();
            while let Some(Outgoing::Live(delivery)) = receiver.next_if_ready() {
                numbers.push(delivery.number);
            }
            assert_eq!(numbers.len(), count);
            numbers
        };
        for event in &events {
            // As it names them, and bound to one that it does not name.
            let named = admitted(event).topics().to_vec();
            for topics in [named.clone(), [named, vec![other_topic()]].concat()] {
                let matches = |filters: &[Filter]| filters.iter().any(|filter| filter.matches(event, &topics));
                let expected: Vec<u64> =
                    live.iter().filter(|(_, filters)| matches(filters)).map(|(one, _)| one.number()).collect();
                assert!(!expected.is_empty());
                assert_eq!(deliver(event, &topics), expected, "{event:?}");
            }
        }
        drop(live);
        assert_eq!(deliver(&first, &[]), [0; 0]);
        let often = event(1).tag(["t", TOPIC]).tag(["t", TOPIC]).build();
        assert_eq!(
            keys_of_event(&often, admitted(&often).topics()).count(),
            3,
            "a topic that is named often counts once"
        );
        assert_empty(&index);
    }

    fn assert_empty(index: &LiveIndex) {
        let entries = index.entries.lock();
        assert!(entries.subscriptions.is_empty() && entries.filters.is_empty() && entries.by_conditions.is_empty());
        assert!(entries.by_key.is_empty() && entries.everything.is_empty(), "nothing is left of them");
    }

    fn live(filter: &Value) -> LiveFilter {
        LiveFilter { filter: Filter::from_json(filter.to_string()).unwrap(), words: None }
    }

    fn candidates(index: &LiveIndex, event: &Event, topics: &[TopicId]) -> usize {
        let words = EventWords::new(index.words_of.as_ref(), event);
        index.entries.lock().candidates(event, topics, &words).count()
    }

    fn search(filter: &Value, text: &str) -> LiveFilter {
        let mut filter = filter.clone();
        filter["search"] = json!(text);
        LiveFilter { words: Some(SearchQuery::parse(text).unwrap()), ..live(&filter) }
    }

    #[test]
    fn searches_for_other_words_are_not_compared() {
        // Y-3, NIP-50
        let words_of = |event: &Event| {
            (event.kind == Kind(1)).then(|| event.content.split(' ').map(str::to_owned).collect::<HashSet<String>>())
        };
        let index = Arc::new(LiveIndex::new(Some(Box::new(words_of)), Arc::default()));
        let (queue, _receiver) = client_queue();
        let subscribe = |filter: Value, text: &str| {
            index.subscribe(vec![search(&filter, text)], &Viewer::unauthenticated(), &queue)
        };
        let in_topic = json!({"#t": [TOPIC]});
        let mut others: Vec<LiveSubscription> = Vec::new();
        for number in 0..1_000 {
            others.push(subscribe(in_topic.clone(), &format!("tea unknown{number}")));
            others.push(subscribe(json!({}), &format!("tea unknown{number}")));
        }
        let matching = [
            subscribe(in_topic.clone(), "tea"),
            subscribe(in_topic.clone(), "tea weather"),
            subscribe(json!({"#t": [TOPIC], "kinds": [1, 7]}), "weather"),
            subscribe(json!({}), "weather"),
        ];
        others.push(subscribe(json!({"#t": [TOPIC], "kinds": [7]}), "weather"));
        let post = note("the weather is for tea").at(5).build();
        let topics = admitted(&post).topics().to_vec();
        assert_eq!(candidates(&index, &post, &topics), matching.len() + 1);
        assert_eq!(index.deliver_event(&post, &topics, &post.to_json(), None), matching.len());
        let other_kind = event(7).content("weather tea").at(5).build();
        assert_eq!(index.deliver_event(&other_kind, &topics, &other_kind.to_json(), None), 0);
        drop(matching);
        drop(others);
        assert_empty(&index);
    }

    #[test]
    fn filters_that_cannot_match_are_not_compared() {
        // Y-3, T-7
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let (queue, _receiver) = client_queue();
        let author = ALICE.to_string();
        let mut subscriptions = Vec::new();
        for number in 0..1_000 {
            let kinds = json!([60_000 + number % 5_000]);
            for filter in [
                json!({"#t": [TOPIC], "kinds": kinds}),
                json!({"#t": [TOPIC], "kinds": [60_000, 60_001], "since": number}),
                json!({"#t": [TOPIC], "kinds": [1], "since": at(1_000 + number).0}),
                json!({"#t": [TOPIC], "until": number}),
                json!({"authors": [author], "kinds": kinds}),
                json!({"#t": [OTHER_TOPIC], "limit": number}),
                json!({"kinds": kinds}),
                json!({"kinds": [], "since": number}),
                json!({"authors": [BOB], "#t": [TOPIC], "since": number}),
            ] {
                subscriptions.push(index.subscribe(vec![live(&filter)], &Viewer::unauthenticated(), &queue));
            }
        }
        let event = note("text").at(5).build();
        let topics = admitted(&event).topics().to_vec();
        assert_eq!(candidates(&index, &event, &topics), 0);
        subscriptions.push(index.subscribe(
            vec![live(&json!({"#t": [TOPIC], "kinds": [1]}))],
            &Viewer::unauthenticated(),
            &queue,
        ));
        assert_eq!(candidates(&index, &event, &topics), 1);
        drop(subscriptions);
        assert_empty(&index);
    }

    #[test]
    fn equal_filters_are_compared_once_for_all_their_subscribers() {
        // Y-3
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let event = note("text").at(5).build();
        let topics = admitted(&event).topics().to_vec();
        let (queue, _receiver) = client_queue();
        let subscribe = |number: usize| {
            let filter = json!({"kinds": [7, 1], "#t": [TOPIC, OTHER_TOPIC], "limit": number});
            let again = json!({"#t": [OTHER_TOPIC, TOPIC], "kinds": [1, 7, 1]});
            index.subscribe(vec![live(&filter), live(&again)], &Viewer::unauthenticated(), &queue)
        };
        let mut subscriptions: Vec<_> = (0..200).map(subscribe).collect();
        assert_eq!(candidates(&index, &event, &topics), 1);
        assert_eq!(index.deliver_event(&event, &topics, &event.to_json(), None), 200);
        // Ended in any order, the others stay.
        while !subscriptions.is_empty() {
            drop(subscriptions.swap_remove(subscriptions.len() * 7 / 11));
            assert_eq!(index.deliver_event(&event, &topics, &event.to_json(), None), subscriptions.len());
        }
        assert_empty(&index);
    }

    #[test]
    fn a_subscription_that_ends_moves_one_row_of_each_list() {
        // Y-3: with all others in the same list.
        let index = Arc::new(LiveIndex::new(None, Arc::default()));
        let (queue, _receiver) = client_queue();
        let subscribe = |number| {
            let filter = json!({"#t": [TOPIC], "kinds": [1], "since": number});
            index.subscribe(vec![live(&filter)], &Viewer::unauthenticated(), &queue)
        };
        let mut subscriptions: Vec<_> = (0..500).map(subscribe).collect();
        let rows = || -> Vec<Timestamp> {
            let entries = index.entries.lock();
            let rows = &entries.by_key[&Key::Tag(Letter::T, TOPIC.into())].by_kind[&Kind(1)];
            for (position, row) in rows.iter().enumerate() {
                assert_eq!(entries.filters[row.filter].positions, [position]);
            }
            rows.iter().map(|row| row.since).collect()
        };
        for position in [0, 1, 250, 496, 495, 0] {
            let before = rows();
            drop(subscriptions.remove(position));
            let after = rows();
            assert!(after.iter().zip(&before).filter(|(after, before)| after != before).count() <= 1);
        }
        drop(subscriptions);
        assert_empty(&index);
    }

    #[test]
    fn a_filter_counts_by_its_values_and_places() {
        // Y-3
        let topics: Vec<String> = (0..20).map(|number| format!("kukuri:user:{number:064}")).collect();
        let kinds: Vec<u16> = (0..400).collect();
        for (filter, weight, why) in [
            (json!({"#t": [TOPIC], "kinds": [1]}), 1, "a common filter"),
            (json!({}), 1, "everything"),
            (json!({"#t": topics}), 3, "20 values"),
            (json!({"#t": topics, "kinds": [1, 2, 3, 4]}), 10, "80 places"),
            (json!({"#t": topics, "kinds": kinds}), 53, "420 values; too many places to be indexed by kind"),
            (json!({"#x": ["x".repeat(VALUE_BYTES * 80)]}), 11, "a long value"),
        ] {
            assert_eq!(live(&filter).weight(), weight, "{why}");
        }
        let words: Vec<String> = (0..30).map(|number| format!("word{number}")).collect();
        assert_eq!(search(&json!({"#t": [TOPIC]}), &words.join(" ")).weight(), 4, "30 words");
    }
}
