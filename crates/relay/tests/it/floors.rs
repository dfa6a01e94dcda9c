//! Floors received from another node (G-7): clients no longer see versions below them.

use crate::support::{TOPIC, TestRelay, draft, id_of, now};
use kukuri_domain::{TopicId, sharing::FloorHint, topic::TopicsMode};
use kukuri_store::{HintOutcome, Seq};
use serde_json::json;

#[tokio::test]
async fn a_version_below_a_floor_is_hidden_as_soon_as_the_floor_is_raised() {
    // W-3, D-9
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let article = |at| draft(1, 30_023).tag(["t", TOPIC]).tag(["d", "a"]).at(at).sign();
    let (first, second) = (article(now() - 20), article(now() - 10));
    let request = draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&second)]).sign();
    client.accepted(&first).await;
    client.accepted(&request).await;
    let filter = json!({"#t": [TOPIC], "kinds": [30_023]});
    assert_eq!(relay.visible(std::slice::from_ref(&filter)).await, [id_of(&first)]);

    let topic = TopicId::new_unchecked(TOPIC);
    let hint = FloorHint { key: second.address().unwrap(), floor: second.rank(), request: request.id };
    let raised = relay.engine.raise_floors(&topic, vec![hint.clone()]).await.unwrap();
    assert_eq!(raised.outcomes, [HintOutcome::Taken]);
    assert!(relay.visible(std::slice::from_ref(&filter)).await.is_empty());
    assert_eq!(client.publish(&first).await, (false, "replaced: a newer version is known".to_owned()));
    let rows = relay.engine.store().outbox(Seq(0), 10).await.unwrap();
    assert_eq!(rows.last().unwrap().seq, raised.head, "whoever follows the outbox hears of it");
    let again = relay.engine.raise_floors(&topic, vec![hint]).await.unwrap();
    assert_eq!(again.outcomes, [HintOutcome::Known]);
}
