//! Stages of capacity and of disk space (P-6).

use crate::support::{TOPIC, TestRelay, as_json, draft, eventually, id_of, millis, note, now, topic};
use kukuri_domain::{
    Reason, TopicId,
    capacity::Capacity,
    subscription::{IngestPolicy, SubscriptionChange},
    topic::TopicsMode,
};
use kukuri_engine::config::Disk;
use kukuri_store::{Op, Seq, StoreRules};
use kukuri_store_lmdb::LmdbOptions;
use serde_json::json;

fn most(events: u64) -> LmdbOptions {
    let capacity = Capacity { max_events: Some(events), max_bytes: None };
    LmdbOptions { rules: StoreRules { capacity, ..StoreRules::default() }, ..LmdbOptions::default() }
}

#[tokio::test]
async fn a_relay_at_capacity_purges_the_oldest_events_and_reports_it() {
    let relay = TestRelay::start_on(most(100), TopicsMode::Required, |_| {}).await;
    let mut client = relay.client().await;
    let profile = draft(1, 0).tag(["t", TOPIC]).sign();
    let request = draft(1, 5).tag(["t", TOPIC]).tag(["e", &"ab".repeat(32)]).sign();
    client.accepted(&profile).await;
    client.accepted(&request).await;
    let notes: Vec<_> = (0..98).map(|number| note(1, &number.to_string()).at(now() - number).sign()).collect();
    for (place, event) in notes.iter().enumerate() {
        client.accepted(event).await;
        match place {
            // The 79th note is the 81st event, after profile and deletion request.
            78 => eventually("at 81 %", async || relay.figure("kukuri_capacity_stage").await == 1.0).await,
            90 => eventually("at 93 %", async || relay.figure("kukuri_capacity_stage").await == 2.0).await,
            _ => {}
        }
    }
    let purged = r#"kukuri_purged_events_total{reason="capacity"}"#;
    eventually("down to 95 %", async || relay.figure(purged).await == 5.0).await;
    eventually("95 are left", async || relay.figure("kukuri_effective_events").await == 95.0).await;
    assert_eq!(relay.figure("kukuri_capacity_stage").await, 2.0, "a stage is left five points lower");
    assert!(relay.get("/", &[]).await.2.contains("Room is short"), "people read it on the page");

    let left = relay.visible(&[json!({"#t": [TOPIC], "limit": 500})]).await;
    for event in &notes[..5] {
        assert!(!left.contains(&id_of(event)), "those that came first are gone");
    }
    for event in notes[5..].iter().chain([&profile, &request]) {
        assert!(left.contains(&id_of(event)), "the others are here; a profile and a request never give way");
    }
    let rows = relay.engine.store().outbox(Seq(0), 1_000).await.unwrap();
    let gone = rows.iter().filter(|row| row.op == Op::Delete(Reason::Capacity)).count();
    assert_eq!(gone, 5, "P-8: the outbox tells of each");
    let blocked = (false, "blocked: no longer kept here".to_owned());
    assert_eq!(client.publish(&notes[0]).await, blocked, "P-2: it is not taken in again");
    client.accepted(&note(1, "and there is room for more").sign()).await;
}

#[tokio::test]
async fn a_filled_share_of_permanent_events_is_shown_and_refuses_newcomers() {
    let capacity = Capacity { max_events: Some(20), max_bytes: None };
    let relay = TestRelay::start_on(most(20), TopicsMode::Required, |config| config.capacity = capacity).await;
    let mut client = relay.client().await;
    let permanent = async || {
        let (_, _, health) = relay.get("/healthz", &[]).await;
        serde_json::from_str::<serde_json::Value>(&health).unwrap()["permanent"].clone()
    };
    client.accepted(&note(1, "a member").sign()).await;
    for author in 2..12 {
        assert_eq!(permanent().await, "open");
        client.accepted(&draft(author, 0).tag(["t", TOPIC]).sign()).await;
    }
    eventually("the node shows it", async || permanent().await == "full").await;
    assert_eq!(relay.figure("kukuri_permanent_stage").await, 1.0);
    assert_eq!(relay.figure("kukuri_permanent_percent").await, 50.0);
    assert!(relay.get("/", &[]).await.2.contains("Room for requests and current versions is used up"));
    let refused = "restricted: space for events that are kept for ever is used up; only authors with another event here \
                   may add to it";
    for kind in [0, 5] {
        let (is_accepted, reason) = client.publish(&draft(20, kind).tag(["t", TOPIC]).sign()).await;
        assert_eq!((is_accepted, reason.as_str()), (false, refused), "kind {kind}");
    }
    client.accepted(&note(20, "a newcomer says hello").sign()).await;
    client.accepted(&draft(20, 0).tag(["t", TOPIC]).sign()).await;
}

#[tokio::test]
async fn a_topic_of_the_lowest_priority_is_shed_first() {
    let relay = TestRelay::start_on(most(100), TopicsMode::Required, |_| {}).await;
    let mut client = relay.client().await;
    let low = topic(2);
    let policy = IngestPolicy { priority: 0, ..IngestPolicy::default() };
    let change = SubscriptionChange { policy: Some(policy), ..SubscriptionChange::enable() };
    relay.engine.store().change_subscription(&TopicId::new_unchecked(&low), change, millis()).await.unwrap();
    for number in 0..90 {
        client.accepted(&note(1, &number.to_string()).sign()).await;
    }
    let shed = draft(1, 1).tag(["t", &low]);
    let answer = (false, "restricted: topic is shed".to_owned());
    assert_eq!(client.publish(&shed.clone().sign()).await, answer);
    client.accepted(&shed.tag(["t", TOPIC]).sign()).await;
    client.accepted(&draft(1, 5).tag(["t", &low]).tag(["e", &"ab".repeat(32)]).sign()).await;
}

#[tokio::test]
async fn with_a_full_disk_only_deletion_and_vanish_requests_are_accepted() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let mut reader = relay.client().await;
    let post = note(1, "before").sign();
    client.accepted(&post).await;
    client.accepted(&note(2, "stays").sign()).await;
    let disk = |marks: [u64; 3]| {
        let [live_only, shedding, full] = marks;
        Some(Disk { path: std::env::temp_dir(), live_only, shedding, full })
    };
    relay.reconfigure(|config| config.disk = disk([u64::MAX, 1, 1]));
    client.accepted(&note(1, "live goes on").sign()).await;
    let history = note(1, "history").sign();
    let imported = relay.engine.import(vec![as_json(&history).to_string().into_bytes()]).await;
    assert!(
        imported[0].as_ref().is_err_and(|why| why.to_string().starts_with("restricted: no history")),
        "{imported:?}"
    );

    relay.reconfigure(|config| config.disk = disk([u64::MAX; 3]));
    assert_eq!(relay.figure("kukuri_disk_stage").await, 3.0);
    assert!(relay.get("/", &[]).await.2.contains("The disk is nearly full"));
    let full = (false, "error: disk full".to_owned());
    for (kind, why) in [(1, "a note"), (0, "a profile"), (7, "a like")] {
        assert_eq!(client.publish(&draft(1, kind).tag(["t", TOPIC]).content("x").sign()).await, full, "{why}");
    }
    for (kind, why) in [(5, "a stranger's deletion request"), (62, "a stranger's vanish request")] {
        let request = draft(3, kind).tag(["t", TOPIC]).tag(["relay", &relay.url]).tag(["e", &id_of(&post)]).sign();
        assert_eq!(client.publish(&request).await, full, "{why}");
    }
    let known = (true, "duplicate: already have this event".to_owned());
    assert_eq!(client.publish(&post).await, known, "what is here needs no room");
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    let deletion = draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&post)]).sign();
    client.accepted(&deletion).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&deletion)]), "reads go on, live ones too");
    client.accepted(&draft(2, 62).tag(["relay", &relay.url]).sign()).await;
    let left = relay.visible(&[json!({"#t": [TOPIC], "kinds": [1]})]).await;
    assert_eq!(left.len(), 1, "one was deleted, one has vanished, and one is there");

    relay.reconfigure(|config| config.disk = None);
    client.accepted(&note(1, "there is room again").sign()).await;
}
