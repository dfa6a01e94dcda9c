//! Rate limits (W-4): per address, per key, and per type of message.

use crate::support::{Client, PATIENCE, TOPIC, TestRelay, as_json, draft, note, now};
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
    Rates {
        connections_per_ip: 1_000,
        new_connections: much,
        events: much,
        requests: much,
        backfill: much,
        deletions: much,
        new_keys: much,
        sign_ins: much,
    }
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

/// A deletion request of many targets counts as several.
fn deletion(targets: u64) -> Value {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let first = NUMBER.fetch_add(targets, std::sync::atomic::Ordering::Relaxed);
    let request = (first..first + targets)
        .fold(draft(1, 5).tag(["t", TOPIC]), |draft, target| draft.tag(["e", &format!("{target:064x}")]));
    json!(["EVENT", as_json(&request.sign())])
}

/// An addressable event with a new key.
fn new_key() -> Value {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
    json!(["EVENT", as_json(&draft(1, 30_023).tag(["t", TOPIC]).tag(["d", &number]).sign())])
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
        (Rates { requests: only(2), ..plenty() }, vec![ahead(), back(), count(), sync()], vec![event()]),
        (
            Rates { backfill: only(2), ..plenty() },
            vec![back(), count(), sync(), back(), count()],
            vec![event(), ahead()],
        ),
        // P-6
        (
            Rates { deletions: only(4), ..plenty() },
            vec![deletion(120), deletion(1), deletion(1), deletion(1)],
            vec![event(), ahead(), new_key()],
        ),
        (
            Rates { new_keys: only(2), ..plenty() },
            vec![new_key(), new_key(), new_key(), new_key()],
            vec![event(), ahead(), deletion(1)],
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
            r#"kukuri_requests_refused_total{reason="too_fast"}"#
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

/// What the client hears, without its EVENTs.
async fn answer(client: &mut Client, text: &str) -> Value {
    client.say_text(text).await;
    client.hear().await
}

#[tokio::test]
async fn a_large_request_counts_as_several_before_it_is_parsed() {
    // W-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { requests: only(20), ..plenty() });
    })
    .await;
    let mut client = relay.client().await;
    // 16 KiB count once more, so 200 KiB count 13 times.
    let large = |word: &str| format!(r#"["{word}","s",{}"#, "x".repeat(200 * 1024));
    assert_eq!(answer(&mut client, &large("REQ")).await[0], "NOTICE", "there is room for it, and it can't be read");
    for (word, form) in [("REQ", "CLOSED"), ("COUNT", "CLOSED"), ("NEG-OPEN", "NEG-ERR"), ("NEG-MSG", "NEG-ERR")] {
        let heard = answer(&mut client, &large(word)).await;
        assert_eq!((&heard[0], &heard[1]), (&json!(form), &json!("s")), "{word}: refused by its first words: {heard}");
        assert!(heard[2].as_str().unwrap().starts_with("rate-limited: "), "{heard}");
    }
    let heard = answer(&mut client, &large("EVENT")).await;
    assert!(heard[1].as_str().unwrap().starts_with("rate-limited: "), "an EVENT without an end is no event: {heard}");
    assert!(passes(&mut client, ahead()).await, "a small one still fits");
    assert!(passes(&mut client, event()).await, "events have a rate of their own");
}

#[tokio::test]
async fn a_refused_req_ends_the_subscription_it_names() {
    // W-4: CLOSED means that no more events come.
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { requests: only(2), ..plenty() });
    })
    .await;
    let mut client = relay.client().await;
    client.request("s", &[json!({"#t": [TOPIC]})]).await;
    client.request("kept", &[json!({"#t": [TOPIC]})]).await;
    assert!(!passes(&mut client, ahead()).await);
    assert_eq!(relay.figure("kukuri_subscriptions").await, 1.0);
    client.say(json!(["CLOSE", "kept"])).await;
    assert!(passes(&mut client, event()).await);
    assert_eq!(relay.figure("kukuri_subscriptions").await, 0.0, "a CLOSE is never refused");
}

#[tokio::test]
async fn unreadable_messages_count_as_requests_and_too_many_close_the_connection() {
    // W-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { requests: only(3), ..plenty() });
    })
    .await;
    let mut client = relay.client().await;
    for _ in 0..3 {
        let heard = answer(&mut client, "rubbish").await;
        assert!(heard[1].as_str().unwrap().starts_with("invalid: "), "{heard}");
    }
    assert!(!passes(&mut client, ahead()).await, "the rubbish has used the rate");
    for _ in 3..60 {
        let heard = answer(&mut client, "rubbish").await;
        assert!(heard[0] == "NOTICE" && heard[1].as_str().unwrap().starts_with("rate-limited: "), "{heard}");
    }
    assert!(passes(&mut client, event()).await, "events are still accepted");
    assert_eq!(answer(&mut client, "rubbish").await[0], "NOTICE");
    let ended = client.ended().await;
    assert_eq!((ended.code, ended.reason.as_str()), (1008, "too many messages that can't be read"));
    assert_eq!(relay.figure(r#"kukuri_connections_closed_total{reason="unreadable"}"#).await, 1.0);
}

#[tokio::test]
async fn events_and_authentications_are_counted_in_any_spelling() {
    // W-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { events: only(2), ..plenty() });
    })
    .await;
    let mut client = relay.client().await;
    let spelled = |event: Value| format!(" [ \"EVENT\" , {} ]", event[1]);
    assert_eq!(answer(&mut client, &spelled(event())).await[2], true);
    assert_eq!(answer(&mut client, r#"["AUTH",{"id":"ab"}]"#).await[2], false);
    for (text, id) in [(spelled(event()), None), (r#"["AUTH",{"id":"ab"}]"#.to_owned(), Some("ab"))] {
        let heard = answer(&mut client, &text).await;
        assert!(heard[0] == "OK" && heard[3].as_str().unwrap().starts_with("rate-limited: "), "{heard}");
        assert!(id.is_none_or(|id| heard[1] == id), "{heard}");
    }
}

#[tokio::test]
async fn live_filters_are_bounded_per_address_and_over_the_node() {
    // Y-3, W-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(plenty());
        config.requests.live_filters_per_address = 3;
        config.requests.live_filters = 14;
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    let from = async |address: &str| Client::connect_as(&relay.url, &[("x-forwarded-for", address)]).await.unwrap();
    let filter = |kind: u16| json!({"#t": [TOPIC], "kinds": [kind]});
    let (mut first, mut second) = (from("192.0.2.1").await, from("192.0.2.1").await);
    first.request("a", &[filter(1), filter(2)]).await;
    second.request("a", &[filter(1)]).await;
    let (_, refused) = second.ask("b", &[filter(1)]).await;
    let reason = "error: more live filters from this address than limits.live_filters_per_address = 3; ";
    assert!(refused[0] == "CLOSED" && refused[2].as_str().unwrap().starts_with(reason), "{refused}");
    let (_, refused) = first.ask("a", &[json!({"#t": [TOPIC], "kinds": (0..40).collect::<Vec<_>>()})]).await;
    assert_eq!(refused[0], "CLOSED", "one filter with many values counts as several");
    second.request("b", &[filter(1)]).await;
    assert_eq!(relay.figure("kukuri_live_filters").await, 2.0);

    let mut third = from("192.0.2.2").await;
    third.request("a", &[filter(1), filter(2), filter(3)]).await;
    // An address may hold a quarter of what is free: nine are free for those that come.
    let mut others = Vec::new();
    let refused = loop {
        let mut other = from(&format!("198.51.100.{}", others.len())).await;
        let (_, answer) = other.ask("a", &[filter(1)]).await;
        if answer[0] == "CLOSED" {
            break answer;
        }
        others.push(other);
    };
    assert_eq!(
        others.len(),
        6,
        "however many addresses come, the next one finds a part of what is left, while there are parts"
    );
    assert_eq!(refused[2], "error: this relay has no room for more live filters; try again later");
    drop((first, second, third, others));
    relay.wait_until_empty(PATIENCE).await;
    assert_eq!(relay.figure("kukuri_live_filters").await, 0.0, "given back");
}
