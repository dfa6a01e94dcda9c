//! Outbox consumers fall behind: the relay accepts less and reports it (O-9).

use crate::support::{TOPIC, TestRelay, as_json, draft, eventually, millis, note, topic};
use kukuri_domain::{
    TopicId,
    subscription::{IngestPolicy, SubscriptionChange},
    topic::TopicsMode,
};
use kukuri_engine::config::{BacklogLimits, Rates};
use kukuri_outbox::{State, Status};
use kukuri_store::Seq;
use serde_json::{Value, json};
use tokio::sync::watch;

const FAR: u64 = u64::MAX;

fn marks(live_only: u64, shedding: u64, cutting: u64) -> BacklogLimits {
    BacklogLimits { live_only, shedding, cutting }
}

/// A relay with five outbox rows, and a stuck consumer that has processed none of them.
async fn behind() -> (TestRelay, watch::Sender<Status>) {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let stuck = State::Stuck { at: Seq(1), why: "a row it can't do".to_owned() };
    let status = watch::Sender::new(Status { state: stuck, ..Status::default() });
    let _ = relay.engine.watch_consumer("test-v1", status.subscribe());
    let mut client = relay.client().await;
    for number in 0..5 {
        client.accepted(&note(1, &number.to_string()).sign()).await;
    }
    (relay, status)
}

#[tokio::test]
async fn a_backlog_refuses_history_then_the_lowest_topics_and_then_cuts_rates() {
    // O-9
    let (relay, status) = behind().await;
    let low = topic(2);
    let policy = IngestPolicy { priority: 0, ..IngestPolicy::default() };
    let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
    relay.engine.store().change_subscription(&TopicId::new_unchecked(&low), change, millis()).await.unwrap();
    relay.engine.reload_topics().await.unwrap();
    let mut client = relay.client().await;
    let import = async |text: &str| {
        let line = as_json(&note(3, text).sign()).to_string().into_bytes();
        relay.engine.import(vec![line]).await.remove(0).map(|_| ()).map_err(|refused| refused.to_string())
    };
    let low_note = |text: &str| draft(1, 1).tag(["t", &low]).content(text).sign();

    relay.reconfigure(|config| config.backlog = marks(1_000, FAR, FAR));
    assert_eq!(import("near").await, Ok(()));
    relay.reconfigure(|config| config.backlog = marks(5, FAR, FAR));
    let refused = "restricted: no history is taken in while the node is behind".to_owned();
    assert_eq!(import("stage 1").await, Err(refused));
    client.accepted(&low_note("live goes on")).await;

    relay.reconfigure(|config| config.backlog = marks(4, 5, FAR));
    let shed = (false, "restricted: topic is shed".to_owned());
    assert_eq!(client.publish(&low_note("stage 2")).await, shed);
    client.accepted(&note(1, "other topics go on").sign()).await;
    client.accepted(&draft(1, 5).tag(["t", &low]).tag(["e", &"ab".repeat(32)]).sign()).await;
    assert_eq!(relay.figure("kukuri_backlog_stage").await, 2.0);

    relay.reconfigure(|config| {
        config.backlog = marks(3, 4, 5);
        config.rates = Some(Rates::default());
    });
    let cut = (false, "rate-limited: node is behind".to_owned());
    let burst = Rates::default().events.burst.get();
    let mut answers = Vec::new();
    for number in 0..burst {
        answers.push(client.publish(&note(1, &format!("stage 3, {number}")).sign()).await);
    }
    let accepted = answers.iter().filter(|(is_accepted, _)| *is_accepted).count();
    // A tenth of the burst; on a slow machine the rate limiter refills a few more meanwhile.
    assert!((burst as usize / 10..burst as usize).contains(&accepted), "{accepted} of {burst}");
    assert!(answers.contains(&cut), "{answers:?}");

    status.send_modify(|status| (status.state, status.offset) = (State::Following, Seq(FAR)));
    eventually("it has caught up", async || relay.figure("kukuri_backlog_stage").await == 0.0).await;
    assert_eq!(import("history again").await, Ok(()));
}

#[tokio::test]
async fn an_import_waits_while_consumers_catch_up() {
    // O-9: a large import is delayed, not refused halfway.
    let (relay, status) = behind().await;
    relay.reconfigure(|config| config.backlog = marks(3, FAR, FAR));
    let line = as_json(&note(3, "old").sign()).to_string().into_bytes();
    let catching_up = async {
        for offset in 1..=5 {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            status.send_modify(|status| (status.state, status.offset) = (State::Following, Seq(offset)));
        }
    };
    let (answers, ()) = tokio::join!(relay.engine.import(vec![line]), catching_up);
    assert!(answers[0].is_ok(), "{answers:?}");
}

#[tokio::test]
async fn health_reports_a_stuck_consumer_and_the_relay_stays_ready() {
    let (relay, status) = behind().await;
    let health = async || {
        let (code, _, body) = relay.get("/healthz", &[]).await;
        (code, serde_json::from_str::<Value>(&body).unwrap())
    };
    let (code, body) = health().await;
    assert_eq!((code, &body["status"]), (200, &json!("ready")));
    assert_eq!(body["consumers"], json!({ "test-v1": { "state": "stuck", "backlog": 5 } }));
    assert_eq!(relay.figure(r#"kukuri_consumer_backlog{consumer="test-v1"}"#).await, 5.0);
    assert_eq!(relay.figure(r#"kukuri_consumer_state{consumer="test-v1"}"#).await, 6.0);
    status.send_modify(|status| (status.state, status.offset) = (State::Following, Seq(5)));
    assert_eq!(health().await.1["consumers"], json!({ "test-v1": { "state": "following", "backlog": 0 } }));
}

#[tokio::test]
async fn indexing_delay_and_search_time_are_measured() {
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    consumer.on_done(relay.engine.watch_consumer("index-v1", consumer.status()));
    let mut client = relay.client().await;
    client.accepted(&note(1, "measured").sign()).await;
    let measured = r#"kukuri_consumer_lag_seconds_count{consumer="index-v1"}"#;
    let is_measured = async || relay.get("/metrics", &[]).await.2.lines().any(|line| line.starts_with(measured));
    eventually("the index has it", is_measured).await;
    assert_eq!(client.request("s", &[json!({"#t": [TOPIC], "search": "measured"})]).await.len(), 1);
    assert_eq!(relay.figure("kukuri_search_seconds_count").await, 1.0);
}
