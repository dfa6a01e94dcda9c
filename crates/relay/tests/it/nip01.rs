//! NIP-01: requests are answered, events are acknowledged, and a subscription stays live until it is closed.

use std::collections::BTreeMap;

use crate::support::{TOPIC, TestRelay, as_json, draft, id_of, key_of, note, now, topic};
use kukuri_domain::{Event, topic::TopicsMode};
use serde_json::{Value, json};

fn ids(events: &[&Event]) -> Vec<String> {
    events.iter().map(|event| id_of(event)).collect()
}

/// Orders two events of one second: the lower id first.
fn tie(left: Event, right: Event) -> (Event, Event) {
    if left.id < right.id { (left, right) } else { (right, left) }
}

#[tokio::test]
async fn stored_events_are_returned_by_filter_newest_first_up_to_the_limit() {
    // W-1, W-2 (NIP-67)
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.requests.limit = 5).await;
    let start = now() - 1_000;
    let old = note(1, "old").at(start).sign();
    let reply = note(2, "reply").at(start + 10).tag(["e", &id_of(&old)]).tag(["p", &key_of(1)]).sign();
    let (low, high) = tie(note(1, "heads").at(start + 20).sign(), note(1, "tails").at(start + 20).sign());
    let like = draft(3, 7).tag(["t", TOPIC]).tag(["e", &id_of(&old)]).at(start + 30).content("+").sign();
    let tagged = note(3, "#cats").tag(["t", "cats"]).at(start + 40).sign();
    let elsewhere = draft(1, 1).tag(["t", &topic(2)]).at(start + 50).sign();
    let mut author = relay.client().await;
    for event in [&like, &old, &high, &elsewhere, &low, &reply, &tagged] {
        author.accepted(event).await;
    }

    let newest = vec![&tagged, &like, &low, &high, &reply];
    let none = Vec::new();
    let mine = |mut filter: Value| {
        filter["#t"] = json!([TOPIC]);
        filter
    };
    let (finish, more, unsaid) = (Some("finish"), Some("more"), None);
    for (filters, expected, hint, why) in [
        (vec![mine(json!({}))], newest.clone(), more, "newest first, ties by the lower id, no more than the most"),
        (vec![mine(json!({"limit": 2}))], newest[..2].to_vec(), more, "a limit counts from the newest"),
        (vec![mine(json!({"limit": 1_000_000}))], newest.clone(), more, "a limit is clamped, never refused"),
        (vec![mine(json!({"limit": -1}))], none.clone(), unsaid, "clamped from below, too"),
        (vec![mine(json!({"limit": 0}))], none.clone(), unsaid, "no stored events are asked for, and nothing is read"),
        (vec![mine(json!({"kinds": [7], "limit": 1}))], vec![&like], finish, "all of them, as many as the limit"),
        (
            vec![mine(json!({"ids": [id_of(&old), id_of(&tagged), id_of(&low), id_of(&high)]}))],
            vec![&tagged, &low, &high, &old],
            finish,
            "ids come newest first, whatever their order in the filter",
        ),
        (vec![mine(json!({"ids": [id_of(&elsewhere)]}))], none.clone(), finish, "all conditions hold: another topic"),
        (vec![json!({"#t": [topic(2)]})], vec![&elsewhere], finish, "a topic by itself"),
        (vec![mine(json!({"authors": [key_of(1)]}))], vec![&low, &high, &old], finish, "by author"),
        (vec![mine(json!({"authors": [key_of(2), key_of(3)]}))], vec![&tagged, &like, &reply], finish, "by authors"),
        (vec![mine(json!({"kinds": [7, 30_000]}))], vec![&like], finish, "by kinds"),
        (vec![mine(json!({"#e": [id_of(&old)]}))], vec![&like, &reply], finish, "by a tag"),
        (vec![mine(json!({"#e": [id_of(&old)], "#p": [key_of(1)]}))], vec![&reply], finish, "by two tags"),
        (vec![mine(json!({"since": start + 30}))], vec![&tagged, &like], finish, "since is inclusive"),
        (vec![mine(json!({"until": start + 10}))], vec![&reply, &old], finish, "until is inclusive"),
        (vec![mine(json!({"since": start + 20, "until": start + 20}))], vec![&low, &high], finish, "one second"),
        (vec![mine(json!({"since": start + 20, "until": start + 10}))], none.clone(), finish, "a time that never was"),
        (vec![mine(json!({"kinds": []}))], none.clone(), finish, "an empty list matches nothing"),
        (vec![mine(json!({"ids": []}))], none.clone(), finish, "neither of ids"),
        (vec![mine(json!({"authors": []}))], none.clone(), finish, "nor of authors"),
        (vec![mine(json!({"#e": []}))], none.clone(), finish, "nor of a tag's values"),
        (
            vec![mine(json!({"authors": [key_of(1)]})), mine(json!({"kinds": [1], "since": start + 20}))],
            vec![&tagged, &low, &high, &old],
            finish,
            "an event that several filters match comes once, and all of them newest first",
        ),
        (
            vec![mine(json!({"kinds": [1], "limit": 1})), mine(json!({"kinds": [7], "limit": 1}))],
            vec![&tagged, &like],
            more,
            "each filter has its own limit",
        ),
        (
            vec![mine(json!({"kinds": []})), mine(json!({"kinds": [7]}))],
            vec![&like],
            finish,
            "one alternative is enough",
        ),
    ] {
        let (found, end) = relay.client().await.ask("s", &filters).await;
        assert_eq!(found, ids(&expected), "{why}: {filters:?}");
        let expected = hint.map_or(json!(["EOSE", "s"]), |hint| json!(["EOSE", "s", [hint]]));
        assert_eq!(end, expected, "{why}: {filters:?}");
    }
}

#[tokio::test]
async fn a_refused_request_is_closed_with_a_reason() {
    // W-4, T-6
    let relay = TestRelay::start_with(TopicsMode::Required, |config| {
        config.requests.filters = 3;
        config.requests.filter_values = 10;
        config.requests.subscriptions = 2;
    })
    .await;
    let mut client = relay.client().await;
    let id = "ab".repeat(32);
    for (filters, reason, why) in [
        (json!([]), "invalid: a request has at least one filter", "no filter"),
        (json!([1]), "invalid: ", "a filter is an object"),
        (json!([{}]), "invalid: #t must name topics", "no topic"),
        (json!([{"#t": ["cats"]}]), "invalid: #t must name topics", "a hashtag is no topic"),
        (json!([{"#t": [TOPIC, "cats"]}]), "invalid: #t must name topics", "not even beside one"),
        (json!([{"#t": [TOPIC]}, {}]), "invalid: #t must name topics", "one filter of two has no topic"),
        (json!([{"#t": [TOPIC], "near": "x"}]), "invalid: filter key `near` is unknown", "a key we don't know"),
        (json!([{"#t": [TOPIC], "ids": ["ab"]}]), "invalid: ", "a prefix is no id"),
        (json!([{"#t": [TOPIC], "ids": [id.to_uppercase()]}]), "invalid: ", "ids are in lower case"),
        (json!([{"#t": [TOPIC], "ids": [format!("{id}0")]}]), "invalid: ", "64 digits, not 65"),
        (json!([{"#t": [TOPIC], "ids": ["zz".repeat(32)]}]), "invalid: ", "ids are hex"),
        (json!([{"#t": [TOPIC], "authors": [id.to_uppercase()]}]), "invalid: ", "authors are in lower case"),
        (json!([{"#t": [TOPIC], "authors": ["ab"]}]), "invalid: ", "a prefix is no author"),
        (json!([{"#t": [TOPIC], "kinds": [65_536]}]), "invalid: ", "no such kind"),
        (json!([{"#t": [TOPIC], "kinds": ["1"]}]), "invalid: ", "a kind is a number"),
        (json!([{"#t": [TOPIC], "since": -1}]), "invalid: ", "no such time"),
        (json!([{"#t": TOPIC}]), "invalid: ", "a list is a list"),
        (
            json!([{"#t": [TOPIC]}, {"#t": [TOPIC]}, {"#t": [TOPIC]}, {"#t": [TOPIC]}]),
            "invalid: more filters than limits.filters = 3",
            "four",
        ),
        (
            json!([{"#t": [TOPIC], "kinds": (0..10).collect::<Vec<_>>()}]),
            "invalid: a filter has more values than limits.filter_values = 10",
            "11",
        ),
    ] {
        let (stored, end) = client.ask("s", filters.as_array().unwrap()).await;
        assert!(stored.is_empty() && end[0] == "CLOSED", "{why}: {end}");
        assert!(end[2].as_str().unwrap().starts_with(reason), "{why}: {end}");
    }
    assert_eq!(relay.figure("kukuri_subscriptions").await, 0.0, "nothing of them is left");

    let any = [json!({"#t": [TOPIC]})];
    client.request("one", &any).await;
    client.request("two", &any).await;
    let (_, end) = client.ask("three", &any).await;
    assert_eq!(end, json!(["CLOSED", "three", "error: more subscriptions than limits.subscriptions = 2"]));
    client.request("two", &any).await;
    client.say(json!(["CLOSE", "one"])).await;
    client.request("three", &any).await;
}

#[tokio::test]
async fn a_subscription_stays_live_until_it_is_closed_or_replaced() {
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut author = relay.client().await;
    let mut reader = relay.client().await;
    reader.request("s", &[json!({"#t": [TOPIC], "limit": 0})]).await;
    reader.request("other", &[json!({"#t": [TOPIC], "kinds": [7]})]).await;
    let first = note(1, "first").sign();
    author.accepted(&first).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&first)]), "live, though its limit is 0");

    let replaced = [json!({"#t": [TOPIC], "kinds": [1], "authors": [key_of(2)]}), json!({"#t": [TOPIC], "#p": ["x"]})];
    assert!(reader.request("s", &replaced).await.is_empty());
    author.accepted(&note(1, "not asked for any more").sign()).await;
    let both = note(2, "asked for twice").tag(["p", "x"]).sign();
    author.accepted(&both).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "s", as_json(&both)]), "a REQ with a used id replaces the old one");
    let like = draft(2, 7).tag(["t", TOPIC]).tag(["p", "x"]).sign();
    author.accepted(&like).await;
    let mut heard = [reader.hear().await, reader.hear().await];
    heard.sort_by_key(|heard| heard[1].to_string());
    assert_eq!(heard[0], json!(["EVENT", "other", as_json(&like)]), "one copy, though two filters matched before");
    assert_eq!(heard[1], json!(["EVENT", "s", as_json(&like)]), "one copy for each subscription");

    reader.say(json!(["CLOSE", "s"])).await;
    reader.say(json!(["CLOSE", "never opened"])).await;
    // An answer to the next message shows that the relay has processed the CLOSE.
    assert_eq!(reader.request("later", &[json!({"#t": [TOPIC], "kinds": [9]})]).await.len(), 0);
    author.accepted(&note(2, "after the CLOSE").sign()).await;
    let last = draft(2, 9).tag(["t", TOPIC]).sign();
    author.accepted(&last).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "later", as_json(&last)]), "a closed subscription is silent");

    let (_, end) = reader.ask("later", &[json!({})]).await;
    assert_eq!(end[0], "CLOSED", "a refused REQ replaces the old one as well");
    author.accepted(&draft(2, 9).tag(["t", TOPIC]).content("unheard").sign()).await;
    author.accepted(&draft(2, 7).tag(["t", TOPIC]).content("heard").sign()).await;
    assert_eq!(reader.hear().await[1], "other");
}

#[tokio::test]
async fn every_event_gets_an_ok_with_its_outcome() {
    // E-1 to E-10
    let relay = TestRelay::start(TopicsMode::Required).await;
    let mut client = relay.client().await;
    let start = now() - 100;
    let profile = |at: u64, content: &str| draft(1, 0).tag(["t", TOPIC]).at(at).content(content).sign();
    let article = |at: u64, d: &str| draft(1, 30_023).tag(["t", TOPIC]).tag(["d", d]).at(at).sign();
    let (low, high) = tie(profile(start + 20, "heads"), profile(start + 20, "tails"));
    let (low_list, high_list) = tie(
        draft(1, 10_002).tag(["t", TOPIC]).at(start).content("heads").sign(),
        draft(1, 10_002).tag(["t", TOPIC]).at(start).content("tails").sign(),
    );
    let post = note(1, "hello").sign();
    let mut forged = note(1, "forged").sign();
    forged.sig = post.sig;
    let mut renamed = note(1, "renamed").sign();
    renamed.id = post.id;
    let expired = note(1, "x").tag(["expiration", &(now() - 1).to_string()]).sign();
    for (event, accepted, message, why) in [
        (&post, true, "", "it is new"),
        (&post, true, "duplicate: already have this event", "it is known"),
        (&forged, false, "invalid: signature verification failed", "another event's signature"),
        (&renamed, false, "invalid: event id does not match its content", "another event's id"),
        (&note(1, "x").tag(["t", "kukuri:nonsense"]).sign(), false, "invalid: malformed topic", "T-1"),
        (&draft(1, 1).sign(), false, "invalid: missing topic", "T-5"),
        (&draft(1, 1).tag(["t", "cats"]).sign(), false, "invalid: missing topic", "a hashtag is no topic"),
        (&expired, false, "invalid: expired", "X-1"),
        (
            &note(1, "x").at(now() + 10_000).sign(),
            false,
            "invalid: created_at is further ahead than limits.created_at_ahead = 900 seconds",
            "E-8",
        ),
        (&draft(1, 30_000).tag(["t", TOPIC]).sign(), false, "invalid: missing d", "E-4"),
        (
            &draft(1, 39_020).tag(["t", TOPIC]).tag(["d", ""]).sign(),
            false,
            "restricted: access control events are p2p-only",
            "E-6",
        ),
        (&note(1, "x").tag(["scope", "friends"]).sign(), false, "invalid: missing epoch", "E-7"),
        (&draft(1, 22_242).tag(["t", TOPIC]).sign(), false, "invalid: authentication events are not stored", "E-10"),
        (&profile(start, "older"), true, "", "E-3: a first version"),
        (&high, true, "", "a newer version"),
        (&profile(start + 19, "older"), false, "replaced: a newer version is known", "an older version"),
        (&low, true, "", "a tie is broken by the lower id"),
        (&high, false, "replaced: a newer version is known", "the higher id of a tie, sent again"),
        (&low_list, true, "", "the lower id first"),
        (&high_list, false, "replaced: a newer version is known", "the higher id loses from the start"),
        (&article(start + 10, "a"), true, "", "addressable"),
        (&article(start + 5, "a"), false, "replaced: a newer version is known", "an older version of one address"),
        (&article(start + 5, "b"), true, "", "another address"),
        (&article(start + 20, "a"), true, "", "a newer one"),
    ] {
        assert_eq!(client.publish(event).await, (accepted, message.to_owned()), "{why}: {}", as_json(event));
    }
    let mut expected = ids(&[&post, &low, &low_list, &article(start + 20, "a"), &article(start + 5, "b")]);
    let mut visible = relay.visible(&[json!({"#t": [TOPIC]})]).await;
    expected.sort();
    visible.sort();
    assert_eq!(visible, expected, "one version of each key is served, and nothing that was refused");
}

#[tokio::test]
async fn each_event_is_acknowledged_exactly_once() {
    // Answers of the writer and of the checks before it overtake each other; none is lost or repeated.
    let relay = TestRelay::start_with(TopicsMode::Required, |config| config.requests.in_flight = 7).await;
    let mut client = relay.client().await;
    let mut sent = BTreeMap::new();
    for number in 0..300 {
        let event = match number % 5 {
            0 => draft(1, 1).content(&number.to_string()).sign(),
            1 => draft(1, 20_001).tag(["t", TOPIC]).content(&number.to_string()).sign(),
            2 => draft(1, 0).tag(["t", TOPIC]).content(&number.to_string()).at(now() - number).sign(),
            _ => note(1, &number.to_string()).sign(),
        };
        // Every third event is sent twice.
        let times = if number % 3 == 0 { 2 } else { 1 };
        for _ in 0..times {
            client.say(json!(["EVENT", as_json(&event)])).await;
        }
        sent.insert(id_of(&event), times);
    }
    client.say(json!(["EVENT", {"id": "unreadable"}])).await;
    sent.insert("unreadable".to_owned(), 1);
    let total: i32 = sent.values().sum();
    for _ in 0..total {
        let heard = client.hear().await;
        assert_eq!(heard[0], "OK", "{heard}");
        *sent.get_mut(heard[1].as_str().unwrap()).unwrap() -= 1;
    }
    assert!(sent.values().all(|left| *left == 0), "{sent:?}");
    client.request("nothing else was said", &[json!({"#t": [TOPIC], "limit": 0})]).await;
}

#[tokio::test]
async fn in_global_mode_clients_need_no_topic_support() {
    // T-7
    let relay = TestRelay::start(TopicsMode::Global).await;
    let mut client = relay.client().await;
    let mut reader = relay.client().await;
    assert!(reader.request("all", &[json!({"kinds": [1]})]).await.is_empty());
    let post = draft(1, 1).tag(["t", "東京"]).content("hello").sign();
    client.accepted(&post).await;
    assert_eq!(reader.hear().await, json!(["EVENT", "all", as_json(&post)]));
    for filter in [
        json!({}),
        json!({"#t": ["東京"]}),
        json!({"#t": ["kukuri:global"]}),
        json!({"authors": [key_of(1)]}),
        json!({"ids": [post.id]}),
    ] {
        assert_eq!(relay.visible(std::slice::from_ref(&filter)).await, ids(&[&post]), "{filter}");
    }
}
