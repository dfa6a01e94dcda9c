//! Live subscriptions, found by what they ask for: an event costs as much as the subscriptions it may match.
//!
//! Each filter stands under the narrowest thing it names: ids, then a tag other than `t`, then authors, topics and
//! hashtags, kinds; and under nothing if it names nothing.

use std::{
    cell::OnceCell,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kukuri_domain::{Admitted, Event, EventId, Filter, Kind, Letter, PublicKey, TopicId, Viewer};
use kukuri_search::{Finder, SearchQuery};
use kukuri_store::Seq;

use crate::queue::{Delivery, LiveEvent, Queue};

/// What filters stand under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Id(EventId),
    Tag(Letter, Box<str>),
    Author(PublicKey),
    Kind(Kind),
    Everything,
}

/// A filter, and the words it asks for.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) filter: Filter,
    pub(crate) words: Option<SearchQuery>,
}

struct Subscription {
    asked: Vec<Asked>,
    viewer: Viewer,
    queue: Arc<Queue>,
}

/// A filter: the number of its subscription, and which one of its filters it is.
type Entry = (u64, usize);

#[derive(Default)]
struct Index {
    subscriptions: HashMap<u64, Subscription>,
    /// In ascending order.
    by_key: HashMap<Key, Vec<Entry>>,
    last: u64,
}

/// All live subscriptions of this process.
pub(crate) struct Hub {
    index: Mutex<Index>,
    finder: Option<Finder>,
}

/// A live subscription. Dropped, it has ended.
pub(crate) struct Ticket {
    hub: Arc<Hub>,
    number: u64,
}

impl Ticket {
    /// A later subscription has a higher one.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// From now on somebody else is looking. What waits in the queue already stays what it is.
    pub(crate) fn show_to(&self, viewer: Viewer) {
        if let Some(subscription) = self.hub.index().subscriptions.get_mut(&self.number) {
            subscription.viewer = viewer;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.number);
    }
}

impl Hub {
    /// The finder says which events have which words.
    pub(crate) fn new(finder: Option<Finder>) -> Self {
        Self { index: Mutex::default(), finder }
    }

    /// From now on, and for as long as the ticket is held, events that match go to the queue.
    pub(crate) fn subscribe(self: &Arc<Self>, asked: Vec<Asked>, viewer: Viewer, queue: Arc<Queue>) -> Ticket {
        let mut index = self.index();
        index.last += 1;
        let number = index.last;
        for (key, nth) in keys_of_all(&asked) {
            // It is the highest there is.
            index.by_key.entry(key).or_default().push((number, nth));
        }
        index.subscriptions.insert(number, Subscription { asked, viewer, queue });
        Ticket { hub: Arc::clone(self), number }
    }

    fn unsubscribe(&self, number: u64) {
        let mut index = self.index();
        let Some(subscription) = index.subscriptions.remove(&number) else { return };
        for (key, nth) in keys_of_all(&subscription.asked) {
            if let Some(entries) = index.by_key.get_mut(&key) {
                if let Ok(place) = entries.binary_search(&(number, nth)) {
                    entries.remove(place);
                }
                if entries.is_empty() {
                    index.by_key.remove(&key);
                }
            }
        }
    }

    /// Hands an event to every subscription it matches, each once. Returns how many there are.
    pub(crate) fn publish(&self, admitted: &Admitted, seq: Option<Seq>) -> usize {
        self.publish_event(admitted.event(), admitted.topics(), admitted.json(), seq)
    }

    /// The same for an event that came another way than through this process.
    pub(crate) fn publish_event(
        &self,
        event: &Event,
        topics: &[TopicId],
        json: &bytes::Bytes,
        seq: Option<Seq>,
    ) -> usize {
        let index = self.index();
        if index.subscriptions.is_empty() {
            return 0;
        }
        // Taken apart once, and only if somebody asks for words.
        let words = OnceCell::new();
        let has_words = |asked: &SearchQuery| {
            let words = words.get_or_init(|| self.finder.as_ref().and_then(|finder| finder.words_of(event)));
            words.as_ref().is_some_and(|words| asked.is_in(words))
        };
        let mut found: Vec<(u64, &Queue)> = Vec::new();
        for key in keys_of_event(event, topics) {
            let Some(entries) = index.by_key.get(&key) else { continue };
            // What a filter stands under need not be compared again.
            let known = key.letter();
            for (number, nth) in entries {
                let Some(Subscription { asked, viewer, queue }) = index.subscriptions.get(number) else { continue };
                let Some(Asked { filter, words }) = asked.get(*nth) else { continue };
                if filter.matches_besides(known, event, topics)
                    && words.as_ref().is_none_or(has_words)
                    && viewer.may_see(event)
                {
                    found.push((*number, queue));
                }
            }
        }
        // Several filters of a subscription may match, and one may stand under several keys.
        found.sort_unstable_by_key(|(number, _)| *number);
        found.dedup_by_key(|(number, _)| *number);
        let live = Arc::new(LiveEvent { id: event.id, seq, json: json.clone() });
        for (number, queue) in &found {
            queue.deliver(Delivery { number: *number, event: Arc::clone(&live) });
        }
        found.len()
    }

    /// Whether nobody listens.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many subscriptions there are.
    pub(crate) fn len(&self) -> usize {
        self.index().subscriptions.len()
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Key {
    fn letter(&self) -> Option<Letter> {
        match self {
            Self::Tag(letter, _) => Some(*letter),
            _ => None,
        }
    }
}

/// What each of several filters stands under, and which one it is.
fn keys_of_all(asked: &[Asked]) -> impl Iterator<Item = (Key, usize)> {
    asked.iter().enumerate().flat_map(|(nth, asked)| keys_of(&asked.filter).into_iter().map(move |key| (key, nth)))
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

/// Each once: whoever stands under it is looked at once.
fn keys_of_event<'e>(event: &'e Event, topics: &'e [TopicId]) -> impl Iterator<Item = Key> + 'e {
    // An event may be bound to a topic that it does not name (T-7), and may name one thing as often as it likes.
    let topics = topics.iter().map(|topic| (Letter::T, topic.as_str()));
    let mut tags: Vec<(Letter, &str)> = event.tags.indexed().chain(topics).collect();
    tags.sort_unstable();
    tags.dedup();
    let tags = tags.into_iter().map(|(letter, value)| Key::Tag(letter, value.into()));
    [Key::Id(event.id), Key::Author(event.pubkey), Key::Kind(event.kind), Key::Everything].into_iter().chain(tags)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use kukuri_store::conformance::build::{
        ALICE, BOB, CAROL, OTHER_TOPIC, TOPIC, admitted, at, bare, event, note, other_topic,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::queue::{Outgoing, queue};

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
    fn an_event_comes_once_to_every_subscription_with_a_filter_it_matches_and_to_no_other() {
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
        let hub = Arc::new(Hub::new(None));
        let (queue, mut receiver) = queue();
        let filters = filters([first.id, second.id]);
        let mut asked: Vec<(Ticket, Vec<Filter>)> = Vec::new();
        for (n, filter) in filters.iter().enumerate() {
            // Alone, and with another one.
            for filters in [vec![filter.clone()], vec![filters[n * 31 % filters.len()].clone(), filter.clone()]] {
                let words = filters.iter().map(|filter| Asked { filter: filter.clone(), words: None }).collect();
                let ticket = hub.subscribe(words, Viewer::Client(Arc::default()), Arc::clone(&queue));
                asked.push((ticket, filters));
            }
        }
        let mut deliver = |event: &Event, topics: &[TopicId]| {
            let count = hub.publish_event(event, topics, &event.to_json(), None);
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
                    asked.iter().filter(|(_, filters)| matches(filters)).map(|(ticket, _)| ticket.number()).collect();
                assert!(!expected.is_empty());
                assert_eq!(deliver(event, &topics), expected, "{event:?}");
            }
        }
        drop(asked);
        assert_eq!(deliver(&first, &[]), [0; 0]);
        let often = event(1).tag(["t", TOPIC]).tag(["t", TOPIC]).build();
        assert_eq!(
            keys_of_event(&often, admitted(&often).topics()).count(),
            5,
            "a topic that is named often counts once"
        );
        let index = hub.index();
        assert!(index.by_key.is_empty() && index.subscriptions.is_empty(), "nothing is left of them");
    }
}
