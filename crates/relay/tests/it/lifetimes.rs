//! Ephemeral events (E-5) and events that expire (NIP-40).

use std::time::Duration;

use crate::support::{TOPIC, TestRelay, as_json, draft, eventually, id_of, note, now};
use kukuri_domain::{Reason, topic::TopicsMode};
use kukuri_store::{Op, Seq};
use serde_json::json;

#[tokio::test]
async fn an_ephemeral_event_is_live_once_and_leaves_no_trace() {
    // E-5
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let mut other = relay.client().await;
    let mut reader = relay.client().await;
    let filter = json!({"#t": [TOPIC], "kinds": [20_001]});
    reader.request("s", std::slice::from_ref(&filter)).await;
    let head = *relay.engine.store().watch_outbox().borrow();

    let passing = draft(1, 20_001).tag(["t", TOPIC]).content("passing").sign();
    client.accepted(&passing).await;
    let repeat = (true, "duplicate: already have this event".to_owned());
    assert_eq!(client.publish(&passing).await, repeat);
    assert_eq!(other.publish(&passing).await, repeat, "from another connection, too");
    let last = draft(1, 20_001).tag(["t", TOPIC]).content("last").sign();
    // Both copies are sent before the relay has decided on the first.
    client.say(json!(["EVENT", as_json(&last)])).await;
    client.say(json!(["EVENT", as_json(&last)])).await;
    assert_eq!((client.hear().await[2].clone(), client.hear().await[2].clone()), (json!(true), json!(true)));
    let end = draft(1, 20_001).tag(["t", TOPIC]).content("end").sign();
    client.accepted(&end).await;
    for event in [&passing, &last, &end] {
        assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(event)]), "live, once");
    }

    assert!(relay.visible(&[filter]).await.is_empty(), "it is not stored");
    assert_eq!(*relay.engine.store().watch_outbox().borrow(), head, "nor does the outbox know of it");
    assert_eq!(relay.figure(r#"kukuri_events_total{outcome="ephemeral"}"#).await, 3.0);
    assert_eq!(relay.figure(r#"kukuri_events_total{outcome="duplicate"}"#).await, 3.0);
}

#[tokio::test]
async fn an_event_expires_with_its_second_and_the_outbox_records_it() {
    // X-2, X-3, X-4
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let end = now() + 10;
    let expiring = note(1, "ends").tag(["expiration", &end.to_string()]).sign();
    let lasting = note(1, "stays").tag(["expiration", &(end + 1_000).to_string()]).sign();
    let request =
        draft(1, 5).tag(["t", TOPIC]).tag(["expiration", &end.to_string()]).tag(["e", &"ab".repeat(32)]).sign();
    for event in [&expiring, &lasting, &request] {
        client.accepted(event).await;
    }
    let all = [json!({"#t": [TOPIC]})];
    let before = relay.visible(&all).await;
    assert!(before.contains(&id_of(&expiring)) || now() >= end, "until then it is served");
    while now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut left = relay.visible(&all).await;
    left.sort();
    let mut expected = vec![id_of(&lasting), id_of(&request)];
    expected.sort();
    assert_eq!(left, expected, "from its moment on it is not served; a request does not expire");
    let count = client.tell(json!(["COUNT", "c", {"#t": [TOPIC]}])).await;
    assert_eq!(count, json!(["COUNT", "c", {"count": 2}]), "nor counted");
    assert_eq!(client.publish(&expiring).await, (false, "invalid: expired".to_owned()), "nor taken in again");

    eventually("the sweep writes its row", async || {
        let rows = relay.engine.store().outbox(Seq(0), 100).await.unwrap();
        rows.iter().any(|row| row.event_id == expiring.id && row.op == Op::Delete(Reason::Expiration))
    })
    .await;
    eventually("and counts it", async || relay.figure("kukuri_expired_events_total").await == 1.0).await;
}
