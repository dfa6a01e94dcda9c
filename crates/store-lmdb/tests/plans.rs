//! Query plans depend on the number of events; the answers must not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use kukuri_domain::{EventId, Filter, Kind, Letter, PublicKey, TopicId, Viewer};
use kukuri_store::{
    Query, StoreRules,
    conformance::build::{ALICE, BOB, CAROL, NOW, OTHER_TOPIC, TOPIC, admitted, at, bare},
    model::ModelStore,
    port::*,
};
use kukuri_store_lmdb::LmdbStore;
use support::{block_on, quick};

/// More than the planner's bound for a small topic.
const EVENTS: u64 = 2_000;

#[test]
fn queries_on_large_topics_and_with_long_lists_match_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let store = LmdbStore::open(dir.path(), quick()).unwrap();
    let model = ModelStore::new(StoreRules::default());
    block_on(async {
        let events: Vec<_> = (0..EVENTS).map(|n| admitted(&event(n))).collect();
        for batch in events.chunks(400) {
            store.ingest(batch.to_vec(), NOW).await.unwrap();
            model.ingest(batch.to_vec(), NOW).await.unwrap();
        }
        for (what, filter) in filters() {
            for filter in [filter.clone(), filter.clone().with_limit(7), filter.with_since(at(300)).with_until(at(600))]
            {
                let query = Query::of(filter, Viewer::unauthenticated(), NOW);
                let (found, expected) = (ids(&store, &query).await, ids(&model, &query).await);
                assert_eq!(found, expected, "{what}: {:?}", query.filters);
                let counts = (store.count(&query, None).await.unwrap(), model.count(&query, None).await.unwrap());
                assert_eq!(counts.0, counts.1, "{what}, counted");
            }
        }
    });
}

async fn ids(store: &dyn Store, query: &Query) -> Vec<EventId> {
    store.query(query).await.unwrap().events.iter().map(|event| event.id).collect()
}

/// Most events are in one topic, some in both, a few only in the other; tags, kinds and authors vary in all of them.
fn event(n: u64) -> kukuri_domain::Event {
    let kind = [1, 7, 1111, 30_023, 10_002][n as usize % 5];
    let draft = bare(kind).by([ALICE, BOB, CAROL][n as usize % 3]).at(n * 7 % 900).content(&n.to_string());
    let draft = draft.tag(["x", ["a", "b", "c"][n as usize % 3]]).tag(["y", ["1", "2"][n as usize % 2]]);
    let draft = draft.tag(["d", &(n % 400).to_string()]);
    match n % 20 {
        0 => draft.tag(["t", OTHER_TOPIC]),
        1 => draft.tag(["t", TOPIC]).tag(["t", OTHER_TOPIC]),
        2 => draft.tag(["t", TOPIC]).tag(["t", "hashtag"]),
        _ => draft.tag(["t", TOPIC]),
    }
    .build()
}

fn filters() -> Vec<(&'static str, Filter)> {
    let x = Letter::from_name("x").unwrap();
    let y = Letter::from_name("y").unwrap();
    let large = || Filter::new().with_tag(Letter::T, [TOPIC]);
    let small = || Filter::new().with_tag(Letter::T, [OTHER_TOPIC]);
    let topics: Vec<_> = (0..30).map(|n| TopicId::new_unchecked(&format!("kukuri:{n:064x}")).to_string()).collect();
    let many_topics =
        || Filter::new().with_tag(Letter::T, topics.iter().cloned().chain([TOPIC.into(), OTHER_TOPIC.into()]));
    let many_authors = || (0..600).map(|n: u16| key(n)).chain([ALICE, CAROL]);
    let many_kinds = || (0..1_200).map(Kind);
    vec![
        ("a tag in a large topic", large().with_tag(x, ["a", "b"])),
        ("a tag in a small topic", small().with_tag(x, ["a"])),
        ("two tags in a large topic", large().with_tag(x, ["a", "c"]).with_tag(y, ["1"])),
        ("two tags in a small topic", small().with_tag(x, ["a", "c"]).with_tag(y, ["1"])),
        ("a tag in both topics", Filter::new().with_tag(Letter::T, [TOPIC, OTHER_TOPIC]).with_tag(x, ["c"])),
        (
            "a tag, a topic and a hashtag",
            Filter::new().with_tag(Letter::T, [OTHER_TOPIC, "hashtag"]).with_tag(x, ["b"]),
        ),
        (
            "a tag, authors and kinds",
            large().with_tag(y, ["2"]).with_authors([BOB]).with_kinds([Kind(7), Kind(30_023)]),
        ),
        ("a tag and authors in a small topic", small().with_tag(y, ["2"]).with_authors([BOB, ALICE])),
        ("an unknown topic", Filter::new().with_tag(Letter::T, [topics[3].as_str()]).with_tag(x, ["a"])),
        ("an unknown author", large().with_authors([key(9)])),
        ("many authors in many topics", many_topics().with_authors(many_authors())),
        ("many kinds in many topics", many_topics().with_kinds(many_kinds())),
        (
            "many authors of many replaceable kinds",
            large().with_authors(many_authors()).with_kinds((10_000..10_100).map(Kind)),
        ),
        ("authors of replaceable kinds", large().with_authors([ALICE, BOB]).with_kinds([Kind(10_002)])),
        ("any kind", Filter::new()),
        ("a tag of any topic", Filter::new().with_tag(x, ["a", "c"])),
        ("an author of any topic", Filter::new().with_authors([ALICE])),
        ("authors of any topic, and a kind", Filter::new().with_authors([BOB, CAROL]).with_kinds([Kind(7)])),
        ("a time that no event can have", large().with_since(kukuri_domain::Timestamp(1 << 60))),
    ]
}

fn key(n: u16) -> PublicKey {
    let [high, low] = n.to_be_bytes();
    let mut bytes = [0x11; 32];
    (bytes[0], bytes[1]) = (high, low);
    PublicKey::from_bytes(bytes)
}
