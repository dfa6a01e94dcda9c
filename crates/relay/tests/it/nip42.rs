//! NIP-42: authentication, the access to private and protected events (E-10), and required authentication (W-7).

use std::time::Duration;

use crate::support::{Client, TOPIC, TestRelay, as_json, draft, id_of, key_of, millis, note, now};
use kukuri_domain::{Event, Millis, topic::TopicsMode};
use kukuri_engine::config::Auth;
use serde_json::json;

#[tokio::test]
async fn only_a_valid_auth_event_for_the_challenge_authenticates() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let other = relay.client().await.challenge;
    let challenge = client.challenge.clone();
    assert_ne!(challenge, other, "each connection has its own");
    let answer = |kind: u16, url: &str, challenge: &str, at: u64| {
        draft(1, kind).tag(["relay", url]).tag(["challenge", challenge]).at(at).sign()
    };
    let url = relay.url.clone();
    let mut forged = answer(22_242, &url, &challenge, now());
    forged.sig = note(1, "another").sign().sig;
    let mut renamed = answer(22_242, &url, &challenge, now());
    renamed.id = note(1, "another").sign().id;
    for (event, why) in [
        (answer(1, &url, &challenge, now()), "another kind"),
        (answer(22_242, "wss://elsewhere.example", &challenge, now()), "another relay"),
        (answer(22_242, &url, &other, now()), "the challenge of another connection"),
        (answer(22_242, &url, "", now()), "no challenge"),
        (answer(22_242, &url, &challenge, now() - 660), "too old"),
        (answer(22_242, &url, &challenge, now() + 660), "from the future"),
        (draft(1, 22_242).tag(["relay", &url]).sign(), "without a challenge"),
        (draft(1, 22_242).tag(["challenge", &challenge]).sign(), "without a relay"),
        (forged, "a signature of something else"),
        (renamed, "an id of something else"),
    ] {
        let (accepted, message) = client.answer_challenge(&event).await;
        assert!(!accepted && message.starts_with("invalid: "), "{why}: {message}");
    }
    let heard = client.tell(json!(["AUTH", {"kind": 22_242}])).await;
    assert_eq!((&heard[0], &heard[2]), (&json!("OK"), &json!(false)), "no event at all");

    let protected = note(1, "mine alone").tag(["-"]).sign();
    assert!(client.publish(&protected).await.1.starts_with("auth-required: "), "nothing of that has counted");
    let old_enough = answer(22_242, &format!("{url}/"), &challenge, now() - 500);
    assert_eq!(client.answer_challenge(&old_enough).await, (true, String::new()), "within ten minutes");
    assert_eq!(client.authenticate(1, &url).await, (true, String::new()), "once more does no harm");
    client.accepted(&protected).await;
}

#[tokio::test]
async fn a_connection_may_have_several_keys_up_to_a_bound() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let mut reader = relay.client().await;
    let letter = |from: u8, to: u8| draft(from, 4).tag(["t", TOPIC]).tag(["p", &key_of(to)]).sign();
    let (to_one, to_two, to_three) = (letter(9, 1), letter(9, 2), letter(9, 3));
    for event in [&to_one, &to_two, &to_three] {
        client.accepted(event).await;
    }
    let all = [json!({"#t": [TOPIC], "kinds": [4]})];
    assert!(reader.request("s", &all).await.is_empty());
    for (key, seen) in [(1, 1), (2, 2), (2, 2), (9, 3)] {
        assert_eq!(reader.authenticate(key, &relay.url).await, (true, String::new()));
        assert_eq!(reader.request("s", &all).await.len(), seen, "after {key}");
    }
    for key in 10..=38 {
        assert_eq!(reader.authenticate(key, &relay.url).await, (true, String::new()), "{key}");
    }
    let refused = (false, "restricted: a connection has at most 32 keys".to_owned());
    assert_eq!(reader.authenticate(39, &relay.url).await, refused);
    assert_eq!(reader.authenticate(38, &relay.url).await, (true, String::new()), "one that it has");
}

#[tokio::test]
async fn private_events_are_shown_to_their_parties_only() {
    // E-10
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut sender = relay.client().await;
    let mut bob = relay.client().await;
    let mut stranger = relay.client().await;
    let private = json!({"#t": [TOPIC], "kinds": [1, 4, 1_059, 21_059]});
    for client in [&mut bob, &mut stranger] {
        assert!(client.request("s", std::slice::from_ref(&private)).await.is_empty());
    }
    assert_eq!(bob.authenticate(2, &relay.url).await, (true, String::new()));
    let to_bob = |kind: u16| draft(1, kind).tag(["t", TOPIC]).tag(["p", &key_of(2)]).sign();
    let letters: Vec<Event> = [4, 1_059, 21_059].map(to_bob).into();
    for letter in &letters {
        sender.accepted(letter).await;
        assert_eq!(bob.hear().await, json!(["EVENT", "s", as_json(letter)]), "live, from the moment of AUTH");
    }
    let public = note(1, "for all").sign();
    sender.accepted(&public).await;
    assert_eq!(stranger.hear().await, json!(["EVENT", "s", as_json(&public)]), "a stranger hears nothing else");
    assert_eq!(bob.hear().await, json!(["EVENT", "s", as_json(&public)]));

    let stored = [json!({"#t": [TOPIC], "kinds": [4, 1_059, 21_059]})];
    let mut found = bob.request("stored", &stored).await;
    found.sort();
    let mut expected = vec![id_of(&letters[0]), id_of(&letters[1])];
    expected.sort();
    assert_eq!(found, expected);
    assert!(stranger.request("stored", &stored).await.is_empty());
    let by_id = [json!({"#t": [TOPIC], "ids": [letters[0].id]})];
    assert!(stranger.request("by id", &by_id).await.is_empty(), "not even by its id");
    assert_eq!(sender.authenticate(1, &relay.url).await, (true, String::new()));
    assert_eq!(sender.request("mine", &stored).await.len(), 2, "what one has sent is one's own, too");
}

#[tokio::test]
async fn a_protected_event_is_accepted_only_from_its_author() {
    // E-10 (NIP-70)
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let protected = note(1, "mine alone").tag(["-"]).sign();
    let unknown = "auth-required: protected event, only its author may publish it".to_owned();
    assert_eq!(client.publish(&protected).await, (false, unknown));
    assert_eq!(client.authenticate(2, &relay.url).await, (true, String::new()));
    let another = "restricted: protected event, only its author may publish it".to_owned();
    assert_eq!(client.publish(&protected).await, (false, another));
    assert_eq!(client.authenticate(1, &relay.url).await, (true, String::new()));
    client.accepted(&protected).await;
}

fn required(enforce_at: Millis, grace: Duration, timeout: Duration) -> Auth {
    Auth::Required { enforce_at, grace, timeout }
}

/// Asserts that every type of message is refused, each in its way.
async fn is_refused(client: &mut Client) {
    let event = note(1, "unknown").sign();
    let filter = json!({"#t": [TOPIC]});
    for (message, word) in [
        (json!(["EVENT", as_json(&event)]), "OK"),
        (json!(["REQ", "s", filter]), "CLOSED"),
        (json!(["COUNT", "s", filter]), "CLOSED"),
        (json!(["NEG-OPEN", "s", filter, "61"]), "NEG-ERR"),
    ] {
        let heard = client.tell(message).await;
        assert_eq!(heard[0], word, "{heard}");
        let reason = heard.as_array().unwrap().last().unwrap().as_str().unwrap();
        assert!(reason.starts_with("auth-required: "), "{heard}");
        assert!(word != "OK" || heard[2] == false, "{heard}");
    }
}

async fn is_served(client: &mut Client, content: &str) {
    client.accepted(&note(1, content).sign()).await;
    assert_eq!(client.tell(json!(["COUNT", "s", {"#t": [TOPIC]}])).await[0], "COUNT");
    assert!(!client.request("s", &[json!({"#t": [TOPIC], "limit": 1})]).await.is_empty());
    client.say(json!(["CLOSE", "s"])).await;
}

#[tokio::test]
async fn required_authentication_serves_authenticated_clients_only() {
    // W-7
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.auth = required(millis(), Duration::from_secs(60), Duration::from_secs(10));
    })
    .await;
    let mut known = relay.client().await;
    is_refused(&mut known).await;
    assert!(!known.authenticate(1, "wss://elsewhere.example").await.0);
    is_refused(&mut known).await;
    assert_eq!(known.authenticate(1, &relay.url).await, (true, String::new()));
    is_served(&mut known, "hello").await;

    let ended = relay.client().await.ended().await;
    assert_eq!(ended.code, 1008, "a new connection has until the time-out: {ended:?}");
    assert!(ended.reason.starts_with("auth-required: "), "{ended:?}");
    assert_eq!(ended.before[0][0], "NOTICE", "{ended:?}");
    assert_eq!(relay.figure(r#"kukuri_connections_closed_total{reason="unauthenticated"}"#).await, 1.0);
    is_served(&mut known, "still here").await;

    let (_, _, document) = relay.get("/", &[("accept", "application/nostr+json")]).await;
    assert!(document.contains(r#""auth_required":true"#), "{document}");
}

#[tokio::test]
async fn open_connections_are_served_during_the_grace_period_and_then_closed() {
    // W-7: the operator sets `required` while clients are connected.
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut old = relay.client().await;
    let mut wise = relay.client().await;
    is_served(&mut old, "before").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let enforce_at = millis();
    relay.reconfigure(|config| {
        config.auth = required(enforce_at, Duration::from_secs(10), Duration::from_secs(60));
    });
    is_refused(&mut relay.client().await).await;
    for client in [&mut old, &mut wise] {
        assert_eq!(client.hear().await, json!(["AUTH", client.challenge]), "A-7: the challenge once more");
        let notice = client.hear().await;
        let (word, text) = (&notice[0], notice[1].as_str().unwrap());
        let deadline = enforce_at.after(Duration::from_secs(10)).seconds();
        assert!(*word == "NOTICE" && text.starts_with("auth-required: "), "{notice}");
        assert!(text.contains(&format!("(by {deadline}, Unix time)")), "{notice}");
    }
    is_served(&mut old, "within the grace, and told once").await;
    assert_eq!(wise.authenticate(1, &relay.url).await, (true, String::new()));

    let ended = old.ended().await;
    assert!(millis() >= enforce_at.after(Duration::from_secs(10)), "not before the grace is over");
    assert_eq!((ended.code, &ended.before[0][0]), (1008, &json!("NOTICE")), "{ended:?}");
    is_served(&mut wise, "after the grace").await;

    relay.reconfigure(|config| config.auth = Auth::Off);
    is_served(&mut relay.client().await, "lifted").await;
}

#[tokio::test]
async fn clients_are_told_when_a_scheduled_enforcement_begins_and_not_if_it_is_called_off() {
    // A-7
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let begins_at = millis().after(Duration::from_secs(3_600));
    relay.reconfigure(|config| {
        config.auth = required(begins_at, Duration::from_secs(3_600), Duration::from_secs(10));
    });
    is_served(&mut client, "before it begins").await;
    is_served(&mut relay.client().await, "a new client, too").await;
    let begins_at = millis().after(Duration::from_millis(300));
    relay.reconfigure(|config| {
        config.auth = required(begins_at, Duration::from_secs(3_600), Duration::from_secs(10));
    });
    assert_eq!(client.hear().await[0], "AUTH");
    assert!(millis() >= begins_at);
    assert_eq!(client.hear().await[0], "NOTICE");
    relay.reconfigure(|config| config.auth = Auth::Off);
    is_served(&mut client, "called off").await;
    let begins_at = millis().after(Duration::from_millis(1));
    relay.reconfigure(|config| {
        config.auth = required(begins_at, Duration::from_secs(3_600), Duration::from_secs(10));
    });
    assert_eq!(client.hear().await[0], "AUTH", "another transition is another notice");
}
