//! A node that serves members only: what they read over HTTP, and what their plan allows (S-5, A-5, Q-2, Q-3, S-8).

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    time::{Duration, Instant},
};

use kukuri_control::{
    Control, PostgresSettings,
    request::{self, NewRequest, RequestLimits, Service},
    token,
};
use kukuri_domain::{PublicKey, Timestamp, TopicId};
use kukuri_testing::{Client, draft, eventually, key_of, note, now};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    database::Database,
    people::{control, join},
    support::{Node, TOPIC},
};

const CONFIGURATION: &str = "auth.mode = \"required\"\ntopics.open = false\n\
    [subscriptions]\nupgrade_url = \"https://node.example/plans\"\n";
/// A stream ends within this time of losing the right to it; here it has a slow machine to share.
const MAX_STREAM_END: Duration = Duration::from_secs(10);

fn key(author: u8) -> PublicKey {
    PublicKey::from_hex(key_of(author)).unwrap()
}

/// The `Authorization` of an author who has signed in.
fn authorization(node: &Node, control: &Control, author: u8) -> String {
    let issuer = node.url().replace("ws://", "http://");
    let token = token::issue(&control.secrets(), &issuer, &key(author), Timestamp(now())).unwrap();
    format!("Bearer {}", token.text)
}

/// The author asks for the topic with search, and the operator approves.
async fn subscribe(node: &Node, control: &Control, author: u8) {
    let asked = NewRequest {
        topic: TopicId::new_unchecked(TOPIC),
        topic_name: None,
        services: vec![Service::Index],
        reason: None,
    };
    let limits = RequestLimits::default();
    let made = request::create(control.database(), &key(author), &asked, limits, Timestamp(now())).await.unwrap();
    node.run(&["request", "approve", &made.id]).ok();
}

async fn authenticated(node: &Node, author: u8) -> Client {
    let mut client = node.client().await;
    assert_eq!(client.authenticate(author, &node.url()).await, (true, String::new()));
    client
}

fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["code"].as_str().unwrap_or_default())
}

fn path_of(what: &str) -> String {
    format!("/v1/topics/{}/{what}", TOPIC.replace(':', "%3A"))
}

fn search(words: &str) -> String {
    format!("/v1/search?topic={}&q={words}", TOPIC.replace(':', "%3A"))
}

/// The changes of a stream, until it ends.
fn stream_lines(node: &Node, authorization: &str) -> impl Iterator<Item = String> {
    let stream = node.ask_as(authorization, &path_of("changes"), "text/event-stream");
    stream.set_read_timeout(Some(MAX_STREAM_END)).unwrap();
    BufReader::new(stream).lines().map_while(Result::ok)
}

/// Waits until a stream tells of an event. Returns `false` if it ends before.
fn is_told(lines: &mut impl Iterator<Item = String>, id: &str) -> bool {
    tokio::task::block_in_place(|| lines.any(|line| line.starts_with("data:") && line.contains(id)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_read_by_their_plan_strangers_do_not_and_a_ban_ends_a_stream() {
    let node = Node::start_with("required", CONFIGURATION);
    let control = control(&node).await;
    for author in [1, 2] {
        join(&control, &key(author)).await;
    }
    subscribe(&node, &control, 1).await;
    let [own, other] = [1, 2].map(|author| authorization(&node, &control, author));
    eventually("the account is known to the node", async || node.get_as(&own, &path_of("changes")).0 == 200).await;

    let mut publisher = authenticated(&node, 1).await;
    let sent = note(1, "a lantern").sign();
    eventually("the topic is taken in", async || publisher.publish(&sent).await.0).await;
    let found = node.get_as(&own, &search("lantern"));
    assert_eq!((found.0, &found.1["items"][0]["event"]["id"]), (200, &json!(sent.id)), "{found:?}");
    let changes = node.get_as(&own, &path_of("changes"));
    assert_eq!((changes.0, &changes.1["items"][0]["event_id"]), (200, &json!(sent.id)), "{changes:?}");
    assert_eq!(node.get_as(&own, &path_of("snapshot")).1["items"][0]["id"], json!(sent.id));
    for path in [search("lantern"), path_of("changes"), path_of("snapshot")] {
        assert_eq!(code(&node.get(&path)), (401, "AUTH_REQUIRED"), "{path}");
        assert_eq!(code(&node.get_as(&other, &path)), (403, "SUBSCRIPTION_REQUIRED"), "{path}");
    }

    node.run(&["plan", "set", "free", "index.search_requests", "day", "2"]).ok();
    let limits = json!({ "metric": "index.search_requests", "window": "day", "limit": 2 });
    let knows_plan = async || node.get_as(&own, "/v1/me").1["plan"]["limits"].as_array().unwrap().contains(&limits);
    eventually("the plan is in effect", knows_plan).await;
    assert_eq!(node.get_as(&own, &search("lantern")).0, 200);
    let refused = node.get_as(&own, &search("lantern"));
    assert_eq!(code(&refused), (402, "QUOTA_EXCEEDED"), "{refused:?}");
    let details = &refused.1["error"]["details"];
    assert_eq!((&details["limit"], &details["upgrade_url"]), (&json!(2), &json!("https://node.example/plans")));
    assert!(details["reset_at"].as_u64().unwrap() > now(), "{details}");

    let mut lines = stream_lines(&node, &own);
    assert!(is_told(&mut lines, &sent.id.to_string()));
    let live = note(1, "another lantern").sign();
    publisher.accepted(&live).await;
    assert!(is_told(&mut lines, &live.id.to_string()));
    node.run(&["account", "ban", &key_of(1), "--reason", "spam"]).ok();
    let began = Instant::now();
    assert!(!is_told(&mut lines, "nothing"), "it ends");
    assert!(began.elapsed() < MAX_STREAM_END, "by the node, not by the time limit: {:?}", began.elapsed());
    assert_eq!(code(&node.get_as(&own, &path_of("changes"))), (403, "BANNED"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_members_publish_and_ask_of_the_past_is_counted_over_restarts() {
    // Q-1, Q-2
    let mut node = Node::start_with("required", CONFIGURATION);
    let control = control(&node).await;
    join(&control, &key(1)).await;
    subscribe(&node, &control, 1).await;
    for (metric, limit) in [("relay.ws_event_publishes", "3"), ("relay.ws_backfill_requests", "2")] {
        node.run(&["plan", "set", "free", metric, "day", limit]).ok();
    }
    let own = authorization(&node, &control, 1);
    let knows_plan = async || node.get_as(&own, "/v1/me").1["plan"]["limits"].to_string().contains("backfill");
    eventually("the plan is in effect", knows_plan).await;
    let mut client = authenticated(&node, 1).await;
    let first = note(1, "first").sign();
    eventually("the topic is taken in", async || client.publish(&first).await.0).await;
    assert!(client.publish(&first).await.0, "a copy does not count");
    let mut forged = note(1, "forged").sign();
    forged.sig = first.sig;
    assert!(!client.publish(&forged).await.0, "nor does what is refused");
    client.accepted(&note(1, "second").sign()).await;
    let past = json!({ "#t": [TOPIC], "until": now() + 100 });
    assert_eq!(client.request("r", std::slice::from_ref(&past)).await.len(), 2);

    assert_eq!(node.stop(Signal::TERM).await.0.code(), Some(0));
    node.start_again();
    let own = authorization(&node, &control, 1);
    let count = |metric: &str| {
        let (_, me) = node.get_as(&own, "/v1/me");
        let usage = me["usage"].as_array().unwrap().iter().find(|usage| usage["metric"] == metric).cloned();
        usage.unwrap()["count"].as_u64().unwrap()
    };
    assert_eq!((count("relay.ws_event_publishes"), count("relay.ws_backfill_requests")), (2, 1));
    let mut client = authenticated(&node, 1).await;
    client.accepted(&note(1, "third").sign()).await;
    // What was counted before the restart is read with the next write.
    eventually("the count is known", async || count("relay.ws_event_publishes") == 3).await;
    let refused = client.publish(&note(1, "fourth").sign()).await.1;
    assert!(refused.starts_with("restricted: quota exceeded until 2") && refused.ends_with("T00:00:00Z"), "{refused}");
    let refused = loop {
        let (_, end) = client.ask("r", std::slice::from_ref(&past)).await;
        if end[0] == "CLOSED" {
            break end[2].as_str().unwrap().to_owned();
        }
    };
    assert!(refused.starts_with("restricted: quota exceeded until 2"), "{refused}");
    assert_eq!(client.request("s", &[json!({ "#t": [TOPIC] })]).await.len(), 3, "what is new is not limited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_event_is_read_by_its_parties_alone() {
    // E-10
    let node = Node::start_with("required", CONFIGURATION);
    let control = control(&node).await;
    for author in [1, 2, 3] {
        join(&control, &key(author)).await;
        subscribe(&node, &control, author).await;
    }
    let own = [1, 2, 3].map(|author| authorization(&node, &control, author));
    let mut publisher = authenticated(&node, 1).await;
    let open = note(1, "a lantern for all").sign();
    eventually("the topic is taken in", async || publisher.publish(&open).await.0).await;
    let private = draft(1, 4).tag(["t", TOPIC]).tag(["p", &key_of(2)]).content("a lantern for one").sign();
    publisher.accepted(&private).await;
    for (reader, count) in own.iter().zip([2, 2, 1]) {
        for path in [path_of("changes"), path_of("snapshot")] {
            let answer = node.get_as(reader, &path);
            assert_eq!(answer.1["items"].as_array().map(Vec::len), Some(count), "{path}: {answer:?}");
        }
        let found = node.get_as(reader, &search("lantern"));
        assert_eq!(found.1["items"].as_array().map(Vec::len), Some(1), "search has none: {found:?}");
    }
    publisher.accepted(&draft(1, 5).tag(["t", TOPIC]).tag(["e", &private.id.to_string()]).sign()).await;
    for reader in &own {
        let (_, page) = node.get_as(reader, &path_of("changes"));
        let items = page["items"].as_array().unwrap();
        assert_eq!(items.iter().map(|change| &change["op"]).collect::<Vec<_>>(), ["upsert", "upsert"], "{page}");
    }
}

#[tokio::test]
async fn topic_that_an_operator_enables_by_name_is_listed_by_it() {
    // S-8
    let node = Node::start_with("required", "topics.open = false\n");
    let said = node.run(&["topic", "enable", "Green Tea"]).ok();
    let id = said.split(' ').next().unwrap().to_owned();
    assert_eq!(said, format!("{id} is enabled\n"));
    node.run(&["topic", "enable", TOPIC]).ok();
    let listed = || node.get("/v1/topics?q=green").1["items"].clone();
    eventually("the node has read its topics", async || listed() != json!([])).await;
    assert_eq!(listed(), json!([{ "topic_id": id, "name": "Green Tea", "events": 0, "members": 0 }]));
    assert_eq!(node.get("/v1/communities/suggest?q=gre").1["items"], listed());
    assert_eq!(node.get("/v1/topics").1["items"].as_array().unwrap().len(), 1, "a topic without a name is not");
    assert_eq!(node.get("/v1/topics/green%20tea/changes").0, 200);
    node.run(&["topic", "disable", "green tea"]).ok();
    eventually("a disabled topic is not listed", async || listed() == json!([])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_on_one_database_agree_on_members() {
    // S-5, A-6: what an operator does beside one node holds on the other, on open connections too.
    let server = Database::new().await;
    let configuration = format!("store = \"{}\"\n{CONFIGURATION}", server.url());
    let [one, other] = [(); 2].map(|()| Node::start_with("required", &configuration));
    let settings = PostgresSettings { migrate: false };
    let database = kukuri_control::Database::connect_postgres(&server.url(), settings).await.unwrap();
    let control = Control::open(database, Timestamp(now())).await.unwrap();
    join(&control, &key(1)).await;
    let mut client = authenticated(&other, 1).await;
    let refusal = client.publish(&note(1, "too early").sign()).await.1;
    assert!(refusal.starts_with("restricted: "), "{refusal}");
    subscribe(&one, &control, 1).await;
    let sent = note(1, "a lantern").sign();
    eventually("the other node serves the member", async || client.publish(&sent).await.0).await;
    assert_eq!(client.request("live", &[json!({ "#t": [TOPIC] })]).await, [sent.id.to_string()]);

    one.run(&["account", "ban", &key_of(1), "--reason", "spam"]).ok();
    let ended = client.ended().await;
    assert_eq!(ended.code, 1008, "{ended:?}");
    assert!(ended.before.iter().any(|said| said[0] == "NOTICE" && said.to_string().contains("spam")), "{ended:?}");
    one.run(&["account", "unban", &key_of(1)]).ok();
    let is_back = async || {
        let mut client = other.client().await;
        client.authenticate(1, &other.url()).await.0 && client.publish(&note(1, "back").sign()).await.0
    };
    eventually("the ban is lifted on the other node", is_back).await;
}

/// Who keeps each topic that the node takes in.
fn keepers(node: &Node) -> BTreeMap<String, String> {
    let listed = node.run(&["topic", "list", "--json"]).ok();
    let topics = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let enabled = topics.filter(|topic| topic["enabled"] == true);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    enabled.map(|topic| (text(&topic["topic"]), text(&topic["opened_by"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_of_use_and_of_the_operator_outlive_a_restart_and_the_last_subscriber() {
    // S-3, S-7: what follows the members touches topics of members only.
    let mut node = Node::start("required");
    let by_use = kukuri_testing::topic(7);
    let opening = draft(1, 1).tag(["t", &by_use]).content("opens it").sign();
    node.client().await.accepted(&opening).await;
    let by_operator = kukuri_testing::topic(8);
    node.run(&["topic", "enable", &by_operator]).ok();
    {
        let control = control(&node).await;
        join(&control, &key(1)).await;
        subscribe(&node, &control, 1).await;
    }
    let all = [(&by_use, "use"), (&by_operator, "operator"), (&TOPIC.to_owned(), "people")];
    let is_kept = |kept: &BTreeMap<String, String>, (topic, keeper): (&String, &str)| {
        kept.get(topic).is_some_and(|by| by == keeper)
    };
    eventually("the topic of the member is taken in", async || all.iter().all(|one| is_kept(&keepers(&node), *one)))
        .await;
    node.stop(Signal::TERM).await;
    node.start_again();
    let kept = keepers(&node);
    assert!(all.iter().all(|one| is_kept(&kept, *one)), "{kept:?}");

    let control = control(&node).await;
    let topic = TopicId::new_unchecked(TOPIC);
    kukuri_control::subscription::end(control.database(), &key(1), &topic, Timestamp(now())).await.unwrap();
    eventually("the last subscriber has left", async || !keepers(&node).contains_key(TOPIC)).await;
    let kept = keepers(&node);
    assert!(all[..2].iter().all(|one| is_kept(&kept, *one)), "{kept:?}");
}
