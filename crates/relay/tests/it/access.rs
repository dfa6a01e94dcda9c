//! Access control (W-4): connection limits, denied addresses, keys and kinds, and the forwarded address of a proxy.

use crate::support::{Client, Raw, TOPIC, TestConfig, TestRelay, draft, eventually, key_of, note};
use kukuri_domain::{PublicKey, topic::TopicsMode};
use kukuri_engine::config::{Rate, Rates};
use kukuri_http::Proxy;
use serde_json::json;

/// Trusts proxies on this machine and in 10.0.0.0/8.
fn behind_proxy(config: &mut TestConfig) {
    let trusted = vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
    config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
}

async fn from(relay: &TestRelay, hops: &str) -> Result<Client, (u16, String)> {
    Client::connect_as(&relay.url, &[("x-forwarded-for", hops)]).await
}

fn denied(author: u8) -> PublicKey {
    serde_json::from_value(json!(key_of(author))).unwrap()
}

#[tokio::test]
async fn connections_per_address_are_limited() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { connections_per_ip: 3, ..Rates::default() });
        behind_proxy(config);
    })
    .await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(from(&relay, "192.0.2.1").await.unwrap());
    }
    let refused = from(&relay, "192.0.2.1").await.err();
    assert_eq!(refused, Some((429, "too many connections from this address\n".to_owned())));
    assert_eq!(relay.figure(r#"kukuri_connections_refused_total{reason="too_many"}"#).await, 1.0);
    assert!(from(&relay, "192.0.2.2").await.is_ok(), "another address");
    for _ in 0..3 {
        clients.push(from(&relay, "2001:db8::1").await.unwrap());
    }
    assert!(from(&relay, "2001:db8::2").await.is_err(), "one network of IPv6 is one client");
    assert!(from(&relay, "2001:db8:0:1::1").await.is_ok(), "another network");
    // Y-1: a /56 has 4 times as many, a /48 16 times.
    for number in 1..10 {
        clients.push(from(&relay, &format!("2001:db8:0:{number}::1")).await.unwrap());
    }
    assert!(from(&relay, "2001:db8:0:10::1").await.is_err(), "12 from a /56");
    for number in 0..36 {
        clients.push(from(&relay, &format!("2001:db8:0:1{number:02}0::1")).await.unwrap());
    }
    assert!(from(&relay, "2001:db8:0:8000::1").await.is_err(), "48 from a /48");
    assert!(from(&relay, "2001:db8:1::1").await.is_ok(), "another /48");
    clients.clear();
    eventually("who has left makes room", async || from(&relay, "192.0.2.1").await.is_ok()).await;
}

#[tokio::test]
async fn without_a_proxy_excess_connections_get_503_before_any_request() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { connections_per_ip: 2, ..Rates::default() });
    })
    .await;
    let held = (relay.client().await, relay.client().await);
    let answer = Raw::connect(relay.address).await.everything().await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\ntoo many connections from this address\n"), "{answer}");
    drop(held);
    eventually("those have left", async || relay.connections() == 0).await;
    let (status, _, figures) = relay.get("/metrics", &[]).await;
    assert_eq!(status, 200, "asking takes a connection, too, and there is room");
    assert!(figures.contains("kukuri_connections_refused_total{reason=\"too_many\"} 1"), "{figures}");
}

#[tokio::test]
async fn total_connections_are_limited() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.requests.connections = 2).await;
    let held = (relay.client().await, relay.client().await);
    let answer = String::from_utf8(Raw::connect(relay.address).await.everything().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("this node has no room for more connections"), "{answer}");
    relay.reconfigure(|config| config.requests.connections = 100);
    assert_eq!(relay.figure(r#"kukuri_connections_refused_total{reason="full"}"#).await, 1.0);
    drop(held);
}

#[tokio::test]
async fn new_connections_per_address_are_rate_limited() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { new_connections: Rate::new(1, 3), ..Rates::default() });
        behind_proxy(config);
    })
    .await;
    for _ in 0..3 {
        assert!(from(&relay, "192.0.2.1").await.is_ok());
    }
    let (status, reason) = from(&relay, "192.0.2.1").await.err().unwrap();
    assert!(status == 429 && reason.starts_with("too many new connections"), "{status} {reason}");
    assert_eq!(relay.figure(r#"kukuri_connections_refused_total{reason="too_fast"}"#).await, 1.0);
    assert!(from(&relay, "192.0.2.2").await.is_ok(), "another address");
    relay.reconfigure(|config| config.rates = None);
    assert!(from(&relay, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_denied_address_is_refused_also_behind_a_proxy() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.deny.ips = vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()];
        behind_proxy(config);
    })
    .await;
    for (hops, is_let_in, why) in [
        ("192.0.2.7", false, "denied"),
        ("198.51.100.1", true, "not denied"),
        ("2001:db8::9", false, "denied, too"),
        ("::ffff:192.0.2.7", false, "the same in other clothes"),
        ("198.51.100.1, 192.0.2.7", false, "the nearest hop counts; what stands before is hearsay"),
        ("192.0.2.7, 198.51.100.1", true, "also for one that claims to be denied"),
        ("192.0.2.7, 10.0.0.1", false, "a proxy of ours is no client"),
        ("192.0.2.7, 10.0.0.1, 127.0.0.1", false, "nor are two of them"),
        ("10.0.0.1", true, "one of ours that asks for itself"),
        ("[2001:db8::1]:4711", false, "with a port"),
        ("unknown, 192.0.2.7:80", false, "what is no address is passed over"),
    ] {
        let answer = from(&relay, hops).await;
        let expected = (403, "this address is denied\n".to_owned());
        assert_eq!(answer.err(), (!is_let_in).then_some(expected), "{why}: {hops}");
    }
    let nobody = Client::connect_as(&relay.url, &[]).await.err();
    assert_eq!(nobody, Some((400, "the proxy does not say where this comes from\n".to_owned())));
    assert_eq!(relay.figure(r#"kukuri_connections_refused_total{reason="denied"}"#).await, 8.0);
    assert_eq!(relay.figure(r#"kukuri_connections_refused_total{reason="no_address"}"#).await, 1.0);
}

#[tokio::test]
async fn requests_on_one_proxy_connection_are_each_checked_by_client_address() {
    // A proxy reuses one connection for several clients.
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.deny.ips = vec!["192.0.2.0/24".parse().unwrap()];
        behind_proxy(config);
    })
    .await;
    let mut raw = Raw::connect(relay.address).await;
    let ask = |address: &str| {
        format!(
            "GET / HTTP/1.1\r\nhost: relay\r\nconnection: upgrade\r\nupgrade: websocket\r\nx-forwarded-for: {address}\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
    };
    for _ in 0..3 {
        raw.send(ask("192.0.2.1")).await;
        assert!(raw.head().await.starts_with("HTTP/1.1 403"));
        raw.body("this address is denied\n").await;
    }
    raw.send(ask("198.51.100.1")).await;
    assert!(raw.head().await.starts_with("HTTP/1.1 101"), "and who is not denied is let in");
}

#[tokio::test]
async fn forwarded_address_from_an_untrusted_proxy_is_ignored() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.deny.ips = vec!["192.0.2.0/24".parse().unwrap()];
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    assert!(from(&relay, "192.0.2.7").await.is_ok(), "it is 127.0.0.1, whatever it says");
    relay.reconfigure(|config| config.deny.ips = vec!["127.0.0.1/32".parse().unwrap()]);
    let answer = String::from_utf8(Raw::connect(relay.address).await.everything().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden") && answer.contains("this address is denied"), "{answer}");
}

#[tokio::test]
async fn denied_keys_and_kinds_are_blocked_except_for_vanish_requests() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    client.accepted(&note(1, "before").sign()).await;
    relay.reconfigure(|config| {
        config.deny.pubkeys = [denied(1)].into();
        config.deny.kinds = vec![7..=9, 62..=62];
    });
    let blocked = (false, "blocked: this author or this kind is on the deny list".to_owned());
    assert_eq!(client.publish(&note(1, "after").sign()).await, blocked, "on a connection that was there before");
    for (kind, passes) in [(6, true), (7, false), (9, false), (10, true)] {
        let answer = client.publish(&draft(2, kind).tag(["t", TOPIC]).sign()).await;
        assert_eq!(answer.0, passes, "{kind}: {answer:?}");
        assert!(passes || answer == blocked);
    }
    let (accepted, reason) = client.authenticate(1, &relay.url).await;
    assert!(!accepted && reason.starts_with("blocked: "), "{reason}");
    assert_eq!(client.authenticate(2, &relay.url).await, (true, String::new()));
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC], "authors": [key_of(1)]})]).await.len(), 1, "what is here stays");
    client.accepted(&draft(1, 62).tag(["relay", &relay.url]).sign()).await;
    assert!(
        relay.visible(&[json!({"#t": [TOPIC], "authors": [key_of(1)]})]).await.is_empty(),
        "nobody is kept from it"
    );
    relay.reconfigure(|config| config.deny.kinds.clear());
    client.accepted(&draft(2, 7).tag(["t", TOPIC]).content("lifted").sign()).await;
}

#[tokio::test]
async fn a_client_that_becomes_denied_is_closed_with_a_reason() {
    let relay = TestRelay::start_with(TopicsMode::Required, behind_proxy).await;
    let mut by_address = from(&relay, "192.0.2.7").await.unwrap();
    let mut by_key = from(&relay, "198.51.100.1").await.unwrap();
    assert_eq!(by_key.authenticate(3, &relay.url).await, (true, String::new()));
    let mut other = from(&relay, "198.51.100.1").await.unwrap();
    assert_eq!(other.authenticate(4, &relay.url).await, (true, String::new()));
    relay.reconfigure(|config| {
        config.deny.ips = vec!["192.0.2.0/24".parse().unwrap()];
        config.deny.pubkeys = [denied(3)].into();
    });
    for (client, reason) in [
        (&mut by_address, "blocked: this address is on the deny list"),
        (&mut by_key, "blocked: this public key is on the deny list"),
    ] {
        let ended = client.ended().await;
        assert_eq!(ended.before, [json!(["NOTICE", reason])]);
        assert_eq!((ended.code, ended.reason.as_str()), (1008, reason));
    }
    assert!(other.request("s", &[json!({"#t": [TOPIC]})]).await.is_empty(), "others stay");
    assert_eq!(relay.figure(r#"kukuri_connections_closed_total{reason="denied"}"#).await, 2.0);
}

#[tokio::test]
async fn an_http_connection_of_an_address_that_becomes_denied_ends() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut raw = Raw::connect(relay.address).await;
    raw.send("GET /healthz HTTP/1.1\r\nhost: relay\r\n\r\n".to_owned()).await;
    assert!(raw.head().await.starts_with("HTTP/1.1 200"));
    relay.reconfigure(|config| config.deny.ips = vec!["127.0.0.0/8".parse().unwrap()]);
    // An idle connection would end after 10 s by itself.
    let ended = tokio::time::timeout(std::time::Duration::from_secs(9), raw.everything()).await;
    assert!(ended.is_ok(), "the connection ends at once");
}
