//! Costly queries are ended, and do not delay others (Y-1, Y-2, Y-4).

use std::{net::IpAddr, time::Duration};

use kukuri_domain::topic::TopicsMode;
use kukuri_store::ReadStage;
use serde_json::{Value, json};

use crate::support::{TOPIC, TestRelay, as_json, note, now};

const EVENTS: u64 = 1_500;

/// A relay with [`EVENTS`] notes, of which a query may look at 1,000.
async fn relay_with_notes() -> TestRelay {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.requests.query_rows = 1_000;
        config.requests.limit = 10_000;
        config.requests.costly_queries = Some(1);
    })
    .await;
    let start = now() - EVENTS;
    let notes = (0..EVENTS).map(|n| as_json(&note(1, &n.to_string()).at(start + n).sign()).to_string().into_bytes());
    assert!(relay.engine.import(notes.collect()).await.iter().all(Result::is_ok));
    relay
}

#[tokio::test]
async fn a_query_over_its_budget_is_refused_or_answered_in_part() {
    // Y-2, W-4
    let relay = relay_with_notes().await;
    let mut client = relay.client().await;
    let here = json!({"#t": [TOPIC]});
    let too_costly = "error: too costly; narrow the filter";
    assert_eq!(client.tell(json!(["COUNT", "c", here])).await, json!(["CLOSED", "c", too_costly]));
    assert_eq!(client.tell(json!(["NEG-OPEN", "n", here, "6100"])).await, json!(["NEG-ERR", "n", too_costly]));

    client.say(json!(["REQ", "r", here])).await;
    let mut times = Vec::new();
    let end = loop {
        let heard = client.hear().await;
        if heard[0] != "EVENT" {
            break heard;
        }
        times.push(heard[2]["created_at"].as_u64().unwrap());
    };
    assert_eq!(end, json!(["EOSE", "r", ["more"]]), "NIP-67");
    assert!(times.len() > 900 && times.windows(2).all(|pair| pair[0] == pair[1] + 1), "the newest, without a gap");
    // What is left out can be asked for.
    let rest = json!({"#t": [TOPIC], "until": times.last().unwrap() - 1});
    let older: Vec<String> = client.request("rest", &[rest]).await;
    assert_eq!(times.len() + older.len(), EVENTS as usize);
    assert_eq!(relay.figure("kukuri_queries_over_budget_total").await, 3.0);
}

#[tokio::test]
async fn publishing_and_cheap_queries_do_not_wait_for_costly_ones() {
    // Y-1, Y-4
    let relay = relay_with_notes().await;
    let query_time = |time| relay.reconfigure(|config| config.requests.query_time = time);
    query_time(Duration::from_secs(60));
    // Another client's costly query runs for as long as this permit is held.
    let other = relay.engine.read_budget(IpAddr::from([192, 0, 2, 1]));
    let permit = other.enter(ReadStage::Costly, usize::MAX).await.unwrap();
    let mut client = relay.client().await;
    client.accepted(&note(2, "published meanwhile").sign()).await;
    assert_eq!(client.request("r", &[json!({"#t": [TOPIC], "limit": 100})]).await.len(), 100);
    query_time(Duration::from_millis(300));
    let heard: Value = client.tell(json!(["COUNT", "c", {"#t": [TOPIC]}])).await;
    assert_eq!(heard[2], "error: too many costly queries at the same time; try again later");
    query_time(Duration::from_secs(60));
    drop(permit);
    let heard: Value = client.tell(json!(["COUNT", "c", {"#t": [TOPIC]}])).await;
    assert_eq!(heard[2], "error: too costly; narrow the filter", "it had its turn");
    assert_eq!(relay.figure("kukuri_read_permits_waiting{kind=\"costly_query\"}").await, 0.0);
}

#[tokio::test]
async fn a_req_with_too_many_searches_is_refused() {
    // Y-2, W-4
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let search = json!({"#t": [TOPIC], "search": "word", "limit": 1});
    let ask = |count: usize| [json!("REQ"), json!("s")].into_iter().chain(vec![search.clone(); count]);
    let heard = client.tell(Value::from_iter(ask(5))).await;
    assert_eq!(heard, json!(["CLOSED", "s", "invalid: more filters with a search than limits.search_filters = 4"]));
    let heard = client.tell(Value::from_iter(ask(4))).await;
    assert_eq!(heard[0], "EOSE", "{heard}");
    consumer.stop().await;
}
