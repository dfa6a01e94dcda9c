//! The changes of a topic, as pages and as a stream (W-8, O-8).

use std::time::Duration;

use crate::support::{Node, STREAMS, clock, seq_of, set_clock};
use axum::http::Request;
use kukuri_domain::{
    Event,
    retention::{Keep, Retention},
    topic::TopicsMode,
};
use kukuri_store::{
    conformance::build::{ALICE, OTHER_TOPIC, TOPIC, article, bare, deletion, event, later, note},
    port::*,
};
use serde_json::{Value, json};
use tokio::time::Instant;

fn other(number: u32) -> Event {
    bare(1).tag(["t", OTHER_TOPIC]).content(&number.to_string()).build()
}

fn notes(count: usize) -> Vec<Event> {
    (0..count).map(|number| note(&number.to_string()).build()).collect()
}

async fn changes(node: &Node, parameters: &str) -> Value {
    let answer = node.get(&format!("/v1/topics/{TOPIC}/changes{parameters}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Operation, event id and reason of each change.
fn summary(page: &Value) -> Vec<(String, String, Option<String>)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let change =
        |change: &Value| (text(&change["op"]).unwrap(), text(&change["event_id"]).unwrap(), text(&change["reason"]));
    page["items"].as_array().unwrap().iter().map(change).collect()
}

/// Truncates the outbox.
async fn truncate_outbox(node: &Node) {
    let retention = Retention { outbox: Keep::For(Duration::from_secs(1)), ..Retention::default() };
    set_clock(later(60));
    assert!(node.store.purge(&retention, clock()).await.unwrap().outbox > 0);
}

#[tokio::test]
async fn page_holds_the_changes_of_its_topic_and_moves_past_others() {
    // W-8, O-1, O-2
    let node = Node::new(TopicsMode::Required);
    let first = note("first").build();
    let old = article("a", "old").at(1).build();
    node.send(&[first.clone(), other(1), old.clone(), event(4).content("private").build()]).await;
    let page = changes(&node, "").await;
    let upsert = |event: &Event| ("upsert".to_owned(), event.id.to_string(), None);
    assert_eq!(summary(&page), [upsert(&first), upsert(&old)], "neither other topics nor private kinds (E-10)");
    assert_eq!((&page["next"], &page["head"]), (&json!(node.position(4)), &json!(node.position(4))));
    assert_eq!(page["items"][0]["event"]["content"], "first");
    assert_eq!((&page["items"][0]["kind"], &page["items"][0]["seq"]), (&json!(1), &json!(node.position(1))));

    let new = article("a", "new").at(2).build();
    let request = deletion().of(&first).build();
    node.send(&[new.clone(), request.clone(), other(2)]).await;
    let page = changes(&node, &format!("?after={}", node.position(4))).await;
    let delete = |event: &Event, reason: &str| ("delete".to_owned(), event.id.to_string(), Some(reason.to_owned()));
    let expected = [delete(&old, "replaced"), upsert(&new), delete(&first, "nip09"), upsert(&request)];
    assert_eq!(summary(&page), expected);
    assert!(page["items"][0].get("event").is_none());
    assert_eq!(page["next"], page["head"]);
    let again = changes(&node, "").await;
    assert_eq!(
        summary(&again)[..2],
        [delete(&old, "replaced"), upsert(&new)],
        "an upsert whose event is gone is skipped"
    );
}

#[tokio::test]
async fn pages_keep_to_the_limit_and_lose_no_change() {
    let node = Node::new(TopicsMode::Required);
    let all: Vec<Event> = notes(25).into_iter().zip(0..).flat_map(|(note, number)| [note, other(number)]).collect();
    node.send(&all).await;
    let (mut after, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let page = changes(&node, &format!("?after={after}&limit=4")).await;
        seen.extend(summary(&page).into_iter().map(|(_, id, _)| id));
        assert!(page["items"].as_array().unwrap().len() <= 4);
        if page["next"] == after {
            break;
        }
        after = page["next"].as_str().unwrap().to_owned();
    }
    assert_eq!(seen, notes(25).iter().map(|note| note.id.to_string()).collect::<Vec<_>>());
    assert_eq!(changes(&node, "?limit=0").await["items"].as_array().unwrap().len(), 1, "clamped");
    assert_eq!(changes(&node, "?limit=999").await["items"].as_array().unwrap().len(), 25);
}

#[tokio::test]
async fn page_is_bounded_in_bytes_and_in_outbox_rows() {
    let node = Node::new(TopicsMode::Required);
    let large: Vec<Event> = (0..40).map(|number| note(&number.to_string().repeat(30_000)).build()).collect();
    node.send(&large).await;
    let page = changes(&node, "?limit=500").await;
    let count = page["items"].as_array().unwrap().len();
    assert!((1..40).contains(&count), "{count}");
    assert_eq!(seq_of(&page["next"]), count as u64, "the next page begins there");

    let rest: Vec<Event> = (0..4_500).map(other).collect();
    node.send(&rest).await;
    let page = changes(&node, &format!("?after={}", node.position(40))).await;
    assert_eq!((summary(&page).len(), seq_of(&page["next"]), seq_of(&page["head"])), (0, 4_040, 4_540));
    assert_eq!(seq_of(&changes(&node, &format!("?after={}", node.position(4_040))).await["next"]), 4_540);
}

#[tokio::test]
async fn snapshot_pages_hold_the_topic_and_the_seq_to_follow_from() {
    // O-8
    let node = Node::new(TopicsMode::Required);
    let all: Vec<Event> = notes(23).into_iter().zip(0..).flat_map(|(note, number)| [note, other(number)]).collect();
    node.send(&all).await;
    node.send(&[note("brief").until(5).build(), event(1059).tag(["p", &ALICE.to_string()]).build()]).await;
    let head = node.head().await.0;
    set_clock(later(5));
    let (mut ids, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = node.get(&format!("/v1/topics/{TOPIC}/snapshot?limit=6{cursor}")).await.json();
        let events = page["items"].as_array().unwrap_or_else(|| panic!("{page}"));
        assert!(events.len() <= 6);
        ids.extend(events.iter().map(|event| event["id"].as_str().unwrap().to_owned()));
        assert_eq!(seq_of(&page["seq"]), head, "the same on all pages");
        node.send(&[other(1_000 + pages)]).await;
        pages += 1;
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    let mut expected: Vec<String> = notes(23).iter().map(|note| note.id.to_string()).collect();
    expected.sort();
    ids.sort();
    assert_eq!(ids, expected, "each once; nothing expired (X-2) or private (E-10)");
}

#[tokio::test]
async fn follower_behind_or_ahead_of_the_outbox_gets_410() {
    // O-8
    let node = Node::new(TopicsMode::Required);
    node.send(&notes(3)).await;
    let ahead = node.get(&format!("/v1/topics/{TOPIC}/changes?after={}", node.position(4))).await;
    assert_eq!((ahead.code(), &ahead.json()["error"]["details"]["head"]), ((410, "GONE".to_owned()), &json!(3)));
    truncate_outbox(&node).await;
    node.send(&[note("after").build()]).await;
    let behind = node.get(&format!("/v1/topics/{TOPIC}/changes?after={}", node.position(2))).await;
    assert_eq!((behind.code(), &behind.json()["error"]["details"]["first"]), ((410, "GONE".to_owned()), &json!(4)));
    assert!(behind.json()["error"]["message"].as_str().unwrap().contains("snapshot"));
    let stream = node.stream(TOPIC, 2).await.err().unwrap();
    assert_eq!(stream.code(), (410, "GONE".to_owned()), "before a stream begins");
    assert_eq!(summary(&changes(&node, &format!("?after={}", node.position(3))).await).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn follower_of_a_store_that_went_back_gets_410() {
    // Y-5
    let node = Node::new(TopicsMode::Required);
    node.send(&notes(3)).await;
    let backup = node.model.save();
    node.send(&[note("lost").build(), note("lost, too").build()]).await;
    let snapshot = node.get(&format!("/v1/topics/{TOPIC}/snapshot?limit=2")).await.json();
    let (position, cursor) = (node.position(5), snapshot["cursor"].as_str().unwrap());
    let mut stream = node.stream(TOPIC, 5).await.unwrap();
    stream.next().await.unwrap();

    node.model.go_back(&backup);
    node.send(&(0..4).map(|number| note(&format!("new {number}")).build()).collect::<Vec<_>>()).await;
    assert_eq!(stream.next().await, None, "a stream ends");
    let gone = (410, "GONE".to_owned());
    let after = |position: &str| format!("/v1/topics/{TOPIC}/changes?after={position}");
    for path in [after(&position), after("5"), format!("/v1/topics/{TOPIC}/snapshot?cursor={cursor}")] {
        let answer = node.get(&path).await;
        assert_eq!(answer.code(), gone, "{path}: {answer:?}");
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("snapshot"));
    }
    let resumed = Request::get(after("0")).header("accept", "text/event-stream").header("last-event-id", &position);
    assert_eq!(node.ask(resumed).await.code(), gone);
    let snapshot = node.get(&format!("/v1/topics/{TOPIC}/snapshot")).await.json();
    assert_eq!((snapshot["items"].as_array().unwrap().len(), seq_of(&snapshot["seq"])), (7, 7));
    assert_eq!(node.get(&after(snapshot["seq"].as_str().unwrap())).await.status, 200);
}

/// The number of topics of a [`wide`] event.
const WIDE_TOPICS: u32 = 50;

fn wide_topic(number: u32) -> String {
    format!("kukuri:{number:064x}")
}

/// An event with a row for each of many topics.
fn wide(number: u32) -> Event {
    let topics = (0..WIDE_TOPICS).map(wide_topic);
    topics.fold(bare(1), |draft, topic| draft.tag(["t", &topic])).content(&number.to_string()).build()
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_far_behind_have_turns_by_network() {
    // Y-1
    let node = Node::new(TopicsMode::Required);
    node.gate.streams.add_permits(64);
    node.send(&(0..480).map(wide).collect::<Vec<_>>()).await;
    let open_flood = (0..32).map(|_| node.stream_from("flood", TOPIC, 0));
    let mut flood = Vec::new();
    for stream in open_flood {
        flood.push(stream.await.unwrap());
    }
    let flooding =
        futures_util::future::join_all(flood.iter_mut().map(async |stream| while stream.next().await.is_some() {}));
    let follow = async {
        let begun = Instant::now();
        let mut stream = node.stream_from("other", &wide_topic(0), 0).await.unwrap();
        let mut changes = 0;
        while changes < 480 {
            changes += stream.next().await.unwrap().iter().filter(|message| message.data.is_some()).count();
        }
        begun.elapsed()
    };
    let took = tokio::select! {
        took = follow => took,
        _ = flooding => panic!("streams end after an hour"),
    };
    // 20 reads behind the kept rows, each after one of the other network, of 25 ms each; alone in a queue of 33 it took 16 s.
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_that_are_far_behind_share_a_rate_of_outbox_rows() {
    // Y-1
    let node = Node::new(TopicsMode::Required);
    node.send(&(0..480).map(wide).collect::<Vec<_>>()).await;
    let follow = async || {
        let mut stream = node.stream(TOPIC, 0).await.unwrap();
        while stream.next().await.is_some() {}
    };
    let all = async { tokio::join!(follow(), follow(), follow()) };
    assert!(tokio::time::timeout(Duration::from_millis(310), all).await.is_err());
    let reads = node.store.calls("outbox");
    assert!((10..=14).contains(&reads), "40,000 rows a second for all, not {reads} thousand in 310 ms");
}

#[tokio::test]
async fn invalid_parameters_get_400_with_a_reason() {
    let node = Node::new(TopicsMode::Required);
    for (path, parameter) in [
        (format!("/v1/topics/{TOPIC}/changes?after=-1"), "after"),
        (format!("/v1/topics/{TOPIC}/changes?after=last"), "after"),
        (format!("/v1/topics/{TOPIC}/changes?after=1.2"), "after"),
        (format!("/v1/topics/{TOPIC}/changes?after=1&after=2"), "after"),
        (format!("/v1/topics/{TOPIC}/changes?limit=x"), "limit"),
        (format!("/v1/topics/{TOPIC}/changes?cursor=1.2"), "cursor"),
        (format!("/v1/topics/{TOPIC}/snapshot?cursor=1"), "cursor"),
        (format!("/v1/topics/{TOPIC}/snapshot?after=1"), "after"),
        // T-1
        ("/v1/topics/kukuri:CATS/changes".to_owned(), "topic"),
        ("/v1/topics/kukuri:cats/snapshot".to_owned(), "topic"),
    ] {
        assert_eq!(node.get(&path).await.refused_parameter().as_deref(), Some(parameter), "{path}");
    }
    node.get("/v1/topics/%FF/changes").await.refused_parameter();
    let resumed = Request::get(format!("/v1/topics/{TOPIC}/changes"))
        .header("accept", "text/event-stream")
        .header("last-event-id", "yesterday");
    assert_eq!(node.ask(resumed).await.refused_parameter().as_deref(), Some("Last-Event-ID"));
}

#[tokio::test]
async fn snapshot_page_is_bounded_in_bytes() {
    // U-4
    let node = Node::new(TopicsMode::Required);
    let large: Vec<Event> = (0..120).map(|number| note(&format!("{number:<30000}")).build()).collect();
    node.send(&large).await;
    let (mut seen, mut cursor) = (0, String::new());
    loop {
        let answer = node.get(&format!("/v1/topics/{TOPIC}/snapshot?limit=500{cursor}")).await;
        assert!(answer.text.len() < (1 << 20) + 64 * 1024, "{}", answer.text.len());
        seen += answer.json()["items"].as_array().unwrap().len();
        let Some(next) = answer.json()["cursor"].as_str().map(str::to_owned) else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, large.len());
}

#[tokio::test(start_paused = true)]
async fn stream_ends_after_an_hour() {
    // U-4
    let node = Node::new(TopicsMode::Required);
    let begun = Instant::now();
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    while stream.next().await.is_some() {}
    assert_eq!(begun.elapsed().as_secs(), 3600);
}

#[tokio::test(start_paused = true)]
async fn stream_sends_past_changes_then_live_ones() {
    // W-8
    let node = Node::new(TopicsMode::Required);
    node.send(&[notes(2), vec![other(1)]].concat()).await;
    let mut stream = node.stream(TOPIC, 1).await.unwrap();
    let first = stream.next().await.unwrap();
    assert_eq!((first[0].id, &first[0].data.as_ref().unwrap()["op"]), (Some(2), &json!("upsert")));
    assert_eq!((first[1].id, &first[1].data), (Some(3), &None), "the id moves past the row of another topic");

    let begun = Instant::now();
    node.send(&[deletion().of(&notes(1)[0]).build()]).await;
    let live = stream.next().await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "the commit woke the stream before its heartbeat");
    let op = |number: usize| live[number].data.as_ref().unwrap()["op"].clone();
    assert_eq!((op(0), op(1)), (json!("delete"), json!("upsert")));
}

#[tokio::test(start_paused = true)]
async fn idle_stream_sends_heartbeats_and_moves_past_other_topics() {
    let node = Node::new(TopicsMode::Required);
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    let at_once = stream.next().await.unwrap();
    assert!(at_once[0].is_comment, "a first comment, so that the client sees the answer");
    for round in 1..=3 {
        let begun = Instant::now();
        node.send(&[other(round)]).await;
        let beat = stream.next().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 15);
        assert!(beat[0].is_comment && beat[0].data.is_none());
        assert_eq!(beat[1].id, Some(u64::from(round)), "a reader that resumes does not read these rows again");
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_limited_in_number_and_end_with_the_node() {
    let node = Node::new(TopicsMode::Required);
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = node.stream(TOPIC, 0).await.unwrap();
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let refused = node.stream(TOPIC, 0).await.err().unwrap();
    assert_eq!(refused.code(), (503, "TOO_MANY_STREAMS".to_owned()));
    streams.pop();
    streams.push(node.stream(TOPIC, 0).await.unwrap());
    node.stop.send(true).unwrap();
    for mut stream in streams {
        assert_eq!(stream.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_every_change_until_the_outbox_is_truncated() {
    // W-5
    let node = Node::new(TopicsMode::Required);
    let mut slow = node.stream(TOPIC, 0).await.unwrap();
    node.send(&notes(1_000)).await;
    let mut seen = 0;
    while seen < 1_000 {
        let piece = slow.next().await.unwrap();
        assert!(piece.len() <= 101, "a batch is bounded");
        seen += piece.iter().filter(|message| message.data.is_some()).count();
    }
    node.send(&[note("more").build()]).await;
    truncate_outbox(&node).await;
    assert_eq!(slow.next().await, None, "resuming gets 410");
}

#[tokio::test(start_paused = true)]
async fn streams_share_outbox_reads_and_each_gets_its_topic() {
    // W-8
    let node = Node::new(TopicsMode::Required);
    let mut streams = Vec::new();
    for topic in [TOPIC, TOPIC, OTHER_TOPIC] {
        let mut stream = node.stream(topic, 0).await.unwrap();
        stream.next().await.unwrap();
        streams.push(stream);
    }
    let before = node.store.calls("outbox");
    for round in 0..20 {
        node.send(&[note(&round.to_string()).build(), other(round)]).await;
        for stream in &mut streams {
            let messages = stream.next().await.unwrap();
            let changes: Vec<_> = messages.iter().filter_map(|message| message.data.as_ref()).collect();
            assert_eq!(changes.len(), 1);
            assert_eq!(changes[0]["event"]["content"], round.to_string());
        }
    }
    let reads = node.store.calls("outbox") - before;
    assert!((20..=22).contains(&reads), "one read for all streams in each round, not {reads}");
}

#[tokio::test(start_paused = true)]
async fn stream_ends_when_the_store_fails() {
    let node = Node::new(TopicsMode::Required);
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    stream.next().await.unwrap();
    node.lose_store();
    assert_eq!(stream.next().await, None, "connecting again gets 503");
    assert_eq!(node.stream(TOPIC, 0).await.err().unwrap().code(), (503, "STORE_UNAVAILABLE".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn last_event_id_resumes_a_stream_and_overrides_after() {
    let node = Node::new(TopicsMode::Required);
    node.send(&notes(5)).await;
    let request = Request::get(format!("/v1/topics/{TOPIC}/changes?after=1"))
        .header("accept", "text/event-stream")
        .header("last-event-id", node.position(4));
    let response = node.respond(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["access-control-allow-origin"], "*");
    let first = crate::support::Stream::new(response.into_body()).next().await.unwrap();
    assert_eq!((first.len(), first[0].id), (1, Some(5)));
}
