//! Topics by name, and by what happens in them (S-8).

use std::time::Duration;

use axum::http::Method;
use kukuri_control::metric::Metric;
use kukuri_domain::{Event, PublicKey, topic::TopicsMode};
use kukuri_store::conformance::build::{ALICE, BOB, CAROL, Draft, NOW, bare, deletion, later};
use serde_json::{Value, json};

use crate::support::{Node, encoded, set_clock};

const DAY: u64 = 24 * 3_600;

fn names(answer: &Value) -> Vec<&str> {
    let items = answer["items"].as_array().unwrap_or_else(|| panic!("{answer}"));
    items.iter().map(|item| item["name"].as_str().unwrap()).collect()
}

async fn named_node(topics: &[&str]) -> Node {
    let node = Node::with_people().await;
    for name in topics {
        node.name_topic(name).await;
    }
    node
}

#[tokio::test]
async fn topics_are_listed_by_name_if_the_node_takes_them_in() {
    let node = named_node(&["Ramen", "tea", "Green Tea", "Tea_Time", "closed tea"]).await;
    *node.gate.disabled.lock().unwrap() = vec![node.topic_of("closed tea")];
    let list = async |query: &str| node.get(&format!("/v1/topics{query}")).await.json();
    assert_eq!(names(&list("").await), ["Green Tea", "Ramen", "tea", "Tea_Time"]);
    for (words, expected) in [
        ("TEA", vec!["Green Tea", "tea", "Tea_Time"]),
        ("ｇｒｅｅｎ", vec!["Green Tea"]),
        ("a_t", vec!["Tea_Time"]),
        ("%", vec![]),
        ("closed", vec![]),
    ] {
        assert_eq!(names(&list(&format!("?q={}", encoded(words))).await), expected, "{words}");
    }
    let tea = list("?q=ramen").await["items"][0].clone();
    assert_eq!(tea, json!({ "topic_id": node.topic_of("ramen"), "name": "Ramen", "events": 0, "members": 0 }));

    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("?limit=1{cursor}")).await;
        seen.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["Green Tea", "Ramen", "tea", "Tea_Time"], "each once");
}

#[tokio::test]
async fn name_of_an_approved_request_is_listed_with_its_members_and_events() {
    // S-8
    let node = named_node(&[]).await;
    let own = node.sign_in(1).await;
    let body = json!({ "topic_name": " Oolong  Tea " });
    let asked = node.call(Method::POST, "/v1/topic-subscription-requests", &own, &body).await.json();
    assert_eq!(names(&node.get("/v1/topics").await.json()), Vec::<&str>::new(), "not before the operator has agreed");
    node.approve(asked["request_id"].as_str().unwrap()).await;
    let topic = node.topic_of("oolong tea");
    node.send(&[bare(1).tag(["t", &topic]).content("hot").build()]).await;
    let listed = node.get("/v1/topics?q=oolong").await.json();
    assert_eq!(listed["items"], json!([{ "topic_id": topic, "name": "Oolong  Tea", "events": 1, "members": 1 }]));
    let own = node.call(Method::GET, "/v1/topic-subscriptions", &own, &Value::Null).await.json();
    assert_eq!(
        (&own["items"][0]["topic_id"], &own["items"][0]["topic_name"]),
        (&json!(topic), &json!("Oolong  Tea")),
        "U-6"
    );
}

#[tokio::test]
async fn suggestions_begin_with_names_that_begin_with_the_text() {
    let node = named_node(&["a tea", "tea", "Tearoom", "green teapot", "coffee", "closed tea"]).await;
    *node.gate.disabled.lock().unwrap() = vec![node.topic_of("closed tea")];
    let suggest = async |query: &str| node.get(&format!("/v1/communities/suggest?{query}")).await.json();
    assert_eq!(names(&suggest("q=TEA").await), ["tea", "Tearoom", "a tea", "green teapot"]);
    assert_eq!(names(&suggest("q=tea&limit=2").await), ["tea", "Tearoom"]);
    assert_eq!(names(&suggest("q=zzz").await), Vec::<&str>::new());
    assert!(suggest("q=tea").await["cursor"].is_null());
}

fn post(topic: &str, author: PublicKey, number: u64) -> Draft {
    bare(1).tag(["t", topic]).by(author).content(&number.to_string()).at(0)
}

fn reaction(topic: &str, author: PublicKey) -> Event {
    bare(7).tag(["t", topic]).by(author).content("+").at(0).build()
}

/// Lets a minute pass. The database of names answers in real time.
async fn wait_a_minute() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn trending_topics_are_those_of_the_most_people_today() {
    // S-8, T-10
    let node = Node::new(TopicsMode::Required);
    node.name_topic("ramen").await;
    let [crowd, loud, quiet, closed] = ["ramen", "loud", "quiet", "closed"].map(|name| node.topic_of(name));
    *node.gate.disabled.lock().unwrap() = vec![closed.clone()];
    let posts = |topic: &str, author, count| {
        (0..count).map(move |number| post(topic, author, number).build()).collect::<Vec<_>>()
    };
    node.send(&[posts(&crowd, ALICE, 1), posts(&crowd, BOB, 1), vec![reaction(&crowd, CAROL)]].concat()).await;
    node.send(&[posts(&loud, ALICE, 9), posts(&closed, ALICE, 9)].concat()).await;
    let trending = async || node.get("/v1/trending").await.json()["items"].clone();
    let of = |topic: &str, posts: u64, reactions: u64, authors: u64| json!({ "topic_id": topic, "posts": posts, "reactions": reactions, "authors": authors });
    let named = json!({ "topic_id": crowd, "name": "ramen", "posts": 2, "reactions": 1, "authors": 3 });
    assert_eq!(trending().await, json!([named, of(&loud, 9, 0, 1)]));
    assert_eq!(node.get("/v1/trending?limit=1").await.json()["items"], json!([named]));

    // The answer stands for a minute.
    let gone = post(&loud, ALICE, 0).build();
    node.send(&[post(&quiet, BOB, 1).build(), deletion().of(&gone).at(1).build()]).await;
    assert_eq!(trending().await, json!([named, of(&loud, 9, 0, 1)]));
    wait_a_minute().await;
    assert_eq!(
        trending().await,
        json!([named, of(&loud, 8, 0, 1), of(&quiet, 1, 0, 1)]),
        "a deleted post does not count"
    );
    wait_a_minute().await;
    set_clock(later(DAY));
    assert_eq!(trending().await, json!([]), "a day later");
    set_clock(NOW);
}

#[tokio::test]
async fn topics_are_found_by_members_alone_where_the_node_serves_members_only() {
    //
    let node = Node::for_members().await;
    node.name_topic("tea").await;
    for path in ["/v1/topics", "/v1/communities/suggest?q=t", "/v1/trending"] {
        assert_eq!(node.get(path).await.code(), (401, "AUTH_REQUIRED".to_owned()), "{path}");
    }
    let own = node.sign_in(1).await;
    node.set_limit(Metric::TrendingRequests, 1).await;
    for (path, expected) in
        [("/v1/topics", 200), ("/v1/communities/suggest?q=t", 200), ("/v1/trending", 200), ("/v1/trending", 402)]
    {
        let answer = node.call(Method::GET, path, &own, &Value::Null).await;
        assert_eq!(answer.status, expected, "{path}: {answer:?}");
    }
}
