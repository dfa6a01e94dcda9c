//! Invalid input: the relay answers it or closes the connection, serves other clients as before, and leaks nothing.

use std::time::{Duration, Instant};

use crate::support::{Client, Raw, TOPIC, TestRelay, as_json, eventually, frame, masked, note};
use kukuri_domain::topic::TopicsMode;
use serde_json::json;
use tokio::io::AsyncWriteExt;

/// A relay with a low connection limit, so that a leaked connection shows soon.
async fn small_relay() -> TestRelay {
    TestRelay::start_with(TopicsMode::Required, |config| config.requests.connections = 20).await
}

/// A subscribed client and an author, which the invalid input of others must not affect.
struct Bystander {
    reader: Client,
    author: Client,
    posts: u32,
}

impl Bystander {
    async fn of(relay: &TestRelay) -> Self {
        let mut reader = relay.client().await;
        reader.request("s", &[json!({"#t": [TOPIC], "kinds": [1]})]).await;
        Self { reader, author: relay.client().await, posts: 0 }
    }

    /// Asserts that the subscription works, the relay is healthy, and only the bystander's two connections are open.
    async fn is_well(&mut self, relay: &TestRelay, why: &str) {
        self.posts += 1;
        let post = note(1, &format!("{why} {}", self.posts)).sign();
        self.author.accepted(&post).await;
        assert_eq!(self.reader.hear().await, json!(["EVENT", "s", as_json(&post)]), "{why}");
        assert_eq!(relay.get("/healthz", &[]).await.0, 200, "{why}");
        eventually(why, async || relay.connections() == 2).await;
        assert_eq!(relay.figure("kukuri_subscriptions").await, 1.0, "{why}");
    }
}

#[tokio::test]
async fn invalid_messages_are_answered_and_the_connection_stays_open() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let mut client = relay.client().await;
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let many = |count: usize, item: &str| vec![item; count].join(",");
    let filter = format!(r##"{{"#t":["{TOPIC}"]}}"##);
    let id = "s".repeat(65);
    for (message, word, says, why) in [
        (String::new(), "NOTICE", "a JSON array", "nothing"),
        ("nonsense".to_owned(), "NOTICE", "a JSON array", "no JSON"),
        ("{}".to_owned(), "NOTICE", "a JSON array", "another JSON"),
        (r#"["REQ","s",{}"#.to_owned(), "NOTICE", "a JSON array", "half a JSON"),
        (r#"["CLOSE","s"] x"#.to_owned(), "NOTICE", "a JSON array", "more than a JSON"),
        ("[]".to_owned(), "NOTICE", "must not be empty", "an empty array"),
        ("[1]".to_owned(), "NOTICE", "starts with a word", "no word"),
        (r#"["HELLO"]"#.to_owned(), "NOTICE", "unknown word", "a word we don't know"),
        (r#"["req","s",{}]"#.to_owned(), "NOTICE", "unknown word", "words are in upper case"),
        (r#"["EVENT"]"#.to_owned(), "NOTICE", "wrong number of parts", "too few"),
        (r#"["CLOSE","s","t"]"#.to_owned(), "NOTICE", "wrong number of parts", "too many"),
        (format!(r#"["REQ","{id}",{filter}]"#), "NOTICE", "1 to 64 characters", "an id that is too long"),
        (format!(r#"["REQ","",{filter}]"#), "NOTICE", "1 to 64 characters", "an empty id"),
        (format!(r#"["REQ",1,{filter}]"#), "NOTICE", "is a string", "an id that is a number"),
        (format!(r#"["COUNT","{id}",{filter}]"#), "NOTICE", "1 to 64 characters", "for a count, too"),
        (deep(100_000), "NOTICE", "starts with a word", "deep down there is nothing"),
        (format!(r#"["EVENT",{}]"#, deep(100_000)), "OK", "invalid: ", "a deep event"),
        (format!(r#"["REQ","s",{}]"#, deep(100_000)), "CLOSED", "invalid: ", "a deep filter"),
        (format!(r##"["REQ","s",{{"#e":{}}}]"##, deep(100_000)), "CLOSED", "invalid: ", "a deep list"),
        (format!(r#"["AUTH",{}]"#, deep(100_000)), "OK", "invalid: ", "a deep authentication"),
        (
            format!(r#"["REQ","s",{}]"#, many(5_000, &filter)),
            "CLOSED",
            "more filters than limits.filters = 20",
            "thousands of filters",
        ),
        (
            format!(
                r##"["REQ","s",{{"#t":["{TOPIC}"],"kinds":[{}]}}]"##,
                (0..9_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
            ),
            "CLOSED",
            "more values than limits.filter_values = 2000",
            "thousands of values",
        ),
        (r#"["EVENT",1]"#.to_owned(), "OK", "invalid: ", "an event that is a number"),
        (r#"["EVENT",{"id":"ab","kind":-1}]"#.to_owned(), "OK", "invalid: ", "an event that is none"),
        (format!(r#"["EVENT",{{"id":"{}"}}]"#, "x".repeat(100_000)), "OK", "invalid: ", "an event with a long id"),
        ("[\"EVENT\",{\"id\":\"\\ud800\"}]".to_owned(), "OK", "invalid: ", "half a character"),
        (
            format!(r#"["EVENT",{}]"#, as_json(&note(1, &"x".repeat(200_000)).sign())),
            "OK",
            "content_bytes = 98304",
            "too long",
        ),
        (r#"["AUTH","x"]"#.to_owned(), "OK", "invalid: ", "an authentication that is none"),
        (r#"["NEG-MSG","s","61"]"#.to_owned(), "NEG-ERR", "closed: ", "a reconciliation that is none"),
    ] {
        client.say_text(message).await;
        let heard = client.hear().await;
        assert_eq!(heard[0], word, "{why}: {heard}");
        let said = heard.as_array().unwrap().last().unwrap().as_str().unwrap();
        assert!(said.contains(says), "{why}: {heard}");
        assert!(heard.to_string().len() < 500, "{why}: what is wrong is not sent back at length");
        assert!(word != "OK" || heard[2] == false, "{why}: {heard}");
    }
    client.accepted(&note(2, "still here").tag(["-not-protected"]).sign()).await;
    assert_eq!(bystander.reader.hear().await[0], "EVENT");
    drop(client);
    bystander.is_well(&relay, "after all of it").await;
}

#[tokio::test]
async fn invalid_frames_close_the_connection_with_a_code() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let text = br#"["CLOSE","s"]"#;
    let unmasked = [&[0x81, text.len() as u8][..], text].concat();
    // The frame's header announces 10 MB.
    let huge = [&[0x81, 0xff][..], &10_000_000u64.to_be_bytes(), &[1, 2, 3, 4]].concat();
    let in_parts: Vec<u8> = std::iter::once(masked(0x01, &[b'x'; 65_000]))
        .chain(std::iter::repeat_n(masked(0x00, &[b'x'; 65_000]), 20))
        .flatten()
        .collect();
    for (bytes, code, reason, why) in [
        (frame(2, text), 1003, "messages are text", "a binary frame"),
        (unmasked, 1002, "this is not WebSocket", "clients mask"),
        (frame(3, text), 1002, "this is not WebSocket", "an opcode that there is not"),
        (frame(11, text), 1002, "this is not WebSocket", "a control frame that there is not"),
        (masked(0xc1, text), 1002, "this is not WebSocket", "a bit that nobody agreed on"),
        (masked(0x09, text), 1002, "this is not WebSocket", "a ping in parts"),
        (frame(9, &[0; 126]), 1002, "this is not WebSocket", "a ping that is too long"),
        (frame(0, text), 1002, "this is not WebSocket", "a part of nothing"),
        (frame(1, &[b'[', 0xff, 0xfe]), 1007, "messages are UTF-8", "no UTF-8"),
        (frame(1, &[b'"', 0xe6, 0x9d]), 1007, "messages are UTF-8", "half a character"),
        (huge, 1009, "a message has at most 524288 bytes", "a huge frame"),
        (in_parts, 1009, "a message has at most 524288 bytes", "a huge message in parts"),
    ] {
        let mut raw = Raw::upgraded(relay.address).await;
        raw.send(bytes).await;
        assert_eq!(raw.closed().await, Some((code, reason.to_owned())), "{why}");
        bystander.is_well(&relay, why).await;
    }
    assert_eq!(relay.figure(r#"kukuri_connections_closed_total{reason="unreadable"}"#).await, 12.0);
}

#[tokio::test]
async fn an_oversized_message_is_refused_before_it_is_fully_received() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let mut client = relay.client().await;
    // The relay closes before it has received everything, so sending may fail.
    let _ = client.connection.send_text(&"x".repeat(10_000_000)).await;
    let ended = client.ended().await;
    assert_eq!((ended.code, ended.reason.as_str()), (1009, "a message has at most 524288 bytes"));
    drop(client);
    let mut client = relay.client().await;
    client.say_text(" ".repeat(524_288 - 2) + "[]").await;
    assert_eq!(client.hear().await[0], "NOTICE", "the longest that is allowed");
    drop(client);
    bystander.is_well(&relay, "after 10 MB").await;
}

#[tokio::test]
async fn abrupt_disconnects_leak_no_connection_or_subscription() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let request = frame(1, format!(r##"["REQ","s",{{"#t":["{TOPIC}"]}}]"##).as_bytes());
    for round in 0..10 {
        let mut half = Raw::upgraded(relay.address).await;
        half.send(&request).await;
        // Half-closed: the client can still receive, but sends no more.
        half.stream.shutdown().await.unwrap();
        let mut amid = Raw::upgraded(relay.address).await;
        amid.send(&request[..request.len() / 2]).await;
        drop(amid);
        let mut polite = Raw::upgraded(relay.address).await;
        polite.send(frame(8, &1000u16.to_be_bytes())).await;
        assert_eq!(polite.closed().await, Some((1000, String::new())), "a farewell is returned (RFC 6455)");
        let unread = Raw::upgraded(relay.address).await;
        unread.stream.set_zero_linger().unwrap();
        drop(unread);
        bystander.is_well(&relay, &format!("round {round}")).await;
        assert!(half.everything().await.len() < 100_000, "it is let go");
    }
    let figure = relay.figure(r#"kukuri_connections_closed_total{reason="unreadable"}"#).await;
    assert_eq!(figure, 0.0, "who leaves was not closed for anything");
}

#[tokio::test]
async fn pings_are_answered_and_silent_connections_are_pinged_then_closed() {
    let relay = small_relay().await;
    let mut raw = Raw::upgraded(relay.address).await;
    raw.send(frame(9, b"there?")).await;
    assert_eq!(raw.frame().await, Some((10, b"there?".to_vec())));
    drop(raw);
    relay.reconfigure(|config| config.requests.idle = Duration::from_secs(6));
    let mut alive = Raw::upgraded(relay.address).await;
    let mut silent = Raw::upgraded(relay.address).await;
    assert_eq!(silent.frame().await.map(|(opcode, _)| opcode), Some(9), "a ping");
    assert_eq!(alive.frame().await.map(|(opcode, _)| opcode), Some(9));
    alive.send(frame(10, b"")).await;
    assert_eq!(silent.closed().await, Some((1001, "no sign of life".to_owned())));
    assert_eq!(alive.frame().await.map(|(opcode, _)| opcode), Some(9), "who answers is asked again later");
    assert_eq!(relay.figure(r#"kukuri_connections_closed_total{reason="silent"}"#).await, 1.0);
}

#[tokio::test]
async fn a_client_that_does_not_finish_the_handshake_is_disconnected() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let started = Instant::now();
    let mut loris = Raw::connect(relay.address).await;
    loris.send("GET / HTTP/1.1\r\nhost: relay\r\n").await;
    let mut silent = Raw::connect(relay.address).await;
    let dripping = async {
        // Single bytes do not extend the timeout.
        for byte in b"x-a: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy" {
            loris.send([*byte]).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let last_byte = Instant::now();
        loris.everything().await;
        (started.elapsed(), last_byte.elapsed())
    };
    let waiting = async {
        silent.everything().await;
        started.elapsed()
    };
    let ((dripped, after_last), waited) = tokio::join!(dripping, waiting);
    for (time, why) in [(dripped, "a header that never ends"), (waited, "nothing at all")] {
        assert!(time > Duration::from_secs(8) && time < Duration::from_secs(30), "{why}: {time:?}");
    }
    // Else it would end 10 s after the last byte.
    assert!(after_last < Duration::from_secs(8), "a byte does not extend the timeout: {after_last:?}");
    let figure = r#"kukuri_connections_refused_total{reason="no_handshake"}"#;
    eventually("both are counted", async || relay.figure(figure).await == 2.0).await;
    bystander.is_well(&relay, "after slow ones").await;
}

#[tokio::test]
async fn input_that_is_not_http_is_refused() {
    let relay = small_relay().await;
    let mut bystander = Bystander::of(&relay).await;
    let noise: Vec<u8> = (0..50_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let long = format!("GET / HTTP/1.1\r\nhost: relay\r\nx-long: {}\r\n\r\n", "x".repeat(50_000));
    let lines = format!("GET / HTTP/1.1\r\n{}\r\n", "x-a: b\r\n".repeat(1_000));
    for (bytes, why) in [
        (noise, "noise"),
        (vec![0; 1_000], "zeros"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), "TLS"),
        (b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(), "SSH"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "HTTP/2"),
        (long.into_bytes(), "a header that is too long"),
        (lines.into_bytes(), "too many headers"),
    ] {
        let mut raw = Raw::connect(relay.address).await;
        raw.send(bytes).await;
        raw.stream.shutdown().await.unwrap_or_default();
        let answer = String::from_utf8_lossy(&raw.everything().await).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{why}: {answer}");
        bystander.is_well(&relay, why).await;
    }
    let figure = r#"kukuri_connections_refused_total{reason="no_handshake"}"#;
    eventually("each is counted", async || relay.figure(figure).await == 7.0).await;
}

#[tokio::test]
async fn filter_values_of_one_connection_are_limited() {
    // W-4: each value is an entry in the index of live subscriptions.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let filter = |letter: &str| {
        let values: Vec<_> = (0..1_900).map(|number| format!("{letter}{number}")).collect();
        json!({"#t": [TOPIC], format!("#{letter}"): values})
    };
    for name in ["a", "b", "c", "d", "e"] {
        client.request(name, &[filter(name)]).await;
    }
    client.say(json!(["REQ", "f", filter("f")])).await;
    let heard = client.hear().await;
    assert_eq!((&heard[0], &heard[1]), (&json!("CLOSED"), &json!("f")));
    assert!(heard[2].as_str().unwrap().contains("more than 10000 values"), "{heard}");
    client.say(json!(["CLOSE", "a"])).await;
    assert!(client.request("f", &[filter("f")]).await.is_empty(), "there is room again");
}

#[tokio::test]
async fn long_filter_values_count_as_several() {
    // W-4: the relay keeps filter values in memory as long as the subscription is open.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let filter = |letter: &str| json!({"#t": [TOPIC], "#x": [letter.repeat(500_000)]});
    for name in ["a", "b"] {
        client.request(name, &[filter(name)]).await;
    }
    let (_, end) = client.ask("c", &[filter("c")]).await;
    assert_eq!(end[0], "CLOSED");
    assert!(end[2].as_str().unwrap().contains("more than 10000 values"), "{end}");
    client.request("d", &[json!({"#t": [TOPIC], "#x": ["d"]})]).await;
    client.say(json!(["CLOSE", "a"])).await;
    client.request("c", &[filter("c")]).await;
}
