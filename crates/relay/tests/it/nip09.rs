//! NIP-09: a deletion removes its author's targets for good, and nothing else. NIP-62: vanish requests.

use crate::support::{Draft, TOPIC, TestRelay, as_json, draft, id_of, key_of, note, now};
use kukuri_domain::{Event, topic::TopicsMode};
use serde_json::json;

const OK: &str = "";
const DELETED: &str = "blocked: deleted by its author";

/// A test case: the sent events in order, each with its answer (empty: accepted), and the events visible at the end.
struct Story {
    why: &'static str,
    sent: Vec<(Event, &'static str)>,
    visible: Vec<Event>,
}

fn deletion(author: u8) -> Draft {
    draft(author, 5).tag(["t", TOPIC])
}

fn naming(author: u8, target: &Event) -> Event {
    deletion(author).tag(["e", &id_of(target)]).sign()
}

fn article(author: u8, at: u64) -> Event {
    draft(author, 30_023).tag(["t", TOPIC]).tag(["d", "a:b"]).at(at).sign()
}

fn stories() -> Vec<Story> {
    let start = now() - 100;
    let post = note(1, "post").sign();
    let other = note(1, "another").sign();
    let foreign = note(2, "foreign").sign();
    let request = naming(1, &post);
    let of_foreign = naming(1, &foreign);
    let several = deletion(1).tag(["e", &id_of(&post)]).tag(["e", &id_of(&foreign)]).tag(["e", "nonsense"]).sign();
    let of_request = naming(1, &request);
    let address = format!("30023:{}:a:b", key_of(1));
    let (first, second, third) = (article(1, start), article(1, start + 10), article(1, start + 20));
    let of_address = deletion(1).tag(["a", &address]).at(start + 10).sign();
    let by_stranger = deletion(2).tag(["a", &address]).at(start + 50).sign();
    let profile = draft(1, 0).tag(["t", TOPIC]).at(start).sign();
    let of_profile = deletion(1).tag(["a", &format!("0:{}:", key_of(1))]).at(start).sign();
    let wrapped = draft(3, 1_059).tag(["t", TOPIC]).tag(["p", &key_of(1)]).sign();
    let of_wrapped = naming(1, &wrapped);
    vec![
        Story {
            why: "D-1, D-6: a deleted event goes, its deletion stays, and it can not come again",
            sent: vec![(post.clone(), OK), (other.clone(), OK), (request.clone(), OK), (post.clone(), DELETED)],
            visible: vec![other, request.clone()],
        },
        Story {
            why: "D-6: a deletion that comes first waits for its target",
            sent: vec![(request.clone(), OK), (post.clone(), DELETED)],
            visible: vec![request.clone()],
        },
        Story {
            why: "D-3: an event of somebody else stays",
            sent: vec![(foreign.clone(), OK), (of_foreign.clone(), OK)],
            visible: vec![foreign.clone(), of_foreign.clone()],
        },
        Story {
            why: "D-3: nor is it kept out when it comes later",
            sent: vec![(of_foreign.clone(), OK), (foreign.clone(), OK)],
            visible: vec![foreign.clone(), of_foreign],
        },
        Story {
            why: "D-2: a foreign and a malformed target are skipped, the others go",
            sent: vec![(post.clone(), OK), (foreign.clone(), OK), (several.clone(), OK), (post.clone(), DELETED)],
            visible: vec![foreign, several],
        },
        Story {
            why: "D-5: a deletion of a deletion has no effect, neither on it nor on what it deleted",
            sent: vec![(post.clone(), OK), (request.clone(), OK), (of_request.clone(), OK), (post, DELETED)],
            visible: vec![request, of_request],
        },
        Story {
            why: "D-4: an address is deleted up to the time of the deletion, that second included",
            sent: vec![
                (second.clone(), OK),
                (of_address.clone(), OK),
                (first.clone(), DELETED),
                (second.clone(), DELETED),
            ],
            visible: vec![of_address.clone()],
        },
        Story {
            why: "D-4: a later version is not covered, whether it comes after",
            sent: vec![(second, OK), (of_address.clone(), OK), (third.clone(), OK)],
            visible: vec![of_address.clone(), third.clone()],
        },
        Story {
            why: "D-4: or before",
            sent: vec![(third.clone(), OK), (of_address.clone(), OK), (first, DELETED)],
            visible: vec![of_address, third.clone()],
        },
        Story {
            why: "D-3: an address belongs to its author",
            sent: vec![(third.clone(), OK), (by_stranger.clone(), OK)],
            visible: vec![third, by_stranger],
        },
        Story {
            why: "D-2: a replaceable event has an address, too",
            sent: vec![(profile.clone(), OK), (of_profile.clone(), OK), (profile, DELETED)],
            visible: vec![of_profile],
        },
        Story {
            why: "D-3: a gift wrap belongs to its recipient as well",
            sent: vec![(wrapped.clone(), OK), (of_wrapped.clone(), OK), (wrapped, DELETED)],
            visible: vec![of_wrapped],
        },
    ]
}

#[tokio::test]
async fn deletions_remove_only_events_of_their_author() {
    for Story { why, sent, visible } in stories() {
        let relay = TestRelay::start(TopicsMode::Required).await;
        let mut client = relay.client().await;
        for (event, message) in &sent {
            let expected = (message.is_empty(), (*message).to_owned());
            assert_eq!(client.publish(event).await, expected, "{why}: {}", as_json(event));
        }
        let mut expected: Vec<_> = visible.iter().map(id_of).collect();
        let mut found = relay.visible(&[json!({"#t": [TOPIC]})]).await;
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{why}");
    }
}

#[tokio::test]
async fn a_deletion_is_delivered_live_and_its_target_is_no_longer_found() {
    // D-1: clients that have the target learn of its deletion this way.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    let post = note(1, "soon gone").sign();
    let request = naming(1, &post);
    client.accepted(&post).await;
    client.accepted(&request).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&post)]));
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&request)]));
    for filter in [json!({"#t": [TOPIC], "ids": [post.id]}), json!({"#t": [TOPIC], "kinds": [1]})] {
        assert!(relay.visible(std::slice::from_ref(&filter)).await.is_empty(), "{filter}");
    }
}

#[tokio::test]
async fn a_vanish_request_removes_earlier_events_and_refuses_them_afterwards() {
    // D-12, T-9
    let relay = TestRelay::start(TopicsMode::Required).await;
    let (mut client, start) = (relay.client().await, now());
    let post = note(1, "gone soon").at(start - 10).sign();
    let profile = draft(1, 0).tag(["t", TOPIC]).at(start - 10).sign();
    let other = note(2, "stays").sign();
    for event in [&post, &profile, &other] {
        client.accepted(event).await;
    }
    let elsewhere = draft(1, 62).tag(["relay", "wss://elsewhere.example"]).at(start - 6).sign();
    client.publish(&elsewhere).await;
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC]})]).await.len(), 3, "that was for another relay");
    assert_eq!(client.publish(&draft(1, 62).sign()).await, (false, "invalid: missing relay".to_owned()));

    client.accepted(&draft(1, 62).tag(["relay", &relay.url]).at(start - 5).sign()).await;
    assert_eq!(relay.visible(&[json!({"#t": [TOPIC]})]).await, [id_of(&other)]);
    let blocked = (false, "blocked: its author asked to vanish".to_owned());
    assert_eq!(client.publish(&post).await, blocked, "what was here");
    assert_eq!(client.publish(&note(1, "never seen").at(start - 6).sign()).await, blocked, "what was not");
    client.accepted(&note(1, "a new beginning").sign()).await;
    client.accepted(&draft(2, 62).tag(["relay", "ALL_RELAYS"]).sign()).await;
    assert_eq!(client.publish(&other).await, blocked, "ALL_RELAYS are this one, too");
}
