//! Slow readers (W-5): the relay disconnects them with a reason, and other clients are not affected. Also: shutdown.

use std::{sync::Arc, time::Duration};

use crate::support::{Client, PATIENCE, TOPIC, TestRelay, as_json, eventually, id_of, note};
use kukuri_domain::topic::TopicsMode;
use kukuri_engine::config::{Rate, Rates};
use kukuri_http::Proxy;
use serde_json::json;
use tokio::sync::Semaphore;

const EVENTS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_closed_with_a_reason_and_the_others_receive_everything() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut slow = relay.client().await;
    slow.request("s", &[json!({"#t": [TOPIC]})]).await;
    let mut quick = relay.client().await;
    quick.request("s", &[json!({"#t": [TOPIC]})]).await;
    let mut writer = relay.client().await;
    // More than the connection's queue and all socket buffers hold.
    let text = "x".repeat(90_000);
    let events: Vec<_> = (0..EVENTS).map(|number| note(1, &format!("{number} {text}")).sign()).collect();
    let expected: Vec<_> = events.iter().map(id_of).collect();
    // The quick one is not left behind further than its queue reaches, even if this thread is held up.
    let ahead = Arc::new(Semaphore::new(100));
    let read = Arc::clone(&ahead);
    let writing = tokio::spawn(async move {
        for event in &events {
            ahead.acquire().await.unwrap().forget();
            writer.accepted(event).await;
        }
    });
    let reading = async {
        let mut heard = Vec::new();
        for _ in 0..EVENTS {
            heard.push(quick.hear().await[2]["id"].as_str().unwrap().to_owned());
            read.add_permits(1);
        }
        heard
    };
    let figure = r#"kukuri_connections_closed_total{reason="slow"}"#;
    let ending = async {
        eventually("it is counted", async || relay.figure(figure).await == 1.0).await;
        slow.ended().await
    };
    let (heard, ended) = tokio::join!(reading, ending);
    assert_eq!(heard, expected, "all of them, in order");
    writing.await.unwrap();
    assert_eq!((ended.code, ended.reason.as_str()), (1008, "too slow: live events overflowed"));
    let received: Vec<_> = ended.before.iter().map(|heard| heard[2]["id"].as_str().unwrap()).collect();
    assert_eq!(received, expected[..received.len()], "what it has received has no gap");
    eventually("it is gone", async || relay.connections() == 1).await;
    assert_eq!(relay.figure("kukuri_subscriptions").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_does_not_disconnect_a_client_that_reads() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    let text = "x".repeat(90_000);
    let mut writers = Vec::new();
    for author in 1..=4u8 {
        let mut writer = relay.client().await;
        let small = (0..800).map(|number| note(author, &number.to_string()).sign());
        let large = (0..30).map(|number| note(author, &format!("{number} {text}")).sign());
        let messages: Vec<_> = small.chain(large).map(|event| json!(["EVENT", as_json(&event)])).collect();
        writers.push(tokio::spawn(async move {
            for message in &messages {
                writer.say(message.clone()).await;
            }
            for _ in &messages {
                assert_eq!(writer.hear().await[2], true);
            }
        }));
    }
    for _ in 0..4 * 830 {
        assert_eq!(reader.hear().await[0], "EVENT");
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_while_live_events_are_queued() {
    // W-4: the relay answers a client's requests, however many live events are queued for it.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    let mut writer = relay.client().await;
    // More than all socket buffers hold, and less than the connection's queue holds.
    let text = "x".repeat(60_000);
    let count = 250;
    for number in 0..count {
        writer.accepted(&note(1, &format!("{number} {text}")).sign()).await;
    }
    reader.say(json!(["CLOSE", "s"])).await;
    reader.say(json!(["REQ", "t", {"#t": [TOPIC], "limit": 0}])).await;
    let mut heard = 0;
    loop {
        let message = reader.hear().await;
        if message[0] == "EOSE" {
            break;
        }
        assert_eq!((&message[0], &message[1]), (&json!("EVENT"), &json!("s")));
        heard += 1;
    }
    assert!(heard < count - 10, "what still waits when it has had enough is not sent: {heard}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_stored_events_does_not_delay_others() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut writer = relay.client().await;
    let text = "x".repeat(60_000);
    for number in 0..100 {
        writer.accepted(&note(1, &format!("{number} {text}")).sign()).await;
    }
    let mut slow = relay.client().await;
    // Each client requests 6 MB and reads nothing.
    for number in 0..20 {
        slow.say(json!(["REQ", format!("s{number}"), {"#t": [TOPIC]}])).await;
    }
    let mut quick = relay.client().await;
    assert_eq!(quick.request("s", &[json!({"#t": [TOPIC]})]).await.len(), 100);
    let live = note(1, "live").sign();
    writer.accepted(&live).await;
    assert_eq!(quick.hear().await, json!(["EVENT", "s", as_json(&live)]));
    drop(slow);
    eventually("it is let go", async || relay.connections() == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_wait_to_be_read_are_bounded_by_address() {
    // Y-1, Y-2
    const MEMORY: usize = 16 << 20;
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        let many = Rate::new(100_000, 100_000);
        config.rates = Some(Rates { connections_per_ip: 1_000, events: many, ..Rates::default() });
        config.requests.answer_memory = MEMORY;
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    let mut writer = Client::connect_as(&relay.url, &[("x-forwarded-for", "198.51.100.1")]).await.unwrap();
    let text = "x".repeat(90_000);
    for number in 0..34 {
        writer.accepted(&note(1, &format!("{number} {text}")).sign()).await;
    }
    // Twelve connections of one address request 3 MB each and read nothing.
    let mut slow = Vec::new();
    for _ in 0..12 {
        let mut client = Client::connect_as(&relay.url, &[("x-forwarded-for", "192.0.2.1")]).await.unwrap();
        client.say(json!(["REQ", "s", {"#t": [TOPIC]}])).await;
        slow.push(client);
    }
    eventually("answers wait", async || relay.figure("kukuri_answer_bytes").await > 1e6).await;
    for _ in 0..20 {
        let held = relay.figure("kukuri_answer_bytes").await;
        assert!(held <= MEMORY as f64 / 4.0, "{held}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(writer.request("s", &[json!({"#t": [TOPIC], "limit": 3})]).await.len(), 3, "another address is served");
    slow.clear();
    eventually("memory is given back", async || relay.figure("kukuri_answer_bytes").await == 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_accepted_events_and_closes_connections_with_a_reason() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut idle = relay.client().await;
    let mut busy = relay.client().await;
    let events: Vec<_> = (0..200).map(|number| note(1, &number.to_string()).sign()).collect();
    for event in &events {
        busy.say(json!(["EVENT", as_json(event)])).await;
    }
    assert_eq!(busy.hear().await[0], "OK");
    relay.engine.stop();
    let ended = busy.ended().await;
    assert_eq!((ended.code, ended.reason.as_str()), (1001, "the relay is stopping"));
    let acknowledged = 1 + ended.before.iter().filter(|heard| heard[2] == true).count();
    assert_eq!(idle.ended().await.code, 1001);
    relay.wait_until_empty(PATIENCE).await;
    assert_eq!(relay.connections(), 0);
    let stored = relay.engine.store().stats().await.unwrap().effective;
    assert_eq!(stored, acknowledged as u64, "each that is stored was acknowledged, and each acknowledged is stored");
    let connect = async || tokio::net::TcpStream::connect(relay.address).await;
    eventually("nobody is let in any more", async || connect().await.is_err()).await;
}
