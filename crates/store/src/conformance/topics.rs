//! Which topics are known, which a request is bound to, and how long a topic has a record (T-4, T-9, T-10).

use std::collections::BTreeSet;

use kukuri_domain::{
    Event, Filter, Kind, Letter, Origin, PublicKey, TopicId, Viewer,
    retention::{Keep, Retention, TopicRetention},
    subscription::{IngestPolicy, SubscriptionChange},
};

use super::{
    build::{
        ALICE, BOB, CAROL, NOW, OTHER_TOPIC, TOPIC, admitted_from, bare, deletion, later, note, other_topic, topic,
        vanish,
    },
    partial_sets::{items, pull, set_of},
    probe::{effective, topics},
    story::STORED,
    subject::{Harness, Subject},
};
use crate::{ingest::StoreRules, outbox::Seq, port::Store, query::Query, report::total};

/// A topic of its own for each number.
fn numbered(number: usize) -> TopicId {
    TopicId::new_unchecked(&format!("kukuri:{number:064x}"))
}

/// An event of this kind in fifty topics that no other number has.
fn in_fifty_topics(kind: u16, number: usize) -> Event {
    let named = (0..50).map(|one| numbered(1_000 * (number + 1) + one));
    let draft = named.fold(bare(kind), |draft, topic| draft.tag(["t", topic.as_str()]));
    let draft = if kind == 62 { draft.tag(["relay", "wss://elsewhere.example.com"]) } else { draft };
    draft.content(&number.to_string()).build()
}

/// The topics that an event is bound to.
async fn bound(store: &dyn Store, event: &Event) -> Vec<TopicId> {
    store.explain(&event.id).await.expect("an explanation").row.expect("a row").topics
}

async fn answer(store: &dyn Store, filter: Filter) -> BTreeSet<kukuri_domain::EventId> {
    let query = Query::of(filter, Viewer::unauthenticated(), NOW);
    let answer = store.query(&query).await.expect("an answer");
    assert_eq!(store.count(&query, None).await.expect("a count").events, answer.events.len() as u64, "{query:?}");
    answer.events.iter().map(|event| event.id).collect()
}

async fn ids_of(store: &dyn Store) -> Vec<TopicId> {
    topics(store).await.into_iter().map(|stats| stats.topic).collect()
}

/// T-9: enabled topics, and topics with stored events, hidden ones included. Other `t` values stay tags.
pub(super) async fn a_request_is_bound_to_the_known_topics_that_it_names<H: Harness>(harness: &H) {
    let text = note("text").build();
    let hidden = note("hidden").by(BOB).build();
    let hiding = bare(5).tag(["t", OTHER_TOPIC]).by(BOB).of(&hidden).build();
    let named = |kind: u16| bare(kind).tag(["t", TOPIC]).tag(["t", OTHER_TOPIC]).by(CAROL);
    let elsewhere = "wss://elsewhere.example.com";
    for (why, before, enabled, expected) in [
        ("no topic is known", vec![], vec![], vec![TopicId::global()]),
        ("one holds an event", vec![&text], vec![], vec![topic()]),
        ("one holds a hidden row", vec![&hidden, &hiding], vec![], vec![topic()]),
        ("one is enabled and empty", vec![], vec![other_topic()], vec![other_topic()]),
        ("both", vec![&text], vec![other_topic()], vec![topic(), other_topic()]),
    ] {
        for request in [named(5).build(), named(62).tag(["relay", elsewhere]).build()] {
            for origin in [Origin::unauthenticated_client(), Origin::Sync { peer: [7; 32] }, Origin::Import] {
                let mut store = Subject::open(harness, StoreRules::default()).await;
                store.send(&before).await;
                for topic in &enabled {
                    store.subscribe(topic, IngestPolicy::default()).await;
                }
                let batch = vec![admitted_from(&request, origin.clone())];
                assert_eq!(store.ingest(batch, NOW).await.expect("a batch").outcomes, [STORED], "{why}");
                store.reopen().await;
                assert_eq!(bound(&*store, &request).await, expected, "{why}, {origin:?}");
                let rows = store.outbox(Seq(0), usize::MAX).await.expect("rows");
                let announced = rows.into_iter().filter(|row| row.event_id == request.id).map(|row| row.topic);
                assert_eq!(announced.collect::<Vec<_>>(), expected, "{why}: the outbox");
                assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new(), "{why}");

                // It is found by every `t` value, whatever it is bound to.
                let by_topic = |topic: &TopicId| Filter::new().with_tag(Letter::T, [topic.as_str()]);
                for topic in [topic(), other_topic()].iter().chain(&expected) {
                    for (filter, is_found) in [
                        (by_topic(topic), true),
                        (by_topic(topic).with_authors([CAROL]), true),
                        (by_topic(topic).with_authors([ALICE]), false),
                        (by_topic(topic).with_kinds([request.kind]), true),
                        (by_topic(topic).with_kinds([Kind(1)]), false),
                        (by_topic(topic).with_ids([request.id]), true),
                        (by_topic(topic).with_authors([CAROL]).with_kinds([request.kind, Kind(1)]), true),
                        (by_topic(topic).with_tag(Letter::T, [topic.as_str(), "hashtag"]), true),
                    ] {
                        let found = answer(&*store, filter.clone()).await.contains(&request.id);
                        assert_eq!(found, is_found, "{why}: {filter:?}");
                    }
                }
            }
        }
    }
}

/// T-9, T-10: whatever requests name, by any way.
pub(super) async fn requests_make_no_topic_known<H: Harness>(harness: &H) {
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&note("text").build()]).await;
    for number in 0..40 {
        let [deletion, vanish] = [5, 62].map(|kind| in_fifty_topics(kind, number));
        let origin = if number % 2 == 0 { Origin::Sync { peer: [7; 32] } } else { Origin::unauthenticated_client() };
        let batch = [&deletion, &vanish].map(|event| admitted_from(event, origin.clone())).to_vec();
        assert_eq!(store.ingest(batch, NOW).await.expect("a batch").outcomes, [STORED, STORED]);
    }
    let expected = [topic(), TopicId::global()];
    assert_eq!(ids_of(&*store).await, expected);
    store.reopen().await;
    assert_eq!(ids_of(&*store).await, expected, "after a restart");
    store.move_on().await;
    assert_eq!(ids_of(&*store).await, expected, "in another place");
    let one = numbered(3_007);
    assert_eq!(answer(&*store, Filter::new().with_tag(Letter::T, [one.as_str()])).await.len(), 2, "found by its tag");
    assert_eq!(answer(&*store, Filter::new().with_tag(Letter::T, ["kukuri:global"])).await.len(), 80);
    assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
}

/// G-7, T-9: shared sets do not depend on what a node knew when a request came.
pub(super) async fn a_request_is_told_alike_wherever_it_is_bound<H: Harness>(harness: &H) {
    let [text, other] = [note("text").build(), bare(1).tag(["t", OTHER_TOPIC]).build()];
    let request = bare(5).tag(["t", TOPIC]).tag(["t", OTHER_TOPIC]).by(BOB).at(1).build();
    let farewell = || bare(62).tag(["relay", "ALL_RELAYS"]).by(BOB).at(2);
    let without_topic = farewell().build();
    let third = farewell().tag(["t", numbered(3).as_str()]).build();
    for (why, arrivals) in [
        ("a request alone", vec![&request]),
        ("a vanish request without a topic", vec![&request, &without_topic]),
        ("a vanish request in a third topic", vec![&request, &third]),
    ] {
        let (early, late) =
            (Subject::open(harness, StoreRules::default()), Subject::open(harness, StoreRules::default()));
        let (early, late) = (early.await, late.await);
        let mut partly = Subject::open(harness, StoreRules::default()).await;
        let all: Vec<&Event> = arrivals.iter().copied().chain([&text, &other]).collect();
        for event in &all {
            early.send(&[event]).await;
        }
        late.send(&[&text, &other]).await;
        late.send(&arrivals).await;
        partly.send(&[&other]).await;
        partly.send(&arrivals).await;
        partly.send(&[&text]).await;
        partly.reopen().await;
        for topic in [topic(), other_topic(), numbered(3), TopicId::global()] {
            let expected = items(&*late, &set_of(&topic), 10).await;
            for store in [&early, &partly] {
                assert_eq!(items(&**store, &set_of(&topic), 10).await, expected, "{why} in {topic}");
                let ids: Vec<_> = expected.iter().map(|item| item.id).collect();
                let given = store.share(&set_of(&topic), &ids).await.expect("items");
                assert_eq!(given, late.share(&set_of(&topic), &ids).await.expect("items"), "{why} in {topic}");
                assert!(given.iter().all(Option::is_some), "{why} in {topic}: {given:?}");
            }
        }
        // A node that carries one of the topics gets all of it, and nothing twice.
        let node = Subject::open(harness, StoreRules::default()).await;
        node.send(&[&request]).await;
        while pull(&*node, &*early, &topic()).await > 0 {}
        let without_other: BTreeSet<_> =
            effective(&*early, NOW).await.into_iter().filter(|id| *id != other.id).collect();
        assert_eq!(effective(&*node, NOW).await, without_other, "{why}");
        assert_eq!(items(&*node, &set_of(&topic()), 10).await, items(&*early, &set_of(&topic()), 10).await, "{why}");
    }
}

/// T-10: neither enabled, nor with a row or a policy.
pub(super) async fn a_topic_that_holds_nothing_goes<H: Harness>(harness: &H) {
    let day = 24 * 3_600;
    let keep = Retention { regular: Keep::days(1), replaced: Keep::days(1), ..Retention::default() };
    let other = other_topic();
    let policy = IngestPolicy {
        retention: TopicRetention { regular: Some(Keep::Forever), ..TopicRetention::default() },
        ..IngestPolicy::default()
    };
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&note("text").tag(["t", OTHER_TOPIC]).build(), &bare(0).by(CAROL).build()]).await;
    assert_eq!(ids_of(&*store).await, [topic(), other_topic(), TopicId::global()]);
    // The row of both topics vanishes; the request is bound to one of them.
    store.send(&[&vanish().at(5).build()]).await;
    assert_eq!(ids_of(&*store).await, [topic(), TopicId::global()]);
    store.change_subscription(&TopicId::global(), SubscriptionChange::disable(), NOW).await.expect("a change");
    store.send(&[&bare(62).tag(["t", TOPIC]).tag(["relay", "ALL_RELAYS"]).by(CAROL).at(5).build()]).await;
    assert_eq!(ids_of(&*store).await, [topic()]);
    assert_eq!(store.topic_stats(&[other_topic(), topic()]).await.expect("figures")[0], None);
    store.reopen().await;
    assert_eq!(ids_of(&*store).await, [topic()], "after a restart");

    // While a topic is enabled, or has a policy, its record stays.
    let ends = |content: &str| note(content).tag(["t", OTHER_TOPIC]).by(BOB).until(10).build();
    store.subscribe(&other_topic(), policy).await;
    store.send(&[&ends("first")]).await;
    store.expire(later(20)).await.expect("a sweep");
    let listed = topics(&*store).await;
    assert_eq!((&listed[1].topic, total(&listed[1].by_class).events), (&other_topic(), 0), "enabled");
    assert_eq!(listed[1].last_event_at, Some(NOW), "the time of its last event stays");
    store.change_subscription(&other, SubscriptionChange::disable(), later(20)).await.expect("a change");
    assert_eq!(ids_of(&*store).await, [topic(), other_topic()], "it has a policy");
    let plain = SubscriptionChange { policy: Some(IngestPolicy::default()), ..SubscriptionChange::default() };
    store.change_subscription(&other, plain, later(20)).await.expect("a change");
    assert_eq!(ids_of(&*store).await, [topic()], "nothing is left");
    store.reopen().await;
    store.move_on().await;
    assert_eq!(ids_of(&*store).await, [topic()], "in another place");

    // It comes back with its next event, and goes when that is purged.
    let again = note("again").tag(["t", OTHER_TOPIC]).by(BOB).at(9).build();
    store.send_at(30, &again).await;
    assert_eq!(bound(&*store, &again).await, [topic(), other_topic()]);
    let rows = store.outbox(Seq(0), usize::MAX).await.expect("rows");
    let named: BTreeSet<_> = rows.iter().map(|row| row.topic.clone()).collect();
    assert_eq!(
        named,
        [topic(), other_topic(), TopicId::global()].into(),
        "rows of a topic that was gone still name it"
    );
    assert_eq!(topics(&*store).await[1].last_event_at, Some(later(30)));
    for days in [1, 2, 40, 41] {
        store.observe_clock(later(days * day)).await.expect("a clock");
        store.confirm_clock(later(days * day)).await.expect("a clock");
        store.purge(&keep, later(days * day)).await.expect("a purge");
    }
    assert_eq!(ids_of(&*store).await, [topic()], "purged");
    assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());
    let late = note("late").tag(["t", OTHER_TOPIC]).by(BOB).at(10).build();
    assert_eq!(store.send_at(42 * day, &late).await, STORED);
    assert_eq!(ids_of(&*store).await, [topic(), other_topic()], "and comes again");
    assert_eq!(store.check().await.expect("a check").problems, Vec::<String>::new());

    // A subscription that use opened and idleness closed says nothing.
    store.change_subscription(&numbered(1), SubscriptionChange::open(), NOW).await.expect("a change");
    store.change_subscription(&numbered(1), SubscriptionChange::close_idle(), NOW).await.expect("a change");
    store.reopen().await;
    let subscriptions = store.subscriptions().await.expect("subscriptions");
    assert!(subscriptions.iter().all(|one| one.topic != numbered(1)), "{subscriptions:?}");
}

/// T-10: `stats` has no list of topics.
pub(super) async fn topics_are_listed_in_pages<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    let authors = [ALICE, BOB, CAROL];
    let event = |number: usize, author: PublicKey| bare(1).tag(["t", numbered(number).as_str()]).by(author).build();
    let events: Vec<Event> = (0..25).map(|number| event(number, authors[number % 3])).collect();
    store.send(&events.iter().collect::<Vec<_>>()).await;
    store.send(&[&deletion().tag(["t", numbered(2).as_str()]).build()]).await;
    let all: Vec<TopicId> = (0..25).map(numbered).collect();
    assert_eq!(ids_of(&*store).await, all);
    for limit in [1, 24, 25, 26, 100] {
        let page = store.list_topics(None, limit).await.expect("topics");
        assert_eq!(page.len(), limit.min(25));
        let rest = store.list_topics(Some(&page[page.len() - 1].topic), 100).await.expect("topics");
        assert_eq!(page.len() + rest.len(), 25);
    }
    let asked = [numbered(2), numbered(99), numbered(1), numbered(2)];
    let found = store.topic_stats(&asked).await.expect("figures");
    let found: Vec<_> = found.iter().map(|stats| stats.as_ref().map(|it| (it.topic.clone(), it.effective))).collect();
    let expected = [Some((numbered(2), 2)), None, Some((numbered(1), 1)), Some((numbered(2), 2))];
    assert_eq!(found, expected);
}
