//! Search (NIP-50): stored hits by score, then live events.

use std::{collections::HashSet, time::Duration};

use crate::support::{TOPIC, TestRelay, draft, id_of, note, now, topic};
use kukuri_domain::topic::TopicsMode;
use kukuri_store::Seq;
use serde_json::{Value, json};

fn search(words: &str) -> Value {
    json!({"#t": [TOPIC], "search": words})
}

async fn head(relay: &TestRelay) -> Seq {
    relay.engine.store().stats().await.unwrap().head
}

#[tokio::test]
async fn accepted_events_are_found_at_once_and_deleted_ones_are_not() {
    // C-1, W-3, W-9
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let tokyo = note(1, "東京都庁の展望室から").sign();
    let kyoto = note(1, "京都のラーメン").sign();
    let english = note(2, "Green tea in Kyoto, don't miss it").sign();
    let elsewhere = note(1, "東京").tag(["t", &topic(2)]).sign();
    for event in [&tokyo, &kyoto, &english, &elsewhere] {
        client.accepted(event).await;
    }
    let found = |words| {
        let relay = &relay;
        async move { relay.visible(&[search(words)]).await.into_iter().collect::<HashSet<_>>() }
    };
    // Once before and once after the index has the events.
    for _ in 0..2 {
        assert_eq!(found("東京").await, HashSet::from([id_of(&tokyo), id_of(&elsewhere)]));
        assert_eq!(found("京都").await, HashSet::from([id_of(&tokyo), id_of(&kyoto)]), "京都 stands in 東京都庁");
        assert_eq!(found("ﾗｰﾒﾝ").await, HashSet::from([id_of(&kyoto)]));
        assert_eq!(found("GREEN dont language:en").await, HashSet::from([id_of(&english)]));
        assert_eq!(found("大阪").await, HashSet::new());
        assert!(consumer.caught_up(head(&relay).await).await);
    }
    let narrow = json!({"#t": [topic(2)], "search": "東京", "authors": [crate::support::key_of(1)], "kinds": [1]});
    assert_eq!(relay.visible(&[narrow]).await, [id_of(&elsewhere)]);

    client.accepted(&draft(1, 5).tag(["t", TOPIC]).tag(["e", &id_of(&tokyo)]).sign()).await;
    assert_eq!(found("東京").await, HashSet::from([id_of(&elsewhere)]), "at once");
    assert!(consumer.caught_up(head(&relay).await).await);
    assert_eq!(found("東京").await, HashSet::from([id_of(&elsewhere)]));
    consumer.stop().await;
}

#[tokio::test]
async fn hits_are_ordered_by_score_before_the_limit_applies() {
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let day = 86_400;
    let old = note(1, "tea").at(now() - 300 * day).sign();
    let titled =
        draft(2, 30_023).tag(["d", "x"]).tag(["title", "Tea"]).tag(["t", TOPIC]).content("tea, and tea").sign();
    let long = note(3, &format!("tea {}", "and other things ".repeat(30))).sign();
    for event in [&long, &titled, &old] {
        client.accepted(event).await;
    }
    assert!(consumer.caught_up(head(&relay).await).await);
    let found = relay.visible(&[search("tea")]).await;
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], id_of(&titled));
    let limited = json!({"#t": [TOPIC], "search": "tea", "limit": 1});
    assert_eq!(relay.visible(&[limited]).await, [id_of(&titled)]);
    let none = json!({"#t": [TOPIC], "search": "tea", "limit": 0});
    assert_eq!(relay.visible(&[none]).await, Vec::<String>::new());
    // With another filter: search hits first, then the other events, each once.
    let both = relay.visible(&[json!({"#t": [TOPIC], "limit": 10}), search("tea")]).await;
    assert_eq!((both.len(), &both[0]), (3, &id_of(&titled)));
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_stays_live_and_neither_misses_nor_repeats_events() {
    // W-2
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut writer = relay.client().await;
    let writing = tokio::spawn(async move {
        let mut matching = Vec::new();
        for number in 0..300 {
            let word = if number % 3 == 0 { "東京で" } else { "大阪で" };
            let event = note(1, &format!("{word} {number}")).sign();
            writer.accepted(&event).await;
            if number % 3 == 0 {
                matching.push(id_of(&event));
            }
        }
        let last = note(1, "東京 the last one").sign();
        writer.accepted(&last).await;
        (matching, id_of(&last))
    });
    let mut listening = Vec::new();
    for pause in [0, 15, 40, 90] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let mut client = relay.client().await;
        listening.push(tokio::spawn(async move {
            client.say(json!(["REQ", "s", search("東京")])).await;
            let (mut heard, mut is_live, mut is_over) = (Vec::new(), false, false);
            while !(is_live && is_over) {
                let message = client.hear().await;
                if message[0] == "EOSE" {
                    is_live = true;
                    continue;
                }
                assert_eq!(message[0], "EVENT", "{message}");
                heard.push(message[2]["id"].as_str().unwrap().to_owned());
                is_over |= message[2]["content"] == "東京 the last one";
            }
            heard
        }));
    }
    let (matching, last) = writing.await.unwrap();
    let expected: HashSet<String> = matching.into_iter().chain([last]).collect();
    for listener in listening {
        let heard = listener.await.unwrap();
        assert_eq!(heard.len(), heard.iter().collect::<HashSet<_>>().len(), "nothing comes twice");
        let missing: Vec<_> = expected.iter().filter(|id| !heard.contains(id)).collect();
        assert!(missing.is_empty() && heard.len() == expected.len(), "{} heard, {missing:?}", heard.len());
    }
    consumer.stop().await;
}

#[tokio::test]
async fn invalid_searches_are_refused_with_a_reason() {
    // W-4
    let (relay, consumer) = TestRelay::start_searching(TopicsMode::Required).await;
    let mut client = relay.client().await;
    for (words, reason) in [
        (json!(""), "invalid: a search needs at least one word"),
        (json!("!?…"), "invalid: a search needs at least one word"),
        (json!("language:en"), "invalid: a search needs at least one word"),
        (json!("x".repeat(10_000)), "invalid: a search has at most 512 characters"),
    ] {
        let answer = client.tell(json!(["REQ", "s", {"#t": [TOPIC], "search": words}])).await;
        assert_eq!((&answer[0], &answer[2]), (&json!("CLOSED"), &json!(reason)), "{answer}");
    }
    let answer = client.tell(json!(["REQ", "s", {"search": "tea"}])).await;
    assert_eq!(answer[0], "CLOSED", "T-6 holds for searches, too: {answer}");
    for answer in [
        client.tell(json!(["COUNT", "c", search("tea")])).await,
        client.tell(json!(["NEG-OPEN", "n", search("tea"), "61"])).await,
    ] {
        assert_eq!(answer[2], "unsupported: only a REQ can search", "{answer}");
    }
    assert_eq!(client.tell(json!(["REQ", "s", {"#t": [TOPIC], "search": 5}])).await[0], "CLOSED");
    let (_, _, document) = relay.get("/", &[("accept", "application/nostr+json")]).await;
    assert!(document.contains("45,50,62"), "{document}");

    let without = TestRelay::start(TopicsMode::Required).await;
    let answer = without.client().await.tell(json!(["REQ", "s", search("tea")])).await;
    assert_eq!(answer[2], "unsupported: there is no search here");
    consumer.stop().await;
}
