//! Search over HTTP: what is found may be shown, pages fit together, and what can't be asked is said.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::collections::BTreeSet;

use axum::http::Request;
use kukuri_domain::{Event, topic::TopicsMode};
use kukuri_store::{
    Store,
    conformance::build::{BOB, NOW, OTHER_TOPIC, TOPIC, article, at, deletion, event, later, note},
};
use support::{Answer, Node, encoded, set_clock};

async fn search(node: &Node, question: &str, rest: &str) -> Answer {
    node.get(&format!("/v1/search?topic={TOPIC}&q={}{rest}", encoded(question))).await
}

fn ids(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    let hits = json["hits"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    hits.iter().map(|hit| hit["event"]["id"].as_str().unwrap().to_owned()).collect()
}

fn id(event: &Event) -> String {
    event.id.to_string()
}

#[tokio::test]
async fn a_hit_is_the_event_as_it_is_stored_with_the_piece_that_was_found() {
    // C-1
    let node = Node::searching(TopicsMode::Required);
    let first = note("緑茶 <b>green</b> tea in 東京").tag(["t", OTHER_TOPIC]).build();
    node.send(std::slice::from_ref(&first)).await;
    node.index(std::slice::from_ref(&first)).await;
    let titled = article("a", "how it is made").tag(["title", "Green tea"]).build();
    node.send(std::slice::from_ref(&titled)).await;

    let answer = search(&node, "ＧＲＥＥＮ tea", "").await;
    assert_eq!(ids(&answer), [id(&titled), id(&first)], "what the index does not have yet comes first");
    let hits = answer.json();
    assert!(hits["hits"][0]["score"].is_null());
    assert!(hits["hits"][1]["score"].as_f64().unwrap() > 0.0);
    assert_eq!(hits["hits"][1]["topics"].as_array().unwrap().len(), 2);
    assert_eq!(hits["hits"][0]["snippet"]["html"], "<mark>Green</mark> <mark>tea</mark> how it is made");
    assert_eq!(
        hits["hits"][1]["snippet"]["html"],
        "緑茶 &lt;b&gt;<mark>green</mark>&lt;/b&gt; <mark>tea</mark> in 東京"
    );
    assert_eq!(hits["hits"][1]["snippet"]["text"], "緑茶 <b>green</b> tea in 東京");
    assert!(hits["cursor"].is_null());
    let stored = node.store.get(&[first.id], NOW).await.unwrap().remove(0).unwrap();
    assert!(answer.text.contains(str::from_utf8(&stored.event.json).unwrap()), "byte for byte");
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["content-type"], "application/json");
}

#[tokio::test]
async fn what_is_gone_or_private_is_not_found_whatever_the_index_says() {
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
async fn every_parameter_narrows() {
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
async fn pages_fit_together_while_the_index_catches_up() {
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
            // Some of them were shown as new, some were not yet.
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
        assert_eq!(json["hits"].as_array().unwrap().len(), 7, "a page that is not the last is full");
        cursor = format!("&cursor={next}");
        assert!(page < 20, "pages come to an end");
    }
    let once: BTreeSet<&String> = found.iter().collect();
    assert_eq!(found.len(), once.len(), "each once");
    let missing: Vec<&Event> = old.iter().chain(&new).filter(|event| !once.contains(&id(event))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn a_limit_is_brought_into_range() {
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
async fn what_can_not_be_asked_is_said() {
    let node = Node::searching(TopicsMode::Required);
    let long = "a ".repeat(5_000);
    let many: String = (0..65).map(|number| format!("{number} ")).collect();
    for question in ["", " ", "!?…", ".*", "^[$]+(?:)", "\u{0}", "tea\u{7}", "language:en", &long, &many] {
        assert_eq!(search(&node, question, "").await.code(), (400, "INVALID_QUERY".to_owned()), "{question:?}");
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
        assert_eq!(search(&node, "tea", rest).await.code(), (400, "INVALID_QUERY".to_owned()), "{rest}");
    }
    for topic in ["cats", "kukuri:cats", "", "kukuri:*"] {
        let answer = node.get(&format!("/v1/search?q=tea&topic={topic}")).await;
        assert_eq!(answer.code(), (400, "INVALID_TOPIC".to_owned()), "T-1: {topic}");
    }
    // T-6
    assert_eq!(node.get("/v1/search?q=tea").await.code(), (400, "INVALID_QUERY".to_owned()));
    let unknown = search(&node, "tea", "&language=en").await.json()["error"]["message"].to_string();
    assert!(unknown.contains("`language` is unknown; there are topic, q, kinds"), "{unknown}");
    // What only looks bad is a question like any other.
    for question in ["a.*b", "'; DROP TABLE events; --", "tea\n\ttime", "\" OR \"1", "C++", "\u{202e}tea"] {
        assert_eq!(search(&node, question, "").await.status, 200, "{question:?}");
    }
}

#[tokio::test]
async fn without_search_or_a_store_it_is_said_to_be_away() {
    let switched_off = Node::new(TopicsMode::Required);
    assert_eq!(search(&switched_off, "tea", "").await.code(), (503, "SEARCH_UNAVAILABLE".to_owned()));
    let node = Node::searching(TopicsMode::Required);
    node.lose_store();
    let answer = search(&node, "tea", "").await;
    assert_eq!(answer.code(), (503, "STORE_UNAVAILABLE".to_owned()));
    assert!(!answer.text.contains("server"), "what it looks like inside is for the log");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn other_methods_are_refused_and_pages_of_other_sites_may_ask() {
    let node = Node::searching(TopicsMode::Required);
    let posted = node.ask(Request::post("/v1/search")).await;
    assert_eq!(posted.code(), (405, "METHOD_NOT_ALLOWED".to_owned()));
    let preflight = node.ask(Request::options("/v1/search")).await;
    assert_eq!(preflight.status, 204);
    for answer in [posted, preflight] {
        assert_eq!(answer.headers["access-control-allow-origin"], "*");
        assert_eq!(answer.headers["access-control-allow-headers"], "*");
    }
    // Other routes stand beside these.
    let _merged = axum::Router::new().route("/", axum::routing::get(async || "")).merge(node.router.clone());
}
