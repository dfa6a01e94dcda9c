//! NIP-77: both sides find the events that the other lacks. The client is the protocol's reference implementation.

use std::collections::BTreeSet;

use crate::support::{Client, TOPIC, TestRelay, as_json, draft, id_of, key_of, note, now};
use kukuri_domain::{Event, topic::TopicsMode};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn holding(events: &[Event]) -> Negentropy<'static, NegentropyStorageVector> {
    let mut storage = NegentropyStorageVector::new();
    for event in events {
        storage.insert(event.created_at.0, Id::from_byte_array(*event.id.as_bytes())).unwrap();
    }
    storage.seal().unwrap();
    Negentropy::owned(storage, 0).unwrap()
}

/// The events that only the client has, those that only the relay has, and the number of messages.
struct Difference {
    only_ours: BTreeSet<String>,
    only_theirs: BTreeSet<String>,
    messages: usize,
}

async fn reconcile(client: &mut Client, id: &str, filter: Value, events: &[Event]) -> Difference {
    let mut ours = holding(events);
    let mut next = json!(["NEG-OPEN", id, filter, to_hex(&ours.initiate().unwrap())]);
    let (mut have, mut need, mut messages) = (Vec::new(), Vec::new(), 0);
    loop {
        let heard = client.tell(next).await;
        assert_eq!((&heard[0], &heard[1]), (&json!("NEG-MSG"), &json!(id)), "{heard}");
        messages += 1;
        let answer = ours.reconcile_with_ids(&from_hex(heard[2].as_str().unwrap()), &mut have, &mut need).unwrap();
        match answer {
            Some(answer) => next = json!(["NEG-MSG", id, to_hex(&answer)]),
            None => break,
        }
    }
    client.say(json!(["NEG-CLOSE", id])).await;
    let set = |ids: Vec<Id>| ids.iter().map(|id| to_hex(id.as_bytes())).collect::<BTreeSet<_>>();
    Difference { only_ours: set(have), only_theirs: set(need), messages }
}

/// Stores events in the relay.
async fn stored(relay: &TestRelay, events: &[Event]) {
    let texts = events.iter().map(|event| as_json(event).to_string().into_bytes()).collect();
    assert!(relay.engine.import(texts).await.iter().all(Result::is_ok));
}

fn ids(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(id_of).collect()
}

#[tokio::test]
async fn reconciliation_finds_exactly_the_events_each_side_lacks() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let start = now() - 10_000;
    let events: Vec<Event> =
        (0..4_000).map(|number| note(1, &number.to_string()).at(start + number / 2).sign()).collect();
    stored(&relay, &events[..3_500]).await;
    let mut client = relay.client().await;
    let all = json!({"#t": [TOPIC]});
    for (ours, only_ours, only_theirs, why) in [
        (&events[..3_500], &events[..0], &events[..0], "nothing is lacking"),
        (&events[1_000..], &events[3_500..], &events[..1_000], "both lack something"),
        (&events[..0], &events[..0], &events[..3_500], "the client has nothing"),
        (&events[3_499..3_500], &events[..0], &events[..3_499], "the client has the last one"),
    ] {
        let found = reconcile(&mut client, "n", all.clone(), ours).await;
        assert_eq!(found.only_ours, ids(only_ours), "{why}");
        assert_eq!(found.only_theirs, ids(only_theirs), "{why}");
        // 60,000 bytes hold no more than 1,875 ids.
        assert!(only_theirs.len() < 2_000 || found.messages > 1, "{why}: more than one frame");
    }
    let window = json!({"#t": [TOPIC], "since": start + 100, "until": start + 199});
    let found = reconcile(&mut client, "n", window, &[]).await;
    assert_eq!(found.only_theirs, ids(&events[200..400]), "the filter decides what is compared");
    assert!(relay.figure(r#"kukuri_requests_total{verb="NEG"}"#).await > 5.0);
}

#[tokio::test]
async fn private_events_are_reconciled_with_their_parties_only() {
    // E-10
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let public = note(1, "for all").sign();
    let letter = draft(1, 4).tag(["t", TOPIC]).tag(["p", &key_of(2)]).sign();
    client.accepted(&public).await;
    client.accepted(&letter).await;
    let all = json!({"#t": [TOPIC]});
    assert_eq!(reconcile(&mut client, "n", all.clone(), &[]).await.only_theirs, ids(std::slice::from_ref(&public)));
    assert_eq!(client.authenticate(2, &relay.url).await, (true, String::new()));
    assert_eq!(reconcile(&mut client, "n", all, &[]).await.only_theirs, ids(&[public, letter]));
}

#[tokio::test]
async fn invalid_reconciliations_are_refused_with_a_reason() {
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.requests.sync_events = 10;
        config.requests.sync_sessions = 2;
    })
    .await;
    let start = now() - 100;
    let events: Vec<Event> = (0..11).map(|number| note(1, &number.to_string()).at(start + number).sign()).collect();
    stored(&relay, &events).await;
    let mut client = relay.client().await;
    let few = json!({"#t": [TOPIC], "until": start + 9});
    // 61 is the protocol version alone: a message without ranges.
    for (message, reason, why) in [
        (json!(["NEG-OPEN", "n", {}, "61"]), "invalid: #t must name topics", "T-6"),
        (json!(["NEG-OPEN", "n", {"#t": ["cats"]}, "61"]), "invalid: #t must name topics", "a hashtag is no topic"),
        (
            json!(["NEG-OPEN", "n", {"#t": [TOPIC]}, "61"]),
            "blocked: more than limits.sync_events = 10 events match",
            "too many",
        ),
        (json!(["NEG-OPEN", "n", {"#t": [TOPIC], "ids": ["x"]}, "61"]), "invalid: ", "a filter that is none"),
        (json!(["NEG-OPEN", "n", few, "6"]), "invalid: ", "half a byte"),
        (json!(["NEG-OPEN", "n", few, "nonsense"]), "invalid: ", "no hex"),
        (json!(["NEG-OPEN", "n", few, ""]), "invalid: ", "no message"),
        (json!(["NEG-OPEN", "n", few, "61000007"]), "invalid: ", "a mode that there is not"),
        (json!(["NEG-MSG", "n", "61"]), "closed: ", "a reconciliation that failed is over"),
        (json!(["NEG-MSG", "never opened", "61"]), "closed: ", "one that never was"),
    ] {
        let heard = client.tell(message.clone()).await;
        assert_eq!((&heard[0], &heard[1]), (&json!("NEG-ERR"), &message[1]), "{why}: {heard}");
        assert!(heard[2].as_str().unwrap().starts_with(reason), "{why}: {heard}");
    }
    // The protocol answers an unknown version with the supported one.
    assert_eq!(client.tell(json!(["NEG-OPEN", "n", few, "62"])).await, json!(["NEG-MSG", "n", "61"]));

    let open = |id: &str| json!(["NEG-OPEN", id, few, "61"]);
    assert_eq!(client.tell(open("n")).await, json!(["NEG-MSG", "n", "61"]), "opened anew, it is one");
    assert_eq!(client.tell(open("m")).await[0], "NEG-MSG");
    let heard = client.tell(open("o")).await;
    assert!(
        heard[0] == "NEG-ERR"
            && heard[2].as_str().unwrap().starts_with("blocked: more reconciliations than limits.sync_sessions = 2"),
        "{heard}"
    );
    client.say(json!(["NEG-CLOSE", "m"])).await;
    assert_eq!(client.tell(open("o")).await[0], "NEG-MSG", "NEG-CLOSE makes room");
    assert!(client.tell(json!(["NEG-MSG", "m", "61"])).await[2].as_str().unwrap().starts_with("closed: "));
    assert_eq!(relay.client().await.tell(open("n")).await[0], "NEG-MSG", "each connection has its own");
}
