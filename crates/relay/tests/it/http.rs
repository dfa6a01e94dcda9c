//! HTTP on the relay's port: information document (NIP-11), HTML page, health, metrics, and refusals.

use std::time::Duration;

use crate::support::{Raw, TOPIC, TestRelay, eventually, millis, note, topic};
use kukuri_domain::{Millis, PublicKey, TopicId, subscription::SubscriptionChange, topic::TopicsMode};
use kukuri_engine::config::{Auth, Rate, Rates, TopicIntake};
use kukuri_http::Proxy;
use kukuri_store_lmdb::LmdbOptions;
use serde_json::{Value, json};

const INFORMATION: (&str, &str) = ("accept", "application/nostr+json");

#[tokio::test]
async fn information_document_contains_the_configuration() {
    let key = PublicKey::from_bytes([7; 32]);
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.info.name = "A \"quoted\" name".to_owned();
        config.info.description = "説明".to_owned();
        config.info.contact = Some("mailto:operator@example.org".to_owned());
        config.info.pubkey = Some(key);
        config.info.own_key = Some(PublicKey::from_bytes([8; 32]));
        config.info.icon = Some("https://example.org/icon.png".to_owned());
        config.info.posting_policy = Some("https://example.org/rules".to_owned());
        config.info.language_tags = vec!["ja".to_owned(), "en".to_owned()];
        config.requests.message_bytes = 70_000;
        config.requests.subscriptions = 11;
        config.requests.filters = 12;
        config.requests.limit = 13;
        config.admission.limits.tag_count = 14;
        config.admission.limits.content_bytes = 15_000;
        config.admission.limits.created_at_ahead = Duration::from_secs(16);
    })
    .await;
    let (status, head, body) = relay.get("/", &[INFORMATION]).await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: application/nostr+json\r\n"), "{head}");
    let document: Value = serde_json::from_str(&body).unwrap();
    for (path, expected) in [
        ("/name", json!("A \"quoted\" name")),
        ("/description", json!("説明")),
        ("/contact", json!("mailto:operator@example.org")),
        ("/pubkey", json!(key)),
        ("/self", json!("08".repeat(32))),
        ("/icon", json!("https://example.org/icon.png")),
        ("/posting_policy", json!("https://example.org/rules")),
        ("/language_tags", json!(["ja", "en"])),
        ("/limitation/max_message_length", json!(70_000)),
        ("/limitation/max_subscriptions", json!(11)),
        ("/limitation/max_filters", json!(12)),
        ("/limitation/max_limit", json!(13)),
        ("/limitation/default_limit", json!(13)),
        ("/limitation/max_event_tags", json!(14)),
        ("/limitation/max_content_length", json!(15_000)),
        ("/limitation/created_at_upper_limit", json!(16)),
        ("/limitation/max_subid_length", json!(64)),
        ("/limitation/auth_required", json!(false)),
        ("/limitation/restricted_writes", json!(false)),
    ] {
        assert_eq!(document.pointer(path), Some(&expected), "{path}");
    }
    let nips: Vec<u64> = serde_json::from_value(document["supported_nips"].clone()).unwrap();
    assert!([1, 9, 11, 40, 42, 45, 62, 67, 70, 77].iter().all(|nip| nips.contains(nip)), "{nips:?}");

    relay.reconfigure(|config| {
        config.info.contact = None;
        config.requests.filters = 99;
        config.topics = TopicIntake::Closed;
    });
    let (_, _, body) = relay.get("/", &[("accept", "text/html, application/nostr+json;q=0.9")]).await;
    let document: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(document["limitation"]["max_filters"], 99, "the limits are those of now");
    assert_eq!(document["limitation"]["restricted_writes"], true);
    assert!(document.get("contact").is_none(), "what is not set is not there");
}

#[tokio::test]
async fn requests_are_answered_by_method_path_and_headers() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let upgrade = [("connection", "Upgrade"), ("upgrade", "websocket")];
    let with = |more: &[(&'static str, &'static str)]| [&upgrade[..], more].concat();
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    for (method, path, headers, status, why) in [
        ("GET", "/", vec![INFORMATION], 200, "information"),
        ("HEAD", "/", vec![INFORMATION], 200, "its head alone"),
        ("OPTIONS", "/", vec![("origin", "https://client.example")], 204, "a browser asks beforehand"),
        ("GET", "/", vec![("accept", "text/html")], 200, "the page"),
        ("GET", "/", vec![], 200, "the page, for who says nothing"),
        ("POST", "/", vec![("content-length", "0")], 405, "nothing is posted here"),
        ("DELETE", "/", vec![], 405, "nor deleted"),
        ("GET", "/healthz", vec![], 200, "health"),
        ("GET", "/metrics", vec![], 200, "figures"),
        ("POST", "/metrics", vec![("content-length", "0")], 405, "which are only read"),
        ("GET", "/elsewhere", vec![], 404, "nothing is there"),
        ("GET", "/../etc/passwd", vec![], 404, "nor there"),
        ("GET", "/", with(&[key, ("sec-websocket-version", "12")]), 426, "an old WebSocket"),
        ("GET", "/", with(&[key]), 426, "a WebSocket of no version"),
        ("POST", "/", with(&[key, ("sec-websocket-version", "13")]), 426, "a WebSocket by POST"),
        ("GET", "/", with(&[("sec-websocket-version", "13")]), 400, "a WebSocket without a key"),
    ] {
        // `relay.http` adds `connection: close`, so an upgrade request has two `connection` headers.
        let (found, head, body) = relay.http(method, path, &headers).await;
        assert_eq!(found, status, "{why}: {head}");
        if path == "/" && !headers.contains(&upgrade[0]) {
            for header in ["origin", "headers", "methods"] {
                assert!(head.contains(&format!("access-control-allow-{header}: *")), "{why}: {head}");
            }
        }
        assert!(status != 426 || head.contains("sec-websocket-version: 13"), "{why}: it is told which: {head}");
        assert!(!matches!(status, 400 | 426) || !body.is_empty(), "{why}: it is told why");
    }
    assert_eq!(relay.connections(), 0);
}

#[tokio::test]
async fn html_page_describes_the_relay_and_loads_nothing_external() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.info.name = "Cats & <dogs>".to_owned();
        config.info.description = "説明".to_owned();
        config.info.icon = Some("https://example.org/icon.png".to_owned());
        config.info.posting_policy = Some("https://example.org/rules".to_owned());
    })
    .await;
    let (_, _, empty) = relay.get("/", &[]).await;
    assert!(empty.contains("There are no events yet."));
    let mut client = relay.client().await;
    for number in 0..3 {
        client.accepted(&note(1, &number.to_string()).sign()).await;
    }
    client.accepted(&note(1, "both").tag(["t", &topic(2)]).sign()).await;
    let close = SubscriptionChange::disable();
    relay.engine.store().change_subscription(&TopicId::new_unchecked(&topic(2)), close, millis()).await.unwrap();
    eventually("a topic that is not taken in is not listed", async || {
        let (_, _, page) = relay.get("/", &[]).await;
        page.contains(TOPIC) && !page.contains(&topic(2))
    })
    .await;

    let (status, head, page) = relay.get("/", &[("accept", "text/html")]).await;
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
    assert!(page.contains("<title>Cats &amp; &lt;dogs&gt;</title>") && page.contains("説明"), "escaped, and as it is");
    let row =
        |topic: &str, count: &str| page.contains(&format!(r#"<code>{topic}</code></td><td class="n">{count}</td>"#));
    assert!(row(TOPIC, "4"), "each topic with its events: {page}");
    assert!(page.contains("color-scheme: light dark") && page.contains("prefers-color-scheme: dark"));
    assert!(page.contains(r#"name="viewport""#) && page.contains("<html lang="), "for small screens, and readers");
    for outside in ["src=", "@import", "url(", "<script", "<link", "<iframe", "href=\"http", "href=\"//", "action="] {
        assert!(!page.contains(outside), "{outside} in {page}");
    }
}

#[tokio::test]
async fn health_and_metrics_report_the_state_of_the_relay() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let other = relay.client().await;
    client.request("s", &[json!({"#t": [TOPIC]})]).await;
    client.accepted(&note(1, "hello").sign()).await;
    assert!(!client.publish(&note(1, "x").tag(["t", "kukuri:x"]).sign()).await.0);
    client.tell(json!(["HELLO"])).await;
    eventually("it is delivered", async || relay.figure("kukuri_live_deliveries_total").await == 1.0).await;

    let (status, head, body) = relay.get("/healthz", &[]).await;
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
    let health: Value = serde_json::from_str(&body).unwrap();
    for (field, expected) in [
        ("status", json!("ready")),
        ("store", json!("ready")),
        ("events", json!(1)),
        ("connections", json!(2)),
        ("subscriptions", json!(1)),
        ("topics", json!(2)),
        ("capacity", json!("open")),
        ("disk", json!("open")),
        ("backlog", json!("near")),
        ("consumers", json!({})),
        ("clock_held", json!(false)),
    ] {
        assert_eq!(health[field], expected, "{field}");
    }
    for (name, expected) in [
        ("kukuri_connections", 2.0),
        ("kukuri_connections_total", 2.0),
        ("kukuri_subscriptions", 1.0),
        ("kukuri_effective_events", 1.0),
        ("kukuri_topics_enabled", 2.0),
        ("kukuri_topics_opened_total", 1.0),
        ("kukuri_live_deliveries_total", 1.0),
        (r#"kukuri_events_total{outcome="stored"}"#, 1.0),
        (r#"kukuri_events_total{outcome="invalid"}"#, 1.0),
        (r#"kukuri_requests_total{verb="REQ"}"#, 1.0),
        (r#"kukuri_requests_total{verb="EVENT"}"#, 2.0),
        (r#"kukuri_requests_total{verb="unreadable"}"#, 1.0),
    ] {
        assert_eq!(relay.figure(name).await, expected, "{name}");
    }
    let (_, _, figures) = relay.get("/metrics", &[]).await;
    for secret in ["127.0.0.1", &crate::support::key_of(1), TOPIC] {
        assert!(!figures.contains(secret), "no label holds an address, a key or a topic: {secret}");
    }
    drop(other);
    eventually("one has left", async || relay.figure("kukuri_connections").await == 1.0).await;
}

#[tokio::test]
async fn one_connection_serves_several_requests() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut raw = Raw::connect(relay.address).await;
    for _ in 0..3 {
        raw.send("HEAD /healthz HTTP/1.1\r\nhost: relay\r\n\r\n").await;
        assert!(raw.head().await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn state_of_the_node_is_shown_at_a_rate_per_address() {
    // Y-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.rates = Some(Rates { new_connections: Rate::new(10_000, 10_000), ..Rates::default() });
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    let mut raw = Raw::connect(relay.address).await;
    let (begun, mut refused) = (std::time::Instant::now(), 0);
    for number in 0..150 {
        let path = ["/", "/healthz", "/metrics"][number % 3];
        raw.send(format!("HEAD {path} HTTP/1.1\r\nhost: relay\r\nx-forwarded-for: 192.0.2.1\r\n\r\n")).await;
        let head = raw.head().await.to_lowercase();
        if head.starts_with("http/1.1 429") {
            assert!(head.contains("retry-after: ") && number >= 100, "{number}: {head}");
            refused += 1;
        }
    }
    let earned = 1 + (begun.elapsed().as_secs_f64() * 5.0) as u64;
    assert!(refused <= 50 && refused + earned >= 50, "a burst of a hundred, then five a second: {refused}, {earned}");
    assert_eq!(relay.get("/healthz", &[("x-forwarded-for", "192.0.2.2")]).await.0, 200, "another address");
    assert_eq!(relay.get("/healthz", &[]).await.0, 200, "a monitor beside the proxy");
}

#[tokio::test]
async fn denied_addresses_see_no_page_health_or_metrics_through_a_proxy() {
    // Y-4
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.deny.ips = vec!["192.0.2.0/24".parse().unwrap()];
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    for path in ["/", "/healthz", "/metrics"] {
        let (status, _, body) = relay.get(path, &[("x-forwarded-for", "192.0.2.7")]).await;
        assert_eq!((status, body.as_str()), (403, "this address is denied\n"), "{path}");
        assert_eq!(relay.get(path, &[("x-forwarded-for", "198.51.100.7")]).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn page_shows_no_topics_if_authentication_is_required() {
    // Y-4
    let relay = TestRelay::start(TopicsMode::Required).await;
    relay.client().await.accepted(&note(1, "hello").sign()).await;
    assert!(relay.get("/", &[]).await.2.contains(TOPIC));
    relay.reconfigure(|config| {
        config.auth = Auth::Required {
            enforce_at: Millis(u64::MAX / 2),
            grace: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
        };
    });
    let (status, _, page) = relay.get("/", &[]).await;
    assert!(status == 200 && !page.contains(TOPIC) && !page.contains("kukuri:"), "{page}");
}

#[tokio::test]
async fn looks_at_the_state_of_the_node_commit_nothing_and_read_the_store_once_a_second() {
    // Y-4
    let options = LmdbOptions { group_commit_window: Duration::from_secs(60), ..LmdbOptions::default() };
    let relay = TestRelay::start_on(options, TopicsMode::Required, |_| {}).await;
    let mut client = relay.client().await;
    client.accepted(&note(1, "first").sign()).await;
    client.accepted(&note(1, "pending").sign()).await;
    let begun = std::time::Instant::now();
    let health = relay.get("/healthz", &[]).await.2;
    assert_eq!(serde_json::from_str::<Value>(&health).unwrap()["events"], 2, "pending events count");
    client.accepted(&note(1, "more").sign()).await;
    let seen = relay.figure("kukuri_effective_events").await;
    assert!(seen == 2.0 || begun.elapsed() > Duration::from_millis(900), "{seen}");
}
