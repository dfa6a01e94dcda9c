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

#[derive(Default)]
struct Index {
    subscriptions: HashMap<u64, Subscription>,
    /// Numbers in ascending order.
    by_key: HashMap<Key, Vec<u64>>,
    last: u64,
}

/// All live subscriptions of this process.
pub(crate) struct Hub {
    index: Mutex<Index>,
    finder: Option<Finder>,
}

impl Hub {
    /// The finder says which events have which words.
    pub(crate) fn new(finder: Option<Finder>) -> Self {
        Self { index: Mutex::default(), finder }
    }

    /// From now on events that match go to the queue. Returns the number to end it by.
    pub(crate) fn subscribe(&self, asked: Vec<Asked>, viewer: Viewer, queue: Arc<Queue>) -> u64 {
        let mut index = self.index();
        index.last += 1;
        let number = index.last;
        for key in asked.iter().flat_map(|asked| keys_of(&asked.filter)) {
            let numbers = index.by_key.entry(key).or_default();
            // It is the highest there is; a filter may name one thing twice.
            if numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
        index.subscriptions.insert(number, Subscription { asked, viewer, queue });
        number
    }

    pub(crate) fn unsubscribe(&self, number: u64) {
        let mut index = self.index();
        let Some(subscription) = index.subscriptions.remove(&number) else { return };
        for key in subscription.asked.iter().flat_map(|asked| keys_of(&asked.filter)) {
            if let Some(numbers) = index.by_key.get_mut(&key) {
                if let Ok(place) = numbers.binary_search(&number) {
                    numbers.remove(place);
                }
                if numbers.is_empty() {
                    index.by_key.remove(&key);
                }
            }
        }
    }

    /// From now on somebody else is looking. What waits in the queue already stays what it is.
    pub(crate) fn show_to(&self, number: u64, viewer: Viewer) {
        if let Some(subscription) = self.index().subscriptions.get_mut(&number) {
            subscription.viewer = viewer;
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
        let mut numbers: Vec<u64> = Vec::new();
        for key in keys_of_event(event, topics) {
            numbers.extend(index.by_key.get(&key).into_iter().flatten());
        }
        numbers.sort_unstable();
        numbers.dedup();
        let live = OnceCell::new();
        // Taken apart once, and only if somebody asks for words.
        let words = OnceCell::new();
        let mut delivered = 0;
        for number in numbers {
            let Some(subscription) = index.subscriptions.get(&number) else { continue };
            let has_words = |asked: &SearchQuery| {
                let words = words.get_or_init(|| self.finder.as_ref().and_then(|finder| finder.words_of(event)));
                words.as_ref().is_some_and(|words| asked.is_in(words))
            };
            let matches = subscription
                .asked
                .iter()
                .any(|asked| asked.filter.matches(event, topics) && asked.words.as_ref().is_none_or(has_words));
            if matches && subscription.viewer.may_see(event) {
                let live = live.get_or_init(|| Arc::new(LiveEvent { id: event.id, seq, json: json.clone() }));
                subscription.queue.deliver(Delivery { number, event: Arc::clone(live) });
                delivered += 1;
            }
        }
        delivered
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

fn keys_of_event(event: &Event, topics: &[TopicId]) -> impl Iterator<Item = Key> {
    let tags = event.tags.indexed().map(|(letter, value)| Key::Tag(letter, value.into()));
    // An event may be bound to a topic that it does not name (T-7).
    let topics = topics.iter().map(|topic| Key::Tag(Letter::T, topic.as_str().into()));
    [Key::Id(event.id), Key::Author(event.pubkey), Key::Kind(event.kind), Key::Everything]
        .into_iter()
        .chain(tags)
        .chain(topics)
}
