//! Open topics (T-8): the first event opens a topic, within limits; idle topics close; the operator's setting stays.

use std::{num::NonZeroU32, time::Duration};

use crate::support::{Client, Draft, TOPIC, TestRelay, as_json, draft, eventually, id_of, millis, note, topic};
use kukuri_domain::{Origin, TopicId, subscription::SubscriptionChange, topic::TopicsMode};
use kukuri_engine::config::{Rates, TopicIntake};
use kukuri_http::Proxy;
use serde_json::json;

const NOT_ENABLED: &str = "restricted: topic not enabled";
const LONG: Duration = Duration::from_secs(1_000);

fn open(max: usize, idle: Duration, opened_per_hour: u32) -> TopicIntake {
    TopicIntake::Open { max, idle, opened_per_hour: NonZeroU32::new(opened_per_hour).unwrap() }
}

/// A note in topic `number`.
fn in_topic(author: u8, number: u8) -> Draft {
    draft(author, 1).tag(["t", &topic(number)])
}

async fn enabled(relay: &TestRelay) -> Vec<String> {
    let all = relay.engine.store().subscriptions().await.unwrap();
    all.into_iter().filter(|subscription| subscription.enabled).map(|one| one.topic.to_string()).collect()
}

/// Changes a topic as an operator does, and waits until the relay has applied it.
async fn change(relay: &TestRelay, topic: &str, change: SubscriptionChange) {
    relay.engine.store().change_subscription(&TopicId::new_unchecked(topic), change, millis()).await.unwrap();
    let count = enabled(relay).await.len() as f64;
    eventually("the relay hears of it", async || relay.figure("kukuri_topics_enabled").await == count).await;
}

fn refused(message: impl Into<String>) -> (bool, String) {
    (false, message.into())
}

#[tokio::test]
async fn the_first_event_opens_a_topic_but_a_forged_one_does_not() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    assert_eq!(enabled(&relay).await, ["kukuri:global"], "a new node takes in one topic");
    let mut forged = note(1, "forged").sign();
    forged.sig = note(1, "another").sign().sig;
    assert_eq!(client.publish(&forged).await, refused("invalid: signature verification failed"));
    client.request("s", &[json!({"#t": [TOPIC]})]).await;
    let farewell = draft(1, 62).tag(["t", TOPIC]).tag(["relay", "wss://elsewhere.example.com"]);
    client.accepted(&farewell.sign()).await;
    assert_eq!(enabled(&relay).await, ["kukuri:global"], "nor a vanish request (T-9), nor a reader");
    client.accepted(&note(1, "signed").tag(["t", &topic(2)]).tag(["t", "cats"]).sign()).await;
    assert_eq!(enabled(&relay).await, [TOPIC, &topic(2), "kukuri:global"], "all topics of an event (T-4)");
}

/// A deletion request in these topics.
fn request(author: u8, topics: impl IntoIterator<Item = u8>) -> Draft {
    let draft = draft(author, 5).tag(["e", &"ab".repeat(32)]);
    topics.into_iter().fold(draft, |draft, number| draft.tag(["t", &topic(number)]))
}

/// The topics that have a record in the store.
async fn stored(relay: &TestRelay) -> Vec<String> {
    let all = relay.engine.store().list_topics(None, 1_000).await.unwrap();
    all.into_iter().map(|stats| stats.topic.to_string()).collect()
}

#[tokio::test]
async fn a_deletion_request_opens_one_topic_within_the_limits_for_topics() {
    // T-8, T-9
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.topics = open(4, LONG, 3);
        config.rates = Some(Rates::default());
    })
    .await;
    let mut client = relay.client().await;
    client.accepted(&request(1, 2..52).sign()).await;
    assert_eq!(enabled(&relay).await, [topic(2).as_str(), "kukuri:global"], "one of fifty");
    client.accepted(&request(1, [60, 2]).sign()).await;
    assert_eq!(enabled(&relay).await.len(), 2, "none, because one is known");
    for number in [61, 62] {
        client.accepted(&request(1, [number]).sign()).await;
    }
    let (accepted, reason) = client.publish(&request(1, [63]).sign()).await;
    assert!(!accepted && reason.starts_with("rate-limited: too many new topics; "), "{reason}");
    relay.reconfigure(|config| config.rates = None);
    let too_many = refused("restricted: this node takes in no more topics than topics.max = 4");
    assert_eq!(client.publish(&request(1, [63]).sign()).await, too_many);
    assert_eq!(stored(&relay).await, [topic(2), topic(61), topic(62)], "no other topic has come into being");
    client.accepted(&draft(1, 62).tag(["t", &topic(64)]).tag(["relay", "wss://elsewhere.example.com"]).sign()).await;
    assert_eq!(stored(&relay).await.len(), 4, "and the topic of a vanish request: kukuri:global");
}

#[tokio::test]
async fn a_deletion_request_needs_a_known_topic_if_topics_are_closed() {
    // T-9
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    client.accepted(&note(1, "before").sign()).await;
    change(&relay, TOPIC, SubscriptionChange::disable()).await;
    relay.reconfigure(|config| config.topics = TopicIntake::Closed);
    assert_eq!(client.publish(&request(1, [2, 3]).sign()).await, refused(NOT_ENABLED), "unknown");
    let held = draft(1, 5).tag(["t", &topic(2)]).tag(["t", TOPIC]).tag(["e", &"ab".repeat(32)]).sign();
    client.accepted(&held).await;
    client.accepted(&request(1, [4]).tag(["t", "kukuri:global"]).sign()).await;
    client.accepted(&draft(1, 62).tag(["t", &topic(5)]).tag(["relay", "wss://elsewhere.example.com"]).sign()).await;
    assert_eq!(stored(&relay).await, [TOPIC, "kukuri:global"]);
    // It is found by all topics that it names, and sent to who listens there.
    assert_eq!(relay.visible(&[json!({"#t": [topic(2)], "kinds": [5]})]).await, [id_of(&held)]);
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": ["kukuri:global"], "limit": 0})]).await;
    let imported = request(2, [6]).sign();
    relay.engine.import(vec![as_json(&imported).to_string().into_bytes()]).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&imported)]), "bound to kukuri:global");
}

#[tokio::test]
async fn a_peer_makes_topics_known_within_the_rates_for_topics() {
    // T-4
    for intake in [open(1_000, LONG, 20), TopicIntake::Closed] {
        let relay = TestRelay::start_with(TopicsMode::Required, |config| {
            config.topics = intake;
            config.rates = Some(Rates::default());
        })
        .await;
        let id = |topic: &str| TopicId::new_unchecked(topic);
        relay.engine.store().change_subscription(&id(TOPIC), SubscriptionChange::enable(), millis()).await.unwrap();
        relay.engine.reload_topics().await.unwrap();
        let from = |peer: u8| Origin::Gossip { peer: [peer; 32], topic: id(TOPIC) };
        let send = async |drafts: Vec<Draft>, origin: Origin| {
            let texts =
                drafts.into_iter().map(|draft| (as_json(&draft.sign()).to_string().into_bytes(), origin.clone()));
            relay.engine.intake().submit_batch(texts.collect()).await
        };
        let unknown = |number: u8| note(1, &number.to_string()).tag(["t", &topic(number)]);
        let answers = send((2..42).map(unknown).collect(), from(7)).await;
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        let refused: Vec<_> = refused.map(|refused| (refused.prefix(), refused.is_permanent())).collect();
        assert_eq!(refused, [("rate-limited", false); 20], "twenty an hour; the others are asked for later");
        assert_eq!(stored(&relay).await.len(), 21);
        let sync = send(vec![unknown(50)], Origin::Sync { peer: [7; 32] }).await;
        assert_eq!(sync[0].as_ref().err().map(|refused| refused.prefix()), Some("rate-limited"), "nor by catch-up");
        let again = send(vec![note(1, "again").tag(["t", &topic(2)]), note(1, "plain")], from(7)).await;
        assert!(again.iter().all(Result::is_ok), "known topics: {again:?}");
        let other = send(vec![unknown(50), note(1, "also").tag(["t", &topic(50)])], from(8)).await;
        assert!(other.iter().all(Result::is_ok), "another peer, one new topic: {other:?}");
        let requests = (0..40).map(|number| request(1, [1, number + 60])).collect();
        assert!(send(requests, from(7)).await.iter().all(Result::is_ok), "requests make none known");
        assert_eq!(stored(&relay).await.len(), 22);
    }
}

#[tokio::test]
async fn the_number_of_open_topics_is_limited() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.topics = open(3, LONG, 1_000)).await;
    let mut client = relay.client().await;
    // `kukuri:global` counts as the first open topic.
    client.accepted(&in_topic(1, 2).sign()).await;
    let too_many = refused("restricted: this node takes in no more topics than topics.max = 3");
    assert_eq!(client.publish(&in_topic(1, 3).tag(["t", &topic(4)]).sign()).await, too_many, "two at once");
    assert_eq!(enabled(&relay).await.len(), 2, "none of them");
    client.accepted(&in_topic(1, 3).sign()).await;
    assert_eq!(client.publish(&in_topic(1, 4).sign()).await, too_many);
    client.accepted(&in_topic(1, 2).content("those that are open go on").sign()).await;
    change(&relay, &topic(4), SubscriptionChange::enable()).await;
    client.accepted(&in_topic(1, 4).sign()).await;
    relay.reconfigure(|config| config.topics = open(10, LONG, 1_000));
    client.accepted(&in_topic(1, 5).sign()).await;
    relay.reconfigure(|config| config.topics = TopicIntake::Closed);
    assert_eq!(client.publish(&in_topic(1, 6).sign()).await, refused(NOT_ENABLED), "by an operator only");
    client.accepted(&in_topic(1, 5).content("again").sign()).await;
}

#[tokio::test]
async fn opening_topics_is_rate_limited_by_address_and_author() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.topics = open(1_000, LONG, 3);
        config.rates = Some(Rates::default());
        let trusted = vec!["127.0.0.0/8".parse().unwrap()];
        config.proxy = Some(Proxy { header: "x-forwarded-for".to_owned(), trusted });
    })
    .await;
    let from = async |address: &str| Client::connect_as(&relay.url, &[("x-forwarded-for", address)]).await.unwrap();
    let mut home = from("192.0.2.1").await;
    for number in 2..5 {
        home.accepted(&in_topic(1, number).sign()).await;
    }
    for (address, author, number, is_opened, why) in [
        ("192.0.2.1", 1, 5, false, "the fourth"),
        ("192.0.2.1", 2, 5, false, "from this address, whoever writes"),
        ("192.0.2.2", 1, 5, false, "by this author, wherever he is"),
        ("192.0.2.3", 3, 5, true, "another author elsewhere"),
        ("192.0.2.1", 1, 5, true, "what is open may be used by all"),
    ] {
        let (accepted, reason) = from(address).await.publish(&in_topic(author, number).content(why).sign()).await;
        assert_eq!(accepted, is_opened, "{why}: {reason}");
        assert!(accepted || reason.starts_with("rate-limited: too many new topics; "), "{why}: {reason}");
    }
    let mut other = from("192.0.2.9").await;
    let four = in_topic(9, 11).tag(["t", &topic(12)]).tag(["t", &topic(13)]).tag(["t", &topic(14)]);
    let (accepted, reason) = other.publish(&four.sign()).await;
    assert!(!accepted && reason.starts_with("rate-limited: "), "four in one event are four: {reason}");
}

#[tokio::test]
async fn a_topic_disabled_by_the_operator_stays_disabled_and_readable() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let post = note(1, "before").sign();
    client.accepted(&post).await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    change(&relay, TOPIC, SubscriptionChange::disable()).await;

    assert_eq!(client.publish(&note(1, "after").sign()).await, refused(NOT_ENABLED), "no use opens it");
    let both = note(1, "both").tag(["t", &topic(2)]).sign();
    assert_eq!(client.publish(&both).await, refused(NOT_ENABLED), "not even beside one that may be opened");
    assert_eq!(enabled(&relay).await, ["kukuri:global"], "which stays as it was");
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC]})]).await, [id_of(&post)], "what is here can be read");
    let heard = client.tell(json!(["COUNT", "c", {"#t": [TOPIC]}])).await;
    assert_eq!(heard, json!(["COUNT", "c", {"count": 1}]));
    let deletion = draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&post)]).sign();
    client.accepted(&deletion).await;
    assert_eq!(reader.hear().await[2]["id"], id_of(&deletion), "T-9: requests pass, live too");
    relay.engine.close_idle_topics().await;
    assert_eq!(client.publish(&note(1, "later").sign()).await, refused(NOT_ENABLED));

    change(&relay, TOPIC, SubscriptionChange::enable()).await;
    client.accepted(&note(1, "opened again").sign()).await;
}

#[tokio::test]
async fn an_idle_topic_is_closed_and_reopened_by_an_event() {
    // Longer than a busy machine takes for the steps in which it is young.
    let idle = Duration::from_secs(10);
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.topics = open(3, idle, 1_000)).await;
    let mut client = relay.client().await;
    change(&relay, &topic(9), SubscriptionChange::enable()).await;
    let post = note(1, "first").sign();
    client.accepted(&post).await;
    assert_eq!(relay.figure("kukuri_topics_enabled").await, 3.0);
    relay.engine.close_idle_topics().await;
    assert!(enabled(&relay).await.contains(&TOPIC.to_owned()), "not at once");
    tokio::time::sleep(idle + Duration::from_millis(50)).await;
    relay.engine.close_idle_topics().await;
    assert_eq!(enabled(&relay).await, [&topic(9), "kukuri:global"], "what an operator opened stays open");
    assert_eq!(relay.figure("kukuri_topics_enabled").await, 2.0);
    assert_eq!(relay.figure("kukuri_topics_closed_total").await, 1.0);
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC]})]).await, [id_of(&post)], "its content stays");

    client.accepted(&note(1, "again").sign()).await;
    assert_eq!(relay.figure("kukuri_topics_enabled").await, 3.0, "use opens it again");
    assert_eq!(relay.figure("kukuri_topics_opened_total").await, 2.0);
    relay.engine.close_idle_topics().await;
    assert_eq!(relay.figure("kukuri_topics_enabled").await, 3.0, "and it is young again");
}
