//! Rate limits (W-4): per address, per key, and per type of message.

use crate::support::{Client, TOPIC, TestRelay, as_json, note, now};
use kukuri_domain::topic::TopicsMode;
use kukuri_engine::config::{Rate, Rates};
use kukuri_http::Proxy;
use serde_json::{Value, json};

/// A burst of this size, then one per minute.
fn only(burst: u32) -> Rate {
    Rate::new(1, burst)
}

fn plenty() -> Rates {
    let much = Rate::new(60_000, 60_000);
    Rates { connections_per_ip: 1_000, new_connections: much, events: much, requests: much, backfill: much }
}

/// A REQ for older events (`until`).
fn back() -> Value {
    json!(["REQ", "s", {"#t": [TOPIC], "until": now()}])
}

fn ahead() -> Value {
    json!(["REQ", "s", {"#t": [TOPIC]}])
}

fn count() -> Value {
    json!(["COUNT", "c", {"#t": [TOPIC]}])
}

fn sync() -> Value {
    json!(["NEG-OPEN", "n", {"#t": [TOPIC]}, "61"])
}

fn event() -> Value {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    json!(["EVENT", as_json(&note(1, &number.to_string()).sign())])
}

/// Whether a message was answered. Panics unless a refusal is `rate-limited`, in the form for that type of message.
async fn passes(client: &mut Client, message: Value) -> bool {
    client.say(message.clone()).await;
    let heard = loop {
        let heard = client.hear().await;
        if heard[0] != "EVENT" {
            break heard;
        }
    };
    let refused = match (message[0].as_str().unwrap(), heard[0].as_str().unwrap()) {
        ("EVENT", "OK") => heard[2] == false,
        ("REQ", "EOSE") | ("COUNT", "COUNT") | ("NEG-OPEN", "NEG-MSG") => false,
        ("REQ" | "COUNT", "CLOSED") | ("NEG-OPEN", "NEG-ERR") => true,
        _ => panic!("{message}: {heard}"),
    };
    if refused {
        assert!(message[0] == "EVENT" || heard[1] == message[1], "{message}: {heard}");
        let reason = heard.as_array().unwrap().last().unwrap().as_str().unwrap();
        assert!(reason.starts_with("rate-limited: too many ") && reason.ends_with(" s"), "{heard}");
    }
    !refused
}

#[tokio::test]
async fn each_message_type_has_its_own_rate_limit_and_refusal() {
    for (rates, limited, free) in [
        (
            Rates { events: only(2), ..plenty() },
            vec![event(), event(), event(), event()],
            vec![ahead(), back(), count(), sync()],
        ),
        (Rates { requests: only(2), ..plenty() }, vec![ahead(); 4], vec![event(), back(), count(), sync()]),
        (
            Rates { backfill: only(2), ..plenty() },
            vec![back(), count(), sync(), back(), count()],
            vec![event(), ahead()],
        ),
    ] {
        let why = format!("{rates:?}");
        let relay = TestRelay::start_with(TopicsMode::Required, |config| config.rates = Some(rates)).await;
        let mut client = relay.client().await;
        for (place, message) in limited.iter().enumerate() {
            assert_eq!(passes(&mut client, message.clone()).await, place < 2, "{why}: {place}: {message}");
        }
        for message in free {
            assert!(passes(&mut client, message.clone()).await, "{why}: another count: {message}");
        }
        let mut neighbour = relay.client().await;
        assert!(!passes(&mut neighbour, limited[2].clone()).await, "{why}: one address, another connection");
        let refused = limited.len() as f64 - 2.0 + 1.0;
        let figure = if limited[0][0] == "EVENT" {
            r#"kukuri_events_total{outcome="rate-limited"}"#
        } else {
            "kukuri_requests_refused_total"
        };
        assert_eq!(relay.figure(figure).await, refused, "{why}: each is counted");

        relay.reconfigure(|config| config.requests.filters = 9);
        assert!(!passes(&mut client, limited[3].clone()).await, "{why}: another setting does not count anew");
        relay.reconfigure(|config| config.rates = None);
        for message in &limited {
            assert!(passes(&mut client, message.clone()).await, "{why}: no rates, no refusals: {message}");
        }
        relay.reconfigure(|config| {
            config.rates = Some(Rates { events: only(1), requests: only(1), backfill: only(1), ..plenty() })
        });
        assert!(passes(&mut client, event()).await, "{why}: rates that are set anew count anew");
        assert!(!passes(&mut client, event()).await, "{why}: on connections that are there already");
    }
}

#[tokio::test]
async fn rate_limits_count_a_key_across_addresses() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { events: only(3), requests: only(2), ..plenty() });
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    let from = async |address: &str| Client::connect_as(&relay.url, &[("x-forwarded-for", address)]).await.unwrap();
    let mut stranger = from("192.0.2.1").await;
    assert!(passes(&mut stranger, ahead()).await && passes(&mut stranger, ahead()).await);
    assert!(!passes(&mut stranger, ahead()).await);
    assert!(passes(&mut from("192.0.2.2").await, ahead()).await, "another address");

    let mut known = from("192.0.2.3").await;
    assert_eq!(known.authenticate(1, &relay.url).await, (true, String::new()));
    assert!(passes(&mut known, ahead()).await && passes(&mut known, ahead()).await);
    let mut moved = from("192.0.2.4").await;
    assert_eq!(moved.authenticate(1, &relay.url).await, (true, String::new()));
    assert!(!passes(&mut moved, ahead()).await, "the same key from another address");
    assert!(passes(&mut moved, event()).await, "for another act");
}
