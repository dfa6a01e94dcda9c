//! A withheld event is shown on no path, and stays effective (M-5). Viewer and filter decide which events are withheld.

use std::sync::Arc;

use kukuri_domain::{
    Event, Filter, Origin, PublicKey, TopicId, Viewer, Visibility, topic::TopicsMode, visibility::Overlay,
};
use kukuri_engine::{Client, clock};
use kukuri_store::{Outcome, Seq};
use serde_json::json;

use crate::support::{TOPIC, TestRelay, as_json, id_of, note};

/// Withholds the events of one author from everybody else, but not from filters that name ids.
#[derive(Debug)]
struct WithheldAuthor(PublicKey);

impl Overlay for WithheldAuthor {
    fn withholds(&self, event: &Event, _: &[TopicId], viewer: &Viewer, filter: Option<&Filter>) -> bool {
        let is_author = matches!(viewer, Viewer::Client(keys) if keys.contains(&self.0));
        event.pubkey == self.0 && !is_author && filter.is_none_or(|filter| filter.ids().is_none())
    }
}

#[tokio::test]
async fn a_withheld_event_is_shown_on_no_path_and_stays_effective() {
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut published = relay.engine.take_broadcast_receiver().unwrap();
    let mut client = relay.client().await;
    let (shown, withheld) = (note(1, "shown lantern").sign(), note(2, "withheld lantern").sign());
    let mut live = relay.client().await;
    assert!(live.request("live", &[json!({"#t": [TOPIC]})]).await.is_empty());
    relay.engine.set_visibility(Visibility::with_overlay(Arc::new(WithheldAuthor(withheld.pubkey))));
    for event in [&shown, &withheld] {
        client.accepted(event).await;
    }
    let head = relay.engine.store().stats().await.unwrap().head;
    assert_eq!(head, Seq(2), "both are effective");
    let (ours, search) = ([id_of(&shown)], [json!({"#t": [TOPIC], "search": "lantern"})]);
    let topic = [json!({"#t": [TOPIC]})];

    assert_eq!(relay.visible(&topic).await, ours, "REQ");
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC], "limit": 1})]).await, ours, "a limit counts what is shown");
    for when in ["before the index has it", "after"] {
        assert_eq!(relay.visible(&search).await, ours, "search, {when}");
        assert!(consumer.caught_up(head).await);
    }
    assert_eq!(client.tell(json!(["COUNT", "c", topic[0]])).await[2]["count"], 1, "COUNT");
    let by_id = json!({"#t": [TOPIC], "ids": [id_of(&withheld)]});
    assert_eq!(relay.visible(&[by_id]).await, [id_of(&withheld)], "a filter that names its id");

    let last = note(1, "the last").sign();
    client.accepted(&last).await;
    for expected in [&shown, &last] {
        let heard = live.hear().await;
        assert_eq!(heard[2]["id"], id_of(expected), "live");
        let broadcast = published.recv().await.unwrap();
        assert_eq!(broadcast.event().id.to_string(), id_of(expected), "gossip");
    }

    let mut author = relay.client().await;
    assert!(author.authenticate(2, &relay.url).await.0);
    assert_eq!(author.request("own", &topic).await.len(), 3, "the author sees its own event");
    relay.engine.set_visibility(Visibility::default());
    assert_eq!(relay.visible(&topic).await.len(), 3, "released");
    consumer.stop().await;
}

#[tokio::test]
async fn withheld_ids_are_left_out_of_a_reconciliation() {
    // NIP-77: the relay offers only events that it would show.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let (shown, withheld) = (note(1, "shown").sign(), note(2, "withheld").sign());
    for event in [&shown, &withheld] {
        client.accepted(event).await;
    }
    relay.engine.set_visibility(Visibility::with_overlay(Arc::new(WithheldAuthor(withheld.pubkey))));
    let filters = vec![Filter::from_json(json!({"#t": [TOPIC]}).to_string()).unwrap()];
    let reader = Client { ip: [127, 0, 0, 1].into(), keys: Arc::default(), connected_at: clock::now() };
    let ids = relay.engine.reads().ids(filters, &reader, 10).await.unwrap().unwrap();
    let ids: Vec<String> = ids.into_iter().map(|(_, id)| id.to_string()).collect();
    assert_eq!(ids, [id_of(&shown)]);
}

#[tokio::test]
async fn events_of_the_node_itself_need_no_enabled_topic_and_are_broadcast() {
    // B-2, G-2
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.topics = kukuri_engine::config::TopicIntake::Closed;
    })
    .await;
    let mut published = relay.engine.take_broadcast_receiver().unwrap();
    let event = note(1, "of the node").sign();
    let text = as_json(&event).to_string();
    let answers = relay.engine.intake().submit_batch(vec![(text, Origin::Node)]).await;
    assert!(matches!(answers[..], [Ok(Outcome::Stored)]), "{answers:?}");
    assert_eq!(published.recv().await.unwrap().event().id, event.id);
}
