//! `GET /v1/search`: hits, pages, parameters, errors.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed};

use crate::support::{Answer, Node, encoded, set_clock};
use axum::http::Request;
use kukuri_domain::{Event, topic::TopicsMode};
use kukuri_store::{
    conformance::build::{BOB, NOW, OTHER_TOPIC, TOPIC, article, at, deletion, event, later, note},
    port::*,
};

async fn search(node: &Node, question: &str, rest: &str) -> Answer {
    node.get(&format!("/v1/search?topic={TOPIC}&q={}{rest}", encoded(question))).await
}

fn ids(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    let hits = json["items"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    hits.iter().map(|hit| hit["event"]["id"].as_str().unwrap().to_owned()).collect()
}

fn id(event: &Event) -> String {
    event.id.to_string()
}

#[tokio::test]
async fn hit_is_the_stored_event_with_a_snippet() {
    // C-1
    let node = Node::searching(TopicsMode::Required);
    let first = note("緑茶 <b>green</b> tea in 東京").tag(["t", OTHER_TOPIC]).build();
    node.send(std::slice::from_ref(&first)).await;
    node.index(std::slice::from_ref(&first)).await;
    let titled = article("a", "how it is made").tag(["title", "Green tea"]).build();
    node.send(std::slice::from_ref(&titled)).await;

    let answer = search(&node, "ＧＲＥＥＮ tea", "").await;
    assert_eq!(ids(&answer), [id(&titled), id(&first)], "an event that the index does not have yet comes first");
    let hits = answer.json();
    assert!(hits["items"][0]["score"].is_null());
    assert!(hits["items"][1]["score"].as_f64().unwrap() > 0.0);
    assert_eq!(hits["items"][1]["topics"].as_array().unwrap().len(), 2);
    assert_eq!(hits["items"][0]["snippet"]["html"], "<mark>Green</mark> <mark>tea</mark> how it is made");
    assert_eq!(
        hits["items"][1]["snippet"]["html"],
        "緑茶 &lt;b&gt;<mark>green</mark>&lt;/b&gt; <mark>tea</mark> in 東京"
    );
    assert_eq!(hits["items"][1]["snippet"]["text"], "緑茶 <b>green</b> tea in 東京");
    assert!(hits["cursor"].is_null());
    let stored = node.store.get(&[first.id], NOW).await.unwrap().remove(0).unwrap();
    assert!(answer.text.contains(str::from_utf8(&stored.event.json).unwrap()), "byte for byte");
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test]
async fn deleted_expired_and_private_events_are_not_found_even_if_indexed() {
    // C-1, W-3, X-2, E-10
    let node = Node::searching(TopicsMode::Required);
    let [deleted, kept] = ["tea one", "tea two"].map(|text| note(text).build());
    let expiring = note("tea three").until(10).build();
    let private = event(4).content("tea four").build();
    let all = [deleted.clone(), kept.clone(), expiring.clone(), private.clone()];
    node.send(&all).await;
    assert_eq!(ids(&search(&node, "tea", "").await).len(), 3, "not in the index yet, the private one aside");
    node.index(&all).await;
    node.send(&[deletion().of(&deleted).build()]).await;
    set_clock(later(10));
    assert_eq!(ids(&search(&node, "tea", "").await), [id(&kept)]);
}

#[tokio::test]
async fn every_parameter_narrows_the_search() {
    let node = Node::searching(TopicsMode::Global);
    let plain = note("tea").at(1).build();
    let by_bob = note("tea by bob").by(BOB).at(2).build();
    let written = article("a", "tea, at length").at(3).build();
    let elsewhere = event(1111).content("tea elsewhere").at(4).build();
    let other = kukuri_store::conformance::build::bare(1).tag(["t", OTHER_TOPIC]).content("tea, other").at(5).build();
    let all = [&plain, &by_bob, &written, &elsewhere, &other].map(Clone::clone);
    node.send(&all).await;
    node.index(&all).await;
    let (from, to) = (at(2), at(3));
    for (parameters, expected, why) in [
        (String::new(), vec![&plain, &by_bob, &written, &elsewhere, &other], "T-7: everything"),
        (format!("&topic={OTHER_TOPIC}"), vec![&other], "a topic"),
        (format!("&topic={OTHER_TOPIC}&topic={TOPIC}&kinds=1"), vec![&plain, &by_bob, &other], "any of two topics"),
        ("&kinds=30023,1111".to_owned(), vec![&written, &elsewhere], "any of two kinds"),
        (format!("&author={BOB}"), vec![&by_bob], "an author"),
        (format!("&author={BOB}&author={}&kinds=1111", plain.pubkey), vec![&elsewhere], "any of two authors"),
        (format!("&since={from}&until={to}"), vec![&by_bob, &written], "both ends included"),
        ("&since=9007199254740991".to_owned(), vec![], "nothing so late"),
    ] {
        let answer = node.get(&format!("/v1/search?q=tea{parameters}")).await;
        let found: BTreeSet<String> = ids(&answer).into_iter().collect();
        assert_eq!(found, expected.iter().map(|event| id(event)).collect(), "{why}");
    }
}

#[tokio::test]
async fn pages_repeat_and_miss_no_hit_while_the_index_catches_up() {
    let node = Node::searching(TopicsMode::Required);
    let notes = |from: u64, to: u64| -> Vec<Event> {
        (from..to).map(|number| note(&format!("tea {number}")).at(number).build()).collect()
    };
    let (old, new) = (notes(0, 30), notes(30, 55));
    node.send(&old).await;
    node.index(&old).await;
    node.send(&new).await;
    let mut found = Vec::new();
    let mut cursor = String::new();
    for page in 0.. {
        let answer = search(&node, "tea", &format!("&limit=7{cursor}")).await;
        found.extend(ids(&answer));
        match page {
            // Some of the new ones have been shown, some have not.
            1 => node.index(&new).await,
            4 => {
                let newer = notes(55, 60);
                node.send(&newer).await;
                node.index(&newer).await;
            }
            _ => {}
        }
        let json = answer.json();
        let Some(next) = json["cursor"].as_str() else { break };
        assert_eq!(json["items"].as_array().unwrap().len(), 7, "a page that is not the last is full");
        cursor = format!("&cursor={next}");
        assert!(page < 20, "the last page has no cursor");
    }
    let once: BTreeSet<&String> = found.iter().collect();
    assert_eq!(found.len(), once.len(), "each once");
    let missing: Vec<&Event> = old.iter().chain(&new).filter(|event| !once.contains(&id(event))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn pages_end_at_the_bytes_that_are_reserved_and_their_cursors_go_on() {
    // Y-2
    let node = Node::searching(TopicsMode::Required);
    let large = |number: u64| note(&format!("tea {number:<20000}")).at(number).build();
    let (deleted, shown): (Vec<Event>, Vec<Event>) = (0..40).map(large).partition(|event| event.created_at.0 % 2 == 0);
    let (indexed, unindexed) = shown.split_at(12);
    let in_index = [deleted.as_slice(), indexed].concat();
    node.send(&in_index).await;
    node.index(&in_index).await;
    node.send(unindexed).await;
    node.send(&deleted.iter().map(|event| deletion().of(event).build()).collect::<Vec<_>>()).await;
    for (bytes, least, most) in [(usize::MAX, 20, 20), (250_000, 1, 12), (1, 1, 1)] {
        node.gate.answer_bytes.store(bytes, Relaxed);
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let answer = search(&node, "tea", &format!("&limit=50{cursor}")).await;
            let hits = ids(&answer);
            assert!(answer.text.len() <= bytes || hits.len() == 1, "{}", answer.text.len());
            let json = answer.json();
            let next = json["cursor"].as_str();
            assert!(next.is_none() || (least..=most).contains(&hits.len()), "{bytes}: {}", hits.len());
            found.extend(hits);
            let Some(next) = next else { break };
            cursor = format!("&cursor={next}");
        }
        let once: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), once.len()), (shown.len(), shown.len()), "{bytes}: all of them, each once");
    }
}

#[tokio::test]
async fn pages_come_to_the_index_past_unindexed_events_of_another_author() {
    // Y-2
    let node = Node::searching(TopicsMode::Required);
    let indexed: Vec<Event> = (0..30).map(|number| note(&format!("tea {number}")).at(number).build()).collect();
    node.send(&indexed).await;
    node.index(&indexed).await;
    node.send(&(0..2_100).map(|number| note(&format!("tea {number}")).by(BOB).build()).collect::<Vec<_>>()).await;
    let (mut found, mut cursor, mut pages) = (BTreeSet::new(), String::new(), 0);
    loop {
        let answer = search(&node, "tea", &format!("&author={}&limit=7{cursor}", indexed[0].pubkey)).await;
        found.extend(ids(&answer));
        pages += 1;
        let json = answer.json();
        let Some(next) = json["cursor"].as_str() else { break };
        assert_ne!(cursor, format!("&cursor={next}"), "it advances");
        cursor = format!("&cursor={next}");
    }
    assert_eq!((found, pages), (indexed.iter().map(id).collect(), 5));
}

#[tokio::test]
async fn search_without_time_gets_503_and_not_an_empty_page_with_the_same_cursor() {
    // U-4
    let node = Node::searching(TopicsMode::Required);
    let indexed = note("tea").build();
    node.send(std::slice::from_ref(&indexed)).await;
    node.index(std::slice::from_ref(&indexed)).await;
    *node.gate.deadline.lock().unwrap() = Some(std::time::Instant::now());
    assert_eq!(search(&node, "tea", "").await.code(), (503, "TIMEOUT".to_owned()));
    *node.gate.deadline.lock().unwrap() = None;
    assert_eq!(ids(&search(&node, "tea", "").await), [id(&indexed)]);
}

#[tokio::test]
async fn limit_is_clamped() {
    let node = Node::searching(TopicsMode::Required);
    let notes: Vec<Event> = (0..60).map(|number| note(&format!("tea {number}")).build()).collect();
    node.send(&notes).await;
    node.index(&notes).await;
    let huge = "9".repeat(30);
    for (limit, expected) in [("", 20), ("&limit=0", 1), ("&limit=-5", 1), ("&limit=5", 5), ("&limit=1000", 50)] {
        assert_eq!(ids(&search(&node, "tea", limit).await).len(), expected, "{limit}");
    }
    assert_eq!(ids(&search(&node, "tea", &format!("&limit={huge}")).await).len(), 50);
    assert_eq!(ids(&search(&node, "tea", &format!("&limit=-{huge}")).await).len(), 1);
}

#[tokio::test]
async fn invalid_parameters_get_400_with_a_reason() {
    let node = Node::searching(TopicsMode::Required);
    let long = "a ".repeat(5_000);
    let many: String = (0..65).map(|number| format!("{number} ")).collect();
    for question in ["", " ", "!?…", ".*", "^[$]+(?:)", "\u{0}", "tea\u{7}", "language:en", &long, &many] {
        assert_eq!(search(&node, question, "").await.refused_parameter().as_deref(), Some("q"), "{question:?}");
    }
    let repeated = format!("&author={BOB}").repeat(101);
    for rest in [
        "&limit=many",
        "&limit=",
        "&limit=1.5",
        "&since=-1",
        "&since=yesterday",
        "&until=9007199254740992",
        "&until=99999999999999999999999",
        "&kinds=",
        "&kinds=1,,2",
        "&kinds=65536",
        "&author=bob",
        "&author=",
        "&cursor=",
        "&cursor=1",
        "&cursor=1700000000.99999999..",
        "&cursor=%00",
        "&q=twice",
        "&language=en",
        "&=",
        "&%FF%FE=1",
        &repeated,
    ] {
        let name = rest.trim_start_matches('&').split('=').next().unwrap();
        let name = if name == "%FF%FE" { "\u{fffd}\u{fffd}" } else { name };
        assert_eq!(search(&node, "tea", rest).await.refused_parameter().as_deref(), Some(name), "{rest}");
    }
    for topic in ["kukuri:cats", "", "%20", "kukuri:*"] {
        let answer = node.get(&format!("/v1/search?q=tea&topic={topic}")).await;
        assert_eq!(answer.refused_parameter().as_deref(), Some("topic"), "T-1: {topic}");
    }
    // T-6
    assert_eq!(node.get("/v1/search?q=tea").await.refused_parameter().as_deref(), Some("topic"));
    assert_eq!(node.get(&format!("/v1/search?topic={TOPIC}")).await.refused_parameter().as_deref(), Some("q"));
    let unknown = search(&node, "tea", "&language=en").await.json()["error"]["message"].to_string();
    assert!(unknown.contains("`language` is unknown; there are topic, q, kinds"), "{unknown}");
    // These look bad, but are valid.
    for question in ["a.*b", "'; DROP TABLE events; --", "tea\n\ttime", "\" OR \"1", "C++", "\u{202e}tea"] {
        assert_eq!(search(&node, question, "").await.status, 200, "{question:?}");
    }
}

#[tokio::test]
async fn missing_index_and_failing_store_get_503() {
    let switched_off = Node::new(TopicsMode::Required);
    assert_eq!(search(&switched_off, "tea", "").await.code(), (503, "SEARCH_UNAVAILABLE".to_owned()));
    let node = Node::searching(TopicsMode::Required);
    node.lose_store();
    let answer = search(&node, "tea", "").await;
    assert_eq!(answer.code(), (503, "STORE_UNAVAILABLE".to_owned()));
    assert!(!answer.text.contains("server"), "the store's own text is for the log");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn pages_of_any_origin_may_ask() {
    let node = Node::searching(TopicsMode::Required);
    let preflight = Request::options("/v1/search")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "authorization,content-type");
    let preflight = node.ask(preflight).await;
    assert_eq!(preflight.status, 200);
    assert_eq!(preflight.headers["access-control-allow-headers"], "authorization,content-type");
    assert_eq!(preflight.headers["access-control-allow-methods"], "*");
    let posted = node.ask(Request::post("/v1/search")).await;
    assert_eq!(posted.code(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    for answer in [posted, preflight] {
        assert_eq!(answer.headers["access-control-allow-origin"], "*");
        assert!(!answer.headers.contains_key("access-control-allow-credentials"));
    }
    // The router merges with others.
    let _merged = axum::Router::new().route("/", axum::routing::get(async || "")).merge(node.router.clone());
}
