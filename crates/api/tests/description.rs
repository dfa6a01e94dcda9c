//! The description says what the routes answer, all of it and nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{collections::BTreeSet, time::Duration};

use kukuri_api::{Act, Refused};
use kukuri_domain::{
    retention::{Keep, Retention},
    topic::TopicsMode,
};
use kukuri_store::{
    Store,
    conformance::build::{TOPIC, article, deletion, later, note},
};
use serde_json::Value;
use support::{Answer, Node, clock, set_clock};

const SEARCH: &str = "/v1/search";
const CHANGES: &str = "/v1/topics/{id}/changes";
const SNAPSHOT: &str = "/v1/topics/{id}/snapshot";
const DESCRIPTION: &str = "/v1/openapi.json";

async fn document() -> Value {
    Node::new(TopicsMode::Required).get(DESCRIPTION).await.json()
}

/// Whether a value is as a schema says; where it is not.
fn check(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let schema = document.pointer(name.trim_start_matches('#')).ok_or_else(|| format!("no schema {name}"))?;
        return check(document, schema, value).map_err(|why| format!("{name}: {why}"));
    }
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other}"),
    };
    let fits = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is),
        kind => is(kind),
    };
    if !fits || schema.get("enum").is_some_and(|texts| !texts.as_array().unwrap().contains(value)) {
        return Err(format!("{value} is not {schema}"));
    }
    for item in value.as_array().into_iter().flatten() {
        check(document, &schema["items"], item)?;
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        value.get(name.as_str().unwrap()).ok_or_else(|| format!("{name} is missing"))?;
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let schema = schema["properties"].get(name).ok_or_else(|| format!("{name} is not described"))?;
        check(document, schema, field).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

fn at(path: &str) -> String {
    path.replace("{id}", TOPIC)
}

/// Answers of every sort, by the path that was asked.
async fn answers() -> Vec<(&'static str, Answer)> {
    let node = Node::searching(TopicsMode::Required);
    let found = note("green tea").build();
    node.send(std::slice::from_ref(&found)).await;
    node.index(std::slice::from_ref(&found)).await;
    node.send(&[note("new tea").build(), article("a", "x").build(), deletion().of(&found).build()]).await;
    let away = Node::searching(TopicsMode::Required);
    away.lose_store();
    let question = format!("{SEARCH}?topic={TOPIC}&q=tea&limit=1");
    let mut answers = vec![
        (SEARCH, node.get(&question).await),
        (SEARCH, node.get(SEARCH).await),
        (SEARCH, away.get(&question).await),
        (CHANGES, node.get(&at(CHANGES)).await),
        (CHANGES, node.get(&format!("{}?after=x", at(CHANGES))).await),
        (CHANGES, node.get("/v1/topics/cats/changes").await),
        (CHANGES, node.get(&format!("{}?after=99", at(CHANGES))).await),
        (CHANGES, away.get(&at(CHANGES)).await),
        (SNAPSHOT, node.get(&format!("{}?limit=1", at(SNAPSHOT))).await),
        (SNAPSHOT, node.get("/v1/topics/cats/snapshot").await),
        (SNAPSHOT, away.get(&at(SNAPSHOT)).await),
        (DESCRIPTION, node.get(DESCRIPTION).await),
    ];
    for refused in [Refused::AuthRequired, Refused::Denied, Refused::TooFast { seconds: 7 }] {
        *node.gate.refused.lock().unwrap() = Some(refused);
        for path in [SEARCH, CHANGES, SNAPSHOT] {
            answers.push((path, node.get(&at(path)).await));
        }
    }
    *node.gate.refused.lock().unwrap() = None;
    set_clock(later(60));
    let retention = Retention { outbox: Keep::For(Duration::from_secs(1)), ..Retention::default() };
    node.store.purge(&retention, clock()).await.unwrap();
    answers.push((CHANGES, node.get(&at(CHANGES)).await));
    answers
}

#[tokio::test]
async fn every_status_that_is_described_is_answered_as_described_and_no_other() {
    let document = document().await;
    let mut seen = BTreeSet::new();
    for (path, answer) in answers().await {
        let status = answer.status.as_str();
        let described = &document["paths"][path]["get"]["responses"][status];
        assert!(described.is_object(), "{path} {status} is not described");
        seen.insert((path.to_owned(), status.to_owned()));
        if let Some(schema) = described["content"]["application/json"].get("schema") {
            check(&document, schema, &answer.json()).unwrap_or_else(|why| panic!("{path} {status}: {why}"));
        }
    }
    let mut described = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for status in methods["get"]["responses"].as_object().unwrap().keys() {
            described.insert((path.clone(), status.clone()));
        }
    }
    assert_eq!(seen, described);
}

#[tokio::test(start_paused = true)]
async fn a_stream_tells_changes_as_described() {
    let document = document().await;
    let node = Node::new(TopicsMode::Required);
    let first = note("first").build();
    let both = [first.clone(), article("a", "old").at(1).build(), article("a", "new").at(2).build()];
    node.send(&both).await;
    let schema = &document["paths"][CHANGES]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"];
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    let mut told = 0;
    for message in stream.next().await.unwrap() {
        let Some(change) = message.data else { continue };
        check(&document, schema, &change).unwrap_or_else(|why| panic!("{why}"));
        told += 1;
    }
    assert_eq!(told, 3, "one upsert of two versions, and the delete of the other");
}

/// The names of the query parameters of a path.
fn parameters(document: &Value, path: &str) -> Vec<String> {
    let all = document["paths"][path]["get"]["parameters"].as_array().unwrap();
    let of_query = all.iter().filter(|parameter| parameter["in"] == "query");
    of_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_parameter_that_is_read_is_described_and_every_one_described_is_read() {
    let document = document().await;
    let node = Node::searching(TopicsMode::Global);
    for (path, parameters) in [SEARCH, CHANGES, SNAPSHOT].map(|path| (path, parameters(&document, path))) {
        // A path says itself what it knows.
        let answer = node.get(&format!("{}?unknown=1", at(path))).await.json();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("there are {}", parameters.join(", "))), "{message}");
        // And does something with each: an empty value is none of what they may be.
        for parameter in parameters {
            let rest = if path == SEARCH && parameter != "q" { "&q=tea" } else { "" };
            let answer = node.get(&format!("{}?{parameter}={rest}", at(path))).await;
            assert_eq!(answer.status, 400, "{path} {parameter}");
        }
    }
}

#[tokio::test]
async fn each_request_is_counted_as_what_it_is_and_told_when_to_come_again() {
    // W-4
    let node = Node::searching(TopicsMode::Required);
    *node.gate.refused.lock().unwrap() = Some(Refused::TooFast { seconds: 7 });
    for path in [SEARCH, CHANGES, SNAPSHOT] {
        let answer = node.get(&at(path)).await;
        assert_eq!(answer.code(), (429, "RATE_LIMITED".to_owned()));
        assert_eq!(answer.headers["retry-after"], "7");
    }
    assert_eq!(node.stream(TOPIC, 0).await.err().unwrap().status, 429, "streams too");
    let asked = std::mem::take(&mut *node.gate.asked.lock().unwrap());
    assert_eq!(asked, [Act::Search, Act::Follow, Act::Snapshot, Act::Follow]);
}
