//! Property: a store answers random filters like the model: same events, order, ids and counts (W-1, E-10, X-2, M-5).

use std::sync::Arc;

use kukuri_domain::{
    Event, Filter, Kind, Letter, Millis, PublicKey, Sketch, TopicId, Viewer, Visibility, visibility::Overlay,
};
use proptest::{
    collection::vec,
    option,
    prelude::{Just, Strategy, any},
    prop_assert, prop_assert_eq, prop_oneof,
    sample::{Index, select, subsequence},
};

use super::{
    build::{NOW, OTHER_TOPIC, TOPIC, admitted, at, later},
    probe::{is_true, names_its_answer},
    runner::Property,
    subject::{Harness, Subject},
    world::{AUTHORS, World, worlds},
};
use crate::{budget::Budget, ingest::StoreRules, model::ModelStore, port::*, query::Query};

/// A filter that names ids by index into the events of a world.
#[derive(Clone, Debug)]
struct FilterSpec {
    ids: Option<Vec<Index>>,
    authors: Option<Vec<PublicKey>>,
    kinds: Option<Vec<u16>>,
    topics: Option<Vec<&'static str>>,
    people: Option<Vec<PublicKey>>,
    identifiers: Option<Vec<&'static str>>,
    mentions: Option<Vec<Index>>,
    since: Option<u64>,
    until: Option<u64>,
    limit: Option<usize>,
}

#[derive(Clone, Debug)]
struct QuerySpec {
    filter_specs: Vec<FilterSpec>,
    viewer: Option<Vec<PublicKey>>,
    /// An author whose events are withheld.
    withheld: Option<PublicKey>,
    now: Millis,
}

/// Withholds an author's events in [`TOPIC`] from all other viewers, except from filters that name ids.
#[derive(Debug)]
struct WithheldAuthor(PublicKey);

impl Overlay for WithheldAuthor {
    fn withholds(&self, event: &Event, topics: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool {
        let is_author = matches!(viewer, Viewer::Client(keys) if keys.contains(&self.0));
        let is_named = filter.is_some_and(|filter| filter.ids().is_some());
        event.pubkey == self.0 && topics.iter().any(|topic| topic.as_str() == TOPIC) && !is_author && !is_named
    }
}

const KINDS: [u16; 9] = [0, 1, 5, 62, 1059, 1111, 10_002, 30_023, 7];
const TOPICS: [&str; 5] = [TOPIC, OTHER_TOPIC, "kukuri:global", "hashtag", "nothing"];

fn filter_specs() -> impl Strategy<Value = FilterSpec> {
    let rarely = 0.15;
    let lists = (
        option::weighted(rarely, vec(any::<Index>(), 0..6)),
        option::weighted(0.4, subsequence(&AUTHORS[..], 0..=AUTHORS.len())),
        option::weighted(0.4, subsequence(&KINDS[..], 0..=KINDS.len())),
        option::weighted(0.4, subsequence(&TOPICS[..], 0..=TOPICS.len())),
        option::weighted(rarely, subsequence(&AUTHORS[..], 1..=AUTHORS.len())),
        option::weighted(rarely, subsequence(&["", "a", "b"][..], 0..3)),
        option::weighted(rarely, vec(any::<Index>(), 1..6)),
    );
    let bounds = (option::weighted(0.3, 0..6u64), option::weighted(0.3, 0..6u64), option::weighted(0.6, 0..12usize));
    (lists, bounds).prop_map(|((ids, authors, kinds, topics, people, identifiers, mentions), (since, until, limit))| {
        FilterSpec { ids, authors, kinds, topics, people, identifiers, mentions, since, until, limit }
    })
}

fn query_specs() -> impl Strategy<Value = QuerySpec> {
    let viewer = prop_oneof![Just(None), subsequence(&AUTHORS[..], 0..=AUTHORS.len()).prop_map(Some)];
    let withheld = option::weighted(0.4, select(AUTHORS.to_vec()));
    (vec(filter_specs(), 1..4), viewer, withheld, select(vec![NOW, later(30)]))
        .prop_map(|(filter_specs, viewer, withheld, now)| QuerySpec { filter_specs, viewer, withheld, now })
}

impl FilterSpec {
    fn filter(&self, events: &[Event]) -> Filter {
        let id_of = |index: &Index| index.get(events).id;
        let mut filter = Filter::new();
        if let Some(ids) = &self.ids {
            filter = filter.with_ids(ids.iter().map(id_of));
        }
        if let Some(authors) = &self.authors {
            filter = filter.with_authors(authors.iter().copied());
        }
        if let Some(kinds) = &self.kinds {
            filter = filter.with_kinds(kinds.iter().copied().map(Kind));
        }
        if let Some(topics) = &self.topics {
            filter = filter.with_tag(Letter::T, topics.iter().copied());
        }
        if let Some(people) = &self.people {
            filter = filter.with_tag(Letter::P, people.iter().map(ToString::to_string));
        }
        if let Some(identifiers) = &self.identifiers {
            filter = filter.with_tag(Letter::D, identifiers.iter().copied());
        }
        if let Some(mentions) = &self.mentions {
            filter = filter.with_tag(Letter::E, mentions.iter().map(|index| id_of(index).to_string()));
        }
        if let Some(since) = self.since {
            filter = filter.with_since(at(since));
        }
        if let Some(until) = self.until {
            filter = filter.with_until(at(until));
        }
        if let Some(limit) = self.limit {
            filter = filter.with_limit(limit);
        }
        filter
    }
}

impl QuerySpec {
    fn query(&self, events: &[Event]) -> Query {
        Query {
            filters: self.filter_specs.iter().map(|spec| spec.filter(events)).collect(),
            viewer: self.viewer.as_ref().map_or(Viewer::Node, |keys| Viewer::Client(keys.as_slice().into())),
            visibility: match self.withheld {
                Some(author) => Visibility::with_overlay(Arc::new(WithheldAuthor(author))),
                None => Visibility::default(),
            },
            now: self.now,
            bytes: usize::MAX,
            budget: Budget::default(),
        }
    }
}

pub(super) fn random_filters_get_the_models_answers<H: Harness>(harness: &H) {
    let cases = (worlds(), vec(query_specs(), 1..20));
    Property { harness, name: "answers", one_in: 4 }.hold(&cases, async |(world, query_specs): (World, _)| {
        let model = ModelStore::new(StoreRules::default());
        let store = Subject::open(harness, StoreRules::default()).await;
        for batch in world.batches() {
            let batch: Vec<_> = batch.iter().map(admitted).collect();
            store.ingest(batch.clone(), NOW).await.expect("a batch");
            model.ingest(batch, NOW).await.expect("a batch");
        }
        let events = world.events();
        for spec in query_specs {
            let query = spec.query(&events);
            let found = store.query(&query).await.expect("an answer");
            let expected = model.query(&query).await.expect("an answer");
            prop_assert_eq!((found.seq, &found.events), (expected.seq, &expected.events), "{:?}", query);
            prop_assert!(names_its_answer(&*store, &query, &found).await, "{:?}", query);
            let sketch = Sketch::for_filter(&Filter::new().with_tag(Letter::E, ["any"]));
            let count = store.count(&query, sketch.clone()).await.expect("a count");
            prop_assert!(is_true(&found, count.events), "{:?} of {} matches, {:?}", found, count.events, query);
            prop_assert_eq!(count, model.count(&query, sketch).await.expect("a count"), "{:?}", query);
        }
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        let found = store.get(&ids, later(30)).await.expect("events by id");
        prop_assert_eq!(found, model.get(&ids, later(30)).await.expect("events by id"));
        Ok(())
    });
}
