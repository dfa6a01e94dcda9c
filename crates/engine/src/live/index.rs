//! The index of live subscriptions: an event costs as much as the subscriptions it may match.
//!
//! Each filter is indexed by the narrowest condition it has: ids, then a tag other than `t`, then authors, topics and
//! hashtags, kinds; or as matching everything.

use std::{cell::OnceCell, collections::HashMap, sync::Arc};

use kukuri_domain::{Admitted, Event, EventId, Filter, Kind, Letter, PublicKey, TopicId, Viewer};
use kukuri_search::{Finder, SearchQuery};
use kukuri_store::Seq;
use parking_lot::Mutex;

use super::queue::{ClientQueue, Delivery, LiveEvent};
use crate::engine::SharedVisibility;

/// Room that an event's list of matching subscriptions has at once for each key. A longer list grows as it fills.
const MAX_RESERVED_MATCHES: usize = 256;

/// A condition that filters are indexed by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Id(EventId),
    Tag(Letter, Box<str>),
    Author(PublicKey),
    Kind(Kind),
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

struct Entry {
    filters: Vec<LiveFilter>,
    viewer: Viewer,
    queue: Arc<ClientQueue>,
}

/// The number of a subscription, and the position of one of its filters.
type FilterRef = (u64, usize);

#[derive(Default)]
struct Entries {
    subscriptions: HashMap<u64, Entry>,
    /// Ascending.
    by_key: HashMap<Key, Vec<FilterRef>>,
    last: u64,
}

/// All live subscriptions of this process.
pub struct LiveIndex {
    entries: Mutex<Entries>,
    /// Analyses the words of an event for filters that search.
    finder: Option<Finder>,
    visibility: SharedVisibility,
}

/// A live subscription. Dropped, it ends.
pub struct LiveSubscription {
    index: Arc<LiveIndex>,
    number: u64,
}

impl LiveSubscription {
    /// Unique; a later subscription has a higher number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Changes the viewer, for events that are queued from now on.
    pub fn set_viewer(&self, viewer: Viewer) {
        if let Some(entry) = self.index.entries.lock().subscriptions.get_mut(&self.number) {
            entry.viewer = viewer;
        }
    }
}

impl Drop for LiveSubscription {
    fn drop(&mut self) {
        let number = self.number;
        let mut entries = self.index.entries.lock();
        let Some(entry) = entries.subscriptions.remove(&number) else { return };
        for (key, nth) in keys_of_all(&entry.filters) {
            if let Some(filters) = entries.by_key.get_mut(&key) {
                if let Ok(position) = filters.binary_search(&(number, nth)) {
                    filters.remove(position);
                }
                if filters.is_empty() {
                    entries.by_key.remove(&key);
                }
            }
        }
    }
}

impl LiveIndex {
    /// An empty index. The finder tells the words of an event.
    pub fn new(finder: Option<Finder>, visibility: SharedVisibility) -> Self {
        Self { entries: Mutex::default(), finder, visibility }
    }

    /// Queues matching events from now on, for as long as the returned subscription is held.
    pub fn subscribe(
        self: &Arc<Self>,
        filters: Vec<LiveFilter>,
        viewer: Viewer,
        queue: Arc<ClientQueue>,
    ) -> LiveSubscription {
        let mut entries = self.entries.lock();
        entries.last += 1;
        let number = entries.last;
        for (key, nth) in keys_of_all(&filters) {
            // The highest number so far: the list stays sorted.
            entries.by_key.entry(key).or_default().push((number, nth));
        }
        entries.subscriptions.insert(number, Entry { filters, viewer, queue });
        LiveSubscription { index: Arc::clone(self), number }
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
        // Analysed once, and only if a filter searches.
        let words = OnceCell::new();
        let has_words = |query: &SearchQuery| {
            let words = words.get_or_init(|| self.finder.as_ref().and_then(|finder| finder.words_of(event)));
            words.as_ref().is_some_and(|words| query.is_in(words))
        };
        let visibility = self.visibility.load();
        let mut found: Vec<(u64, &ClientQueue)> = Vec::new();
        for key in keys_of_event(event, topics) {
            let Some(filters) = entries.by_key.get(&key) else { continue };
            // The condition a filter is indexed by need not be compared again.
            let known = if let Key::Tag(letter, _) = &key { Some(*letter) } else { None };
            found.reserve(filters.len().min(MAX_RESERVED_MATCHES));
            for (number, nth) in filters {
                let Some(Entry { filters, viewer, queue }) = entries.subscriptions.get(number) else { continue };
                let Some(LiveFilter { filter, words }) = filters.get(*nth) else { continue };
                if filter.matches_besides(known, event, topics)
                    && words.as_ref().is_none_or(has_words)
                    && visibility.shows(event, topics, viewer, Some(filter))
                {
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
        let live = Arc::new(LiveEvent { id: event.id, seq, json: json.clone() });
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

/// The keys of each filter, with its position.
fn keys_of_all(filters: &[LiveFilter]) -> impl Iterator<Item = (Key, usize)> {
    filters.iter().enumerate().flat_map(|(nth, live)| keys_of(&live.filter).into_iter().map(move |key| (key, nth)))
}

fn keys_of(filter: &Filter) -> Vec<Key> {
    let tag =
        |letter: Letter, values: &[Box<str>]| values.iter().map(|value| Key::Tag(letter, value.clone())).collect();
    if let Some(ids) = filter.ids() {
        return ids.iter().copied().map(Key::Id).collect();
    }
    let narrowest =
        filter.tags().iter().filter(|(letter, _)| *letter != Letter::T).min_by_key(|(_, values)| values.len());
    if let Some((letter, values)) = narrowest {
        return tag(*letter, values);
    }
    if let Some(authors) = filter.authors() {
        return authors.iter().copied().map(Key::Author).collect();
    }
    if let Some(topics) = filter.tag_values(Letter::T) {
        return tag(Letter::T, topics);
    }
    if let Some(kinds) = filter.kinds() {
        return kinds.iter().copied().map(Key::Kind).collect();
    }
    vec![Key::Everything]
}

/// The keys an event is found by, each once.
fn keys_of_event<'e>(event: &'e Event, topics: &'e [TopicId]) -> impl Iterator<Item = Key> + 'e {
    // An event may be bound to a topic that it does not name (T-7), and may repeat a tag.
    let topics = topics.iter().map(|topic| (Letter::T, topic.as_str()));
    let mut tags: Vec<(Letter, &str)> = event.tags.indexed().chain(topics).collect();
    tags.sort_unstable();
    tags.dedup();
    let tags = tags.into_iter().map(|(letter, value)| Key::Tag(letter, value.into()));
    [Key::Id(event.id), Key::Author(event.pubkey), Key::Kind(event.kind), Key::Everything].into_iter().chain(tags)
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
                let subscription = index.subscribe(wanted, Viewer::Client(Arc::default()), Arc::clone(&queue));
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
            5,
            "a topic that is named often counts once"
        );
        let entries = index.entries.lock();
        assert!(entries.by_key.is_empty() && entries.subscriptions.is_empty(), "nothing is left of them");
    }
}
