//! What a client of the relay sees, one behaviour at a time.
#![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

mod support;

use kukuri_domain::topic::TopicsMode;
use serde_json::json;
use support::{TOPIC, TestRelay, as_json, draft, key_of, note, now};

#[tokio::test]
async fn stored_events_come_newest_first_then_the_end_then_live_ones() {
    // W-1, W-2
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut author = relay.client().await;
    let old = note(1, "old").at(now() - 20).sign();
    let new = note(1, "new").at(now() - 10).sign();
    assert_eq!(author.publish(&old).await, (true, String::new()));
    assert_eq!(author.publish(&new).await, (true, String::new()));

    let mut reader = relay.client().await;
    let stored = reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    assert_eq!(stored, [new.id.to_string(), old.id.to_string()]);
    let live = note(2, "live").sign();
    author.publish(&live).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&live)]));

    for (filter, expected, why) in [
        (json!({"#t": [TOPIC], "limit": 1}), vec![&live], "a limit counts the newest"),
        (json!({"#t": [TOPIC], "limit": 0}), vec![], "no stored events were asked for"),
        (json!({"#t": [TOPIC], "since": new.created_at.0, "until": new.created_at.0}), vec![&new], "both ends count"),
        (json!({"#t": [TOPIC], "ids": [old.id, new.id]}), vec![&new, &old], "ids come newest first too"),
        (json!({"#t": [TOPIC], "authors": [key_of(2)]}), vec![&live], "by author"),
        (json!({"#t": [TOPIC], "kinds": []}), vec![], "an empty list matches nothing"),
    ] {
        let ids: Vec<_> = expected.iter().map(|event| event.id.to_string()).collect();
        assert_eq!(relay.client().await.request("f", &[filter]).await, ids, "{why}");
    }
    let both = [json!({"#t": [TOPIC], "kinds": [1]}), json!({"#t": [TOPIC], "authors": [key_of(1)]})];
    let merged = relay.client().await.request("m", &both).await;
    assert_eq!(merged.len(), 3, "an event that matches two filters comes once");
}

#[tokio::test]
async fn every_event_is_answered_once_with_its_state() {
    // E-3, E-9, D-6
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let post = note(1, "to be deleted").sign();
    let request = draft(1, 5).tag(["t", TOPIC]).tag(["e", &post.id.to_string()]).sign();
    let newer = draft(1, 0).tag(["t", TOPIC]).at(now()).content("new").sign();
    let older = draft(1, 0).tag(["t", TOPIC]).at(now() - 5).content("old").sign();
    let mut forged = note(1, "forged").sign();
    forged.sig = post.sig;
    let unknown = note(1, "x").tag(["t", "kukuri:nonsense"]).sign();
    let expired = note(1, "x").tag(["expiration", &(now() - 1).to_string()]).sign();
    for (event, accepted, message, why) in [
        (&post, true, "", "it is new"),
        (&post, true, "duplicate: already have this event", "it is known"),
        (&request, true, "", "a deletion is accepted"),
        (&post, false, "blocked: deleted by its author", "it was deleted"),
        (&newer, true, "", "a version"),
        (&older, false, "replaced: a newer version is known", "an older version"),
        (&forged, false, "invalid: signature verification failed", "it is not signed"),
        (&unknown, false, "invalid: malformed topic", "its topic is none"),
        (&expired, false, "invalid: expired", "its time has passed"),
        (&draft(1, 1).sign(), false, "invalid: missing topic", "it has no topic"),
    ] {
        assert_eq!(client.publish(event).await, (accepted, message.to_owned()), "{why}");
    }
    let mut reader = relay.client().await;
    let visible = reader.request("s", &[json!({"#t": [TOPIC]})]).await;
    assert_eq!(visible.len(), 2, "the request and the profile");
}

#[tokio::test]
async fn what_is_wrong_gets_one_clear_answer_and_the_connection_goes_on() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let many = vec![json!({"#t": [TOPIC]}); 21];
    let mut too_many = vec![json!("REQ"), json!("many")];
    too_many.extend(many);
    for (message, word, says) in [
        ("nonsense".to_owned(), "NOTICE", "a message is a JSON array"),
        (r#"["HELLO"]"#.to_owned(), "NOTICE", "unknown word"),
        (r#"["EVENT",{"id":"ab","kind":-1}]"#.to_owned(), "OK", "invalid:"),
        (r#"["REQ","s",{}]"#.to_owned(), "CLOSED", "invalid: #t must name topics"),
        (r##"["REQ","s",{"#t":["hashtag"]}]"##.to_owned(), "CLOSED", "invalid: #t must name topics"),
        (r#"["REQ","s",{"search":"x"}]"#.to_owned(), "CLOSED", "invalid: filter key `search` is unknown"),
        (r#"["COUNT","s",{}]"#.to_owned(), "CLOSED", "invalid: #t must name topics"),
        (serde_json::Value::from(too_many).to_string(), "CLOSED", "invalid: more filters than 20"),
    ] {
        client.say_text(message.clone()).await;
        let heard = client.hear().await;
        assert_eq!(heard[0], word, "{message}: {heard}");
        let said = heard.as_array().unwrap().last().unwrap().as_str().unwrap();
        assert!(said.contains(says), "{message}: {heard}");
    }
    assert!(client.publish(&note(1, "still here").sign()).await.0);
}

#[tokio::test]
async fn private_and_protected_events_need_the_right_key() {
    // E-10
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut alice = relay.client().await;
    let protected = note(1, "mine alone").tag(["-"]).sign();
    let (accepted, message) = alice.publish(&protected).await;
    assert!(!accepted && message.starts_with("auth-required:"), "{message}");
    assert!(!alice.authenticate(1, "ws://elsewhere.example").await.0, "for another relay");
    assert_eq!(alice.authenticate(1, &relay.url).await, (true, String::new()));
    assert_eq!(alice.publish(&protected).await, (true, String::new()));

    let letter = draft(1, 4).tag(["t", TOPIC]).tag(["p", &key_of(2)]).content("secret").sign();
    let mut bob = relay.client().await;
    assert!(bob.request("before", &[json!({"#t": [TOPIC], "kinds": [4]})]).await.is_empty());
    assert_eq!(bob.authenticate(2, &relay.url).await, (true, String::new()));
    alice.publish(&letter).await;
    assert_eq!(bob.hear().await, json!(["EVENT", "before", as_json(&letter)]), "live, from the moment of AUTH");
    assert_eq!(bob.request("after", &[json!({"#t": [TOPIC], "kinds": [4]})]).await, [letter.id.to_string()]);

    let mut stranger = relay.client().await;
    assert!(stranger.request("s", &[json!({"#t": [TOPIC], "kinds": [4]})]).await.is_empty());
    stranger.say(json!(["COUNT", "c", {"#t": [TOPIC], "kinds": [4]}])).await;
    assert_eq!(stranger.hear().await, json!(["COUNT", "c", {"count": 0}]));
}

#[tokio::test]
async fn in_global_mode_any_client_works_unchanged() {
    // T-7
    let relay = TestRelay::start(TopicsMode::Global).await;
    let mut client = relay.client().await;
    let mut reader = relay.client().await;
    assert!(reader.request("all", &[json!({"kinds": [1]})]).await.is_empty());
    let post = draft(1, 1).tag(["t", "東京"]).content("hello").sign();
    assert_eq!(client.publish(&post).await, (true, String::new()));
    assert_eq!(reader.hear().await, json!(["EVENT", "all", as_json(&post)]));
    for filter in [
        json!({}),
        json!({"#t": ["東京"]}),
        json!({"#t": ["kukuri:global"]}),
        json!({"authors": [key_of(1)]}),
        json!({"ids": [post.id]}),
    ] {
        assert_eq!(
            relay.client().await.request("f", std::slice::from_ref(&filter)).await,
            [post.id.to_string()],
            "{filter}"
        );
    }
    let ephemeral = draft(1, 20_001).content("passing").sign();
    reader.say(json!(["REQ", "e", {"kinds": [20_001]}])).await;
    assert_eq!(reader.hear().await, json!(["EOSE", "e", ["finish"]]));
    assert_eq!(client.publish(&ephemeral).await, (true, String::new()));
    assert_eq!(reader.hear().await, json!(["EVENT", "e", as_json(&ephemeral)]), "live only (E-5)");
    assert!(relay.client().await.request("f", &[json!({"kinds": [20_001]})]).await.is_empty());
}

#[tokio::test]
async fn a_vanish_request_takes_everything_and_an_expiry_its_event() {
    // D-12, X-2, X-3
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    client.publish(&note(1, "gone soon").sign()).await;
    client.publish(&note(2, "ends").tag(["expiration", &(now() + 5).to_string()]).sign()).await;
    let vanish = draft(1, 62).tag(["relay", &relay.url]).sign();
    assert_eq!(client.publish(&vanish).await, (true, String::new()));
    let left = relay.client().await.request("s", &[json!({"#t": [TOPIC]})]).await;
    assert_eq!(left.len(), 1);
    let end = now() + 6;
    while now() < end {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    assert!(relay.client().await.request("s", &[json!({"#t": [TOPIC]})]).await.is_empty());
}

#[tokio::test]
async fn a_topic_opens_by_its_first_use_and_never_by_a_forged_event() {
    // T-8
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let enabled = async || {
        let all = relay.relay.store().subscriptions().await.unwrap();
        all.into_iter().filter(|subscription| subscription.enabled).map(|one| one.topic.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(enabled().await, ["kukuri:global"], "a new node takes in one topic");
    let mut forged = note(1, "forged").sign();
    forged.sig = note(1, "another").sign().sig;
    assert!(!client.publish(&forged).await.0);
    assert_eq!(enabled().await, ["kukuri:global"]);
    assert!(client.publish(&note(1, "signed").sign()).await.0);
    assert_eq!(enabled().await, [TOPIC, "kukuri:global"]);

    let topic = kukuri_domain::TopicId::trusted(TOPIC);
    let disable = kukuri_domain::subscription::SubscriptionChange::disable();
    let millis = kukuri_domain::Millis::from_secs(now());
    relay.relay.store().change_subscription(&topic, disable, millis).await.unwrap();
    // The relay hears of it a moment later.
    let mut answer = (true, String::new());
    for attempt in 0.. {
        answer = client.publish(&note(1, &format!("too late {attempt}")).sign()).await;
        if !answer.0 || attempt == 100 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(answer, (false, "restricted: topic not enabled".to_owned()), "what an operator closed stays closed");
}
