//! Search, feed and snapshot of a node that serves members only (S-5, A-5, U-3), and what members use of their plans.

use std::time::Duration;

use axum::http::{Method, Request};
use kukuri_control::{
    account::AccountStatus, actions::Ban, audit::Actor, database::sql, metric::Metric, policy::PolicyType, usage,
};
use kukuri_domain::{PublicKey, Timestamp};
use kukuri_store::conformance::build::{BOB, CAROL, OTHER_TOPIC, TOPIC, deletion, event, note};
use serde_json::{Value, json};

use crate::support::{
    Answer, Node, Stream, UPGRADE_URL, encoded,
    person::{bearer, key_of, now},
};

const CONSENTS: &str = "/v1/consents";

fn search(topic: &str) -> String {
    format!("/v1/search?topic={topic}&q=tea")
}

fn changes(topic: &str) -> String {
    format!("/v1/topics/{topic}/changes")
}

fn snapshot(topic: &str) -> String {
    format!("/v1/topics/{topic}/snapshot")
}

impl Node {
    async fn read(&self, path: &str, authorization: &str) -> Answer {
        self.call(Method::GET, path, authorization, &Value::Null).await
    }

    /// The outcomes of a person's counted requests.
    async fn outcomes(&self, person: &PublicKey) -> Vec<String> {
        let select = sql("SELECT outcome FROM cn_user.usage_events WHERE pubkey = $1 ORDER BY outcome").bind(person);
        self.control.database().read(select).await.unwrap().iter().map(|row| row.get(0).unwrap()).collect()
    }

    async fn used(&self, person: &PublicKey, metric: Metric) -> u64 {
        let used = usage::of_day(self.control.database(), person, Timestamp(now())).await.unwrap();
        used.get(&metric).copied().unwrap_or_default()
    }

    /// Opens the stream of a topic for a member.
    async fn stream_of(&self, authorization: &str) -> Stream {
        let request = Request::get(changes(TOPIC)).header("accept", "text/event-stream");
        let response = self.respond(request.header("authorization", authorization)).await;
        assert_eq!(response.status(), 200);
        Stream::new(response.into_body())
    }
}

fn code(answer: &Answer) -> (u16, String) {
    if answer.status == 200 { (200, String::new()) } else { answer.code() }
}

#[tokio::test]
async fn each_step_to_a_read_is_asked_for_in_order() {
    // U-3, S-5, A-4, A-5
    let node = Node::for_members().await;
    let paths = [search(TOPIC), changes(TOPIC), snapshot(TOPIC)];
    let expect = async |authorization: &str, expected: [(u16, &str); 3]| {
        for (path, (status, code_of)) in paths.iter().zip(expected) {
            let answer = node.read(path, authorization).await;
            assert_eq!(code(&answer), (status, code_of.to_owned()), "{path}: {answer:?}");
        }
    };
    let all = |status, code| [(status, code); 3];
    let malformed = async |authorization: &str| {
        let mut codes = Vec::new();
        for path in [format!("{}&limit=x", search(TOPIC)), format!("{}?after=x", changes(TOPIC))] {
            codes.push(code(&node.read(&path, authorization).await).0);
        }
        codes
    };
    expect("", all(401, "AUTH_REQUIRED")).await;
    expect(&bearer("x"), all(401, "AUTH_FAILED")).await;
    assert_eq!(malformed("").await, [401, 401], "who asks comes before what is asked");
    let own = node.sign_in(1).await;
    let terms = node.publish(PolicyType::Terms, "1", now()).await;
    expect(&own, all(428, "CONSENT_REQUIRED")).await;
    assert_eq!(malformed(&own).await, [428, 428]);
    let accept = json!({ "accept": [{ "type": "terms", "version": "1", "content_hash": terms.content_hash }] });
    assert_eq!(node.call(Method::POST, CONSENTS, &own, &accept).await.status, 200);
    expect(&own, all(403, "SUBSCRIPTION_REQUIRED")).await;
    assert_eq!(malformed(&own).await, [400, 400], "what is asked comes before what the person may have");
    let refused = node.read(&search(TOPIC), &own).await.json();
    assert_eq!(refused["error"]["details"], json!({ "service": "index", "topic_id": TOPIC }));
    let both = format!("{}&topic={TOPIC}", search(OTHER_TOPIC));
    assert_eq!(code(&node.read(&both, &own).await).0, 403, "all of the topics");
    for path in [search(OTHER_TOPIC), changes(OTHER_TOPIC), snapshot(OTHER_TOPIC)] {
        assert_eq!(node.read(&path, &own).await.status, 200, "everybody has this topic (S-6)");
    }

    node.set_limit(Metric::SearchRequests, 2).await;
    node.subscribe(&own, TOPIC, &[]).await;
    expect(&own, [(403, "SUBSCRIPTION_REQUIRED"), (200, ""), (200, "")]).await;
    node.set_limit(Metric::MaxTopics, 9).await;
    let mut transaction = node.control.database().begin().await.unwrap();
    let grant = sql("UPDATE cn_user.topic_subscriptions SET services = 'relay,index'");
    transaction.execute(grant).await.unwrap();
    transaction
        .execute(sql("UPDATE cn_user.subscriber_accounts SET revision = $1").bind(transaction.revision()))
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    node.control.refresh(Timestamp(now())).await.unwrap();
    expect(&own, all(200, "")).await;
    expect(&own, [(402, "QUOTA_EXCEEDED"), (200, ""), (200, "")]).await;
    let refused = node.read(&search(TOPIC), &own).await.json();
    let reset_at = (now() / 86_400 + 1) * 86_400;
    assert_eq!(
        refused["error"]["details"],
        json!({ "metric": "index.search_requests", "current": 2, "limit": 2, "reset_at": reset_at, "upgrade_url": UPGRADE_URL })
    );
}

#[tokio::test]
async fn nothing_is_asked_of_anybody_while_the_node_serves_everybody() {
    // S-5, A-5
    let node = Node::for_members().await;
    *node.gate.members_topics.lock().unwrap() = None;
    node.publish(PolicyType::Terms, "1", now()).await;
    node.set_limit(Metric::SearchRequests, 0).await;
    let own = node.sign_in(1).await;
    for authorization in ["", own.as_str()] {
        for path in [search(TOPIC), changes(TOPIC), snapshot(TOPIC)] {
            let answer = node.read(&path, authorization).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    assert_eq!(node.used(&key_of(1), Metric::SearchRequests).await, 0);
}

#[tokio::test]
async fn topic_is_named_by_its_id_or_its_name() {
    // U-6, T-2
    let node = Node::new(kukuri_domain::topic::TopicsMode::Required);
    let topic = node.topic_of("Green Tea");
    let sent = kukuri_store::conformance::build::bare(1).tag(["t", &topic]).content("tea").build();
    node.send(std::slice::from_ref(&sent)).await;
    for name in [topic.as_str(), "Green Tea", "  ｇｒｅｅｎ  tea"] {
        for path in [changes(&encoded(name)), snapshot(&encoded(name))] {
            let answer = node.get(&path).await;
            assert_eq!(answer.json()["items"].as_array().map(Vec::len), Some(1), "{path}: {answer:?}");
        }
    }
    for malformed in ["kukuri:tea".to_owned(), " ".to_owned(), "x".repeat(201), "a\nb".to_owned()] {
        let answer = node.get(&changes(&encoded(&malformed))).await;
        assert_eq!(answer.refused_parameter().as_deref(), Some("topic"), "{malformed}");
    }
}

#[tokio::test]
async fn stream_ends_within_two_seconds_of_losing_the_right_to_it() {
    // S-5
    for why in ["ban", "disabled account", "end of the subscription", "new terms", "end of the session"] {
        let node = Node::for_members().await;
        let own = node.sign_in(1).await;
        node.subscribe(&own, TOPIC, &[]).await;
        let mut stream = node.stream_of(&own).await;
        // The stream tells that it is alive.
        assert!(stream.next().await.is_some());
        let time = Timestamp(now());
        match why {
            "ban" => {
                let ban = Ban { pubkey: key_of(1), reason: "spam".to_owned(), until: None };
                node.control.perform(&ban, &Actor::command(), time).await.unwrap();
            }
            "disabled account" => {
                let mut transaction = node.control.database().begin().await.unwrap();
                let status = AccountStatus::Disabled;
                kukuri_control::account::set_status(&mut transaction, &key_of(1), status, None, time).await.unwrap();
                transaction.commit().await.unwrap();
                node.control.refresh(time).await.unwrap();
            }
            "end of the subscription" => {
                let path = format!("/v1/topic-subscriptions/{TOPIC}");
                assert_eq!(node.call(Method::DELETE, &path, &own, &Value::Null).await.status, 200);
            }
            "new terms" => drop(node.publish(PolicyType::Terms, "1", now()).await),
            _ => {
                let ended = node.call(Method::DELETE, "/v1/auth/session", &own, &Value::Null).await;
                assert_eq!(ended.status, 200);
            }
        }
        // Later events are not delivered.
        node.send(&[note("after").build()]).await;
        tokio::time::pause();
        let ended = tokio::time::timeout(Duration::from_secs(2), stream.next()).await;
        assert_eq!(ended, Ok(None), "{why}");
        tokio::time::resume();
    }
}

#[tokio::test(start_paused = true)]
async fn stream_of_a_stranger_ends_when_the_node_begins_to_serve_members_only() {
    // W-7: there is no grace over HTTP
    let node = Node::new(kukuri_domain::topic::TopicsMode::Required);
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    assert!(stream.next().await.is_some());
    *node.gate.members_topics.lock().unwrap() = Some(Vec::new());
    assert_eq!(tokio::time::timeout(Duration::from_secs(2), stream.next()).await, Ok(None));
}

#[tokio::test]
async fn private_events_are_shown_to_their_parties_alone() {
    // E-10
    let node = Node::for_members().await;
    let [alice, mallory] = [node.sign_in(1).await, node.sign_in(2).await];
    for own in [&alice, &mallory] {
        node.subscribe(own, TOPIC, &["index"]).await;
    }
    let (own, other) = (key_of(1), key_of(3));
    let sent = [
        event(4).by(own).tag(["p", &BOB.to_string()]).content("tea of mine").build(),
        event(1059).by(CAROL).tag(["p", &own.to_string()]).content("tea for me").build(),
        event(4).by(other).tag(["p", &BOB.to_string()]).content("tea of others").build(),
        note("tea for all").build(),
    ];
    node.send(&sent).await;
    node.index(&sent).await;
    let shown = async |authorization: &str| {
        let mut all = Vec::new();
        for path in [changes(TOPIC), snapshot(TOPIC), search(TOPIC)] {
            let answer = node.read(&path, authorization).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let is_shown = |event: &&kukuri_domain::Event| answer.text.contains(&event.id.to_string());
            all.push(sent.iter().filter(is_shown).map(|event| event.content.clone()).collect::<Vec<_>>());
        }
        all
    };
    let (mine, for_all) = (vec!["tea of mine", "tea for me", "tea for all"], vec!["tea for all"]);
    assert_eq!(shown(&alice).await, [mine.clone(), mine, for_all.clone()], "search has no private event");
    assert_eq!(shown(&mallory).await, [for_all.clone(), for_all.clone(), for_all]);

    // A row of a private event that went does not name its parties: nobody is told. The request says it.
    let request = deletion().by(own).of(&sent[0]).build();
    node.send(std::slice::from_ref(&request)).await;
    for authorization in [&alice, &mallory] {
        let page = node.read(&changes(TOPIC), authorization).await.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|change| change["op"] == "upsert"), "{page}");
        assert!(items.iter().any(|change| change["event_id"] == request.id.to_string()), "{page}");
    }
    let held = node.read(&snapshot(TOPIC), &alice).await;
    assert!(!held.text.contains(&format!("\"id\":\"{}\"", sent[0].id)), "{held:?}");
}

#[tokio::test]
async fn work_that_failed_or_was_refused_is_not_counted() {
    //
    let node = Node::for_members().await;
    let (own, person) = (node.sign_in(1).await, key_of(1));
    node.set_limit(Metric::SearchRequests, 3).await;
    let path = search(OTHER_TOPIC);
    assert_eq!(node.read(&path, &own).await.status, 200);
    for refused in ["/v1/search?q=tea", &format!("{}&limit=x", path), &search(TOPIC)] {
        let answer = node.read(refused, &own).await;
        assert!(matches!(answer.status.as_u16(), 400 | 403), "{answer:?}");
    }
    node.store.set_away(true);
    node.send_away(&path, &own).await;
    node.store.set_away(false);
    assert_eq!(
        (node.used(&person, Metric::SearchRequests).await, node.outcomes(&person).await),
        (1, vec!["error".to_owned(), "ok".to_owned()])
    );
    for expected in [200, 200, 402] {
        assert_eq!(node.read(&path, &own).await.status, expected);
    }
    assert_eq!(node.read("/v1/trending", &own).await.status, 200, "another metric");
    assert_eq!(node.used(&person, Metric::TrendingRequests).await, 1);
}

impl Node {
    async fn send_away(&self, path: &str, authorization: &str) {
        let answer = self.read(path, authorization).await;
        assert_eq!(answer.status, 503, "{answer:?}");
    }
}

#[tokio::test]
async fn requests_at_the_same_time_do_not_exceed_a_plan() {
    //
    let node = std::sync::Arc::new(Node::for_members().await);
    let own = node.sign_in(1).await;
    node.set_limit(Metric::SearchRequests, 5).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let (node, own) = (std::sync::Arc::clone(&node), own.clone());
        tasks.spawn(async move { node.read(&search(OTHER_TOPIC), &own).await.status.as_u16() });
    }
    let statuses = tasks.join_all().await;
    let count = |status| statuses.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(402)), (5, 25), "{statuses:?}");
}
