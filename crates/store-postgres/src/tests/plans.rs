//! Query plans of the server for each shape of filter: by an index, newest first, up to the limit.

use kukuri_domain::{Event, Filter, Kind, Letter, PublicKey, Viewer};
use kukuri_postgres::SqlRow;
use kukuri_store::{
    Query,
    conformance::build::{ALICE, BOB, NOW, OTHER_TOPIC, TOPIC, admitted, article, deletion, note, profile},
    port::*,
};

use super::{
    patient,
    support::{Database, block_on, run},
};
use crate::{
    PostgresStore,
    batch::{AUTHORS, VERSIONS},
    columns::{Column as _, Digest, array, query as sql_query, signed},
    lookup::SNAPSHOT_PAGE,
    plan::{Bind, Part, Plan},
    sharing::{EVENTS as SHARED_EVENTS, TRACES},
};

/// Enough rows that a sequential scan is never the best plan.
const EVENTS: u64 = 20_000;

fn author(number: u64) -> PublicKey {
    let mut bytes = [7; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    PublicKey::from_bytes(bytes)
}

fn events() -> Vec<Event> {
    let mut events: Vec<Event> = (0..EVENTS)
        .map(|number| {
            let draft = note(&format!("note {number}")).at(number % 900).by(author(number % 200));
            let draft = draft.tag(["r", &format!("link {}", number % 100)]).tag(["t", &format!("hash{}", number % 50)]);
            if number.is_multiple_of(4) { draft.tag(["t", OTHER_TOPIC]).build() } else { draft.build() }
        })
        .collect();
    events.extend((0..2_000).map(|number| profile("p").by(author(number)).build()));
    events.extend((0..200).map(|number| article(&format!("a{number}"), "text").by(ALICE).build()));
    events
}

/// A value as text, for EXPLAIN with the generic plan.
fn text_of(bind: &Bind) -> String {
    let list = |items: Vec<String>| format!("'{{{}}}'", items.join(","));
    let bytes = |bytes: &[u8]| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\"\\\\x{digits}\"")
    };
    match bind {
        Bind::Number(number) => number.map_or("NULL".to_owned(), |number| number.to_string()),
        Bind::Numbers(numbers) => list(numbers.iter().map(ToString::to_string).collect()),
        Bind::Ids(ids) => list(ids.iter().map(|id| bytes(&id.0)).collect()),
        Bind::Digests(digests) => list(digests.iter().map(|digest| bytes(&digest.0)).collect()),
        Bind::Texts(texts) => list(texts.iter().map(|text| format!("\"{text}\"")).collect()),
    }
}

#[test]
fn no_filter_reads_a_whole_table_or_more_than_its_limit() {
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let events = events();
        for batch in events.chunks(1_000) {
            store.ingest(batch.iter().map(admitted).collect(), NOW).await.unwrap();
        }
        run(&database.url(), "ANALYZE").await.unwrap();

        let limited = || Filter::new().with_limit(50);
        let two = [author(3), author(4)];
        for (shape, filter, index) in [
            ("ids", limited().with_ids(events[..20].iter().map(|event| event.id)), "event_dedupe_pkey"),
            ("keys", limited().with_authors(two).with_kinds([Kind(0)]), "replaceable_current_pkey"),
            ("topic", limited().with_tag(Letter::T, [TOPIC]), "_topic_created_at_id_idx"),
            ("topics", limited().with_tag(Letter::T, [TOPIC, OTHER_TOPIC]), "_topic_created_at_id_idx"),
            (
                "topic and kinds",
                limited().with_tag(Letter::T, [TOPIC]).with_kinds([Kind(1), Kind(30_023)]),
                "_topic_kind_created_at_id_idx",
            ),
            (
                "topic and authors",
                limited().with_tag(Letter::T, [OTHER_TOPIC]).with_authors(two),
                "_topic_pubkey_created_at_id_idx",
            ),
            ("tag", limited().with_tag(Letter::from_name("r").unwrap(), ["link 7"]), "_tag_created_at_id_idx"),
            (
                "tag in a topic",
                limited().with_tag(Letter::from_name("r").unwrap(), ["link 7"]).with_tag(Letter::T, [TOPIC]),
                "_tag_created_at_id_idx",
            ),
            ("hashtag", limited().with_tag(Letter::T, ["hash3"]), "_tag_created_at_id_idx"),
            ("authors", limited().with_authors([ALICE, BOB, author(5)]), "_pubkey_created_at_id_idx"),
            ("kinds", limited().with_kinds([Kind(1), Kind(7)]), "_kind_created_at_id_idx"),
            ("all", limited(), "_created_at_id_idx"),
            ("a window", limited().with_until(events[100].created_at), "_created_at_id_idx"),
        ] {
            for viewer in [Viewer::unauthenticated(), Viewer::Client([ALICE].into())] {
                let query = Query::of(filter.clone(), viewer, NOW);
                let Plan { sql, binds } = Plan::of(&query, &filter, Some(51), Part::Event);
                let values = binds.iter().map(text_of).collect::<Vec<_>>().join(", ");
                let session = store.pools.readers.acquire().await.unwrap();
                session.run(format!("PREPARE plan AS {sql}")).await.unwrap();
                let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) EXECUTE plan ({values})");
                let rows = sql_query(explain).fetch_all(&session).await.unwrap();
                let lines = lines_of(&rows);
                let plan = lines.join("\n");
                // Sequential scans of tables with few rows, and of empty months, are fine.
                let large = ["_default_202311", "event_dedupe", "replaceable_current"];
                let is_large = |line: &&String| large.iter().any(|table| line.contains(table));
                let whole: Vec<_> = lines.iter().filter(|line| line.contains("Seq Scan")).filter(is_large).collect();
                assert!(whole.is_empty(), "{shape}: {whole:?}\n{plan}");
                // The head comes first, then events in order, each as soon as it is found.
                assert!(lines[0].starts_with("Append"), "{shape}\n{plan}");
                assert!(plan.contains(index), "{shape} goes by {index}\n{plan}");
                let most = most_rows(&lines);
                assert!(most <= 400, "{shape} looks at {most} rows\n{plan}");
            }
        }
    });
}

#[test]
fn snapshot_page_reads_no_more_rows_than_a_page() {
    // O-8
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let batch = (0..3_000).map(|number| admitted(&note(&format!("note {number}")).build())).collect();
        store.ingest(batch, NOW).await.unwrap();
        let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {SNAPSHOT_PAGE}");
        let explain = sql_query(explain).bind(1_000i64).bind(50i64).bind(1i64 << 20);
        let lines = lines_of(&store.pools.readers.fetch_all(explain).await.unwrap());
        assert!(most_rows(&lines) <= 60, "{}", lines.join("\n"));
    });
}

#[test]
fn shared_set_page_reads_no_more_rows_than_a_page() {
    // G-7: newest first, from any position.
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let notes = (0..3_000).map(|number| note(&format!("note {number}")).at(number % 900).build());
        let versions: Vec<Event> = (0..900).map(|number| article(&number.to_string(), "").at(number).build()).collect();
        let requests = versions.iter().map(|version| deletion().of(version).at(950).build());
        for batch in [notes.collect(), versions.clone(), requests.collect::<Vec<_>>()] {
            store.ingest(batch.iter().map(admitted).collect(), NOW).await.unwrap();
        }
        run(&database.url(), "ANALYZE").await.unwrap();
        let middle = signed(versions[450].created_at.0);
        for (sql, index) in [(SHARED_EVENTS, "_topic_created_at_id_idx"), (TRACES, "traces_by_time")] {
            let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {sql}");
            let query = sql_query(explain).bind(TOPIC).bind(middle).bind(vec![0u8]).bind(-1i64).bind(vec![0u8]);
            let query = match sql {
                SHARED_EVENTS => query.bind(signed(NOW.seconds().0)).bind(0i64).bind(0i16).bind(50i64),
                _ => query.bind(50i64),
            };
            let lines = lines_of(&store.pools.readers.fetch_all(query).await.unwrap());
            let plan = lines.join("\n");
            assert!(plan.contains(index), "{plan}");
            assert!(most_rows(&lines) <= 60, "{plan}");
        }
    });
}

#[test]
fn whether_authors_have_an_event_is_one_seek_for_each() {
    // P-6
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let notes: Vec<_> =
            (0..3_000).map(|number| note(&format!("note {number}")).by(author(number % 3)).build()).collect();
        store.ingest(notes.iter().map(admitted).collect(), NOW).await.unwrap();
        run(&database.url(), "ANALYZE").await.unwrap();
        let asked: Vec<_> = (0..6).map(author).collect();
        let read: Vec<Digest> = vec![notes[0].id.to_sql()];
        let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {AUTHORS}");
        let explain = sql_query(explain).bind(array(&asked)).bind(read.clone());
        let lines = lines_of(&store.pools.readers.fetch_all(explain).await.unwrap());
        let plan = lines.join("\n");
        assert!(plan.contains("_pubkey_created_at_id_idx") && most_rows(&lines) <= 6, "{plan}");
        let known = sql_query(AUTHORS).bind(array(&asked)).bind(read);
        let known = store.pools.readers.fetch_all(known).await.unwrap();
        assert_eq!(known.len(), 3);
    });
}

#[test]
fn a_repeated_deletion_by_address_reads_no_deleted_version() {
    // D-4: requests with the same addresses may come again and again, and each reads under the writers' lock.
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let key = |number: u64| (number % 3).to_string();
        let versions: Vec<Event> = (0..900).map(|number| article(&key(number), "").at(number / 3).build()).collect();
        let request = |second| {
            let keys = versions[..3].iter().fold(deletion().at(second), |request, version| request.of_key(version));
            keys.build()
        };
        let keys: Vec<Digest> =
            versions[..3].iter().map(|version| version.address().unwrap().digest().to_sql()).collect();
        let rows_read = async || {
            run(&database.url(), "ANALYZE").await.unwrap();
            let explain = format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {VERSIONS}");
            let explain = sql_query(explain).bind(&keys).bind(vec![signed(NOW.seconds().0); 3]);
            let lines = lines_of(&store.writer.pool.fetch_all(explain).await.unwrap());
            let plan = lines.join("\n");
            assert!(plan.contains("_key_created_at_idx"), "{plan}");
            (most_rows(&lines), plan)
        };
        let deleted = async |events: &[Event]| {
            let batch = events.iter().map(admitted).collect();
            store.ingest(batch, NOW).await.unwrap().deletions.deleted_count
        };
        deleted(&versions).await;
        let (rows, plan) = rows_read().await;
        assert_eq!(rows, 897, "all but the effective versions\n{plan}");
        assert_eq!(deleted(&[request(500)]).await, 900);
        // No row of the two tables is read, only the three keys.
        let (rows, plan) = rows_read().await;
        assert_eq!(rows, 3, "{plan}");
        assert_eq!(deleted(&[request(501)]).await, 0);

        // Later versions are found as before.
        let more: Vec<Event> = (0..6).map(|number| article(&key(number), "").at(510 + number / 3).build()).collect();
        deleted(&more).await;
        assert_eq!(rows_read().await.0, 3);
        assert_eq!(deleted(&[request(520)]).await, 6);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
    });
}

/// The lines of a plan.
fn lines_of(rows: &[SqlRow]) -> Vec<String> {
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

/// Most rows that a node of a plan returned in one loop.
fn most_rows(lines: &[String]) -> u64 {
    let rows = lines.iter().filter_map(|line| line.split("rows=").nth(1)?.split(' ').next()?.parse().ok());
    rows.max().unwrap_or_default()
}
