//! `/v1/openapi.json` against real answers and against docs/api.md (U-2).

use std::{collections::BTreeSet, time::Duration};

use crate::support::{Answer, Node, clock, set_clock};
use kukuri_api::{Error, RouteCost};
use kukuri_domain::{
    retention::{Keep, Retention},
    topic::TopicsMode,
};
use kukuri_store::{
    conformance::build::{TOPIC, article, deletion, later, note},
    port::*,
};
use serde_json::Value;

const SEARCH: &str = "/v1/search";
const CHANGES: &str = "/v1/topics/{topic}/changes";
const SNAPSHOT: &str = "/v1/topics/{topic}/snapshot";
const DESCRIPTION: &str = "/v1/openapi.json";

async fn document() -> Value {
    Node::new(TopicsMode::Required).get(DESCRIPTION).await.json()
}

/// Compares a value with a schema; the error says where they differ.
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
    // Without properties, any object will do.
    let is_described = schema.get("properties").is_some();
    for (name, field) in value.as_object().into_iter().flatten().filter(|_| is_described) {
        let schema = schema["properties"].get(name).ok_or_else(|| format!("{name} is not described"))?;
        check(document, schema, field).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

fn at(path: &str) -> String {
    path.replace("{topic}", TOPIC)
}

/// Answers with every status that the API has, by path.
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
        (SNAPSHOT, node.get(&format!("{}?cursor=0000000000000000.1.1", at(SNAPSHOT))).await),
        (SNAPSHOT, away.get(&at(SNAPSHOT)).await),
        (DESCRIPTION, node.get(DESCRIPTION).await),
    ];
    for refusal in [Error::AuthRequired, Error::AddressDenied, Error::RateLimited { retry_after_seconds: 7 }] {
        *node.gate.refusal.lock().unwrap() = Some(refusal);
        for path in [SEARCH, CHANGES, SNAPSHOT, DESCRIPTION] {
            answers.push((path, node.get(&at(path)).await));
        }
    }
    *node.gate.refusal.lock().unwrap() = None;
    set_clock(later(60));
    let retention = Retention { outbox: Keep::For(Duration::from_secs(1)), ..Retention::default() };
    node.store.purge(&retention, clock()).await.unwrap();
    answers.push((CHANGES, node.get(&at(CHANGES)).await));
    answers
}

#[tokio::test]
async fn answers_have_exactly_the_described_statuses_and_schemas() {
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
        let statuses = methods["get"]["responses"].as_object().unwrap().keys();
        described.extend(statuses.filter(|status| *status != "default").map(|status| (path.clone(), status.clone())));
    }
    assert_eq!(seen, described);
}

#[tokio::test(start_paused = true)]
async fn stream_data_has_the_described_schema() {
    let document = document().await;
    let node = Node::new(TopicsMode::Required);
    let first = note("first").build();
    let both = [first.clone(), article("a", "old").at(1).build(), article("a", "new").at(2).build()];
    node.send(&both).await;
    let schema = &document["paths"][CHANGES]["get"]["responses"]["200"]["content"]["text/event-stream"]["schema"];
    let mut stream = node.stream(TOPIC, 0).await.unwrap();
    let mut changes = 0;
    for message in stream.next().await.unwrap() {
        let Some(change) = message.data else { continue };
        check(&document, schema, &change).unwrap_or_else(|why| panic!("{why}"));
        changes += 1;
    }
    assert_eq!(changes, 3, "a note, and one version of the article with the delete of the other");
}

/// The names of the query parameters of a path.
fn parameters(document: &Value, path: &str) -> Vec<String> {
    let all = document["paths"][path]["get"]["parameters"].as_array();
    let of_query = all.into_iter().flatten().filter(|parameter| parameter["in"] == "query");
    of_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn exactly_the_described_parameters_are_accepted() {
    let document = document().await;
    let node = Node::searching(TopicsMode::Global);
    for (path, parameters) in [SEARCH, CHANGES, SNAPSHOT].map(|path| (path, parameters(&document, path))) {
        // The message lists the parameters that the handler accepts.
        let answer = node.get(&format!("{}?unknown=1", at(path))).await.json();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("there are {}", parameters.join(", "))), "{message}");
        // An empty value is malformed for each.
        for parameter in parameters {
            let rest = if path == SEARCH && parameter != "q" { "&q=tea" } else { "" };
            let answer = node.get(&format!("{}?{parameter}={rest}", at(path))).await;
            assert_eq!(answer.status, 400, "{path} {parameter}");
        }
    }
}

/// The texts in backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[tokio::test]
async fn the_documentation_lists_the_described_paths_parameters_and_codes() {
    let document = document().await;
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md")).unwrap();
    let mut paths = BTreeSet::new();
    for section in docs.split("\n## ") {
        let (heading, text) = section.split_once('\n').unwrap();
        let Some(path) = quoted(heading).find_map(|quoted| quoted.strip_prefix("GET ")) else { continue };
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let documented: BTreeSet<&str> = rows.flat_map(|row| quoted(row.split(" |").next().unwrap())).collect();
        let described = parameters(&document, path);
        assert_eq!(documented, described.iter().map(String::as_str).collect(), "{path}");
        paths.insert(path.to_owned());
    }
    assert_eq!(paths, document["paths"].as_object().unwrap().keys().cloned().collect());

    let (_, errors) = docs.split_once("\n## Errors").unwrap();
    let rows = errors.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let codes: Vec<(&str, &str)> = rows.map(|(status, rest)| (status, rest.split('`').next().unwrap())).collect();
    let described = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    let documented: Vec<&str> = codes.iter().map(|(_, code)| *code).collect();
    assert_eq!(documented, described.iter().map(|code| code.as_str().unwrap()).collect::<Vec<_>>());
    for (path, answer) in answers().await {
        let (status, code) = answer.code();
        let is_documented = codes.contains(&(status.to_string().as_str(), code.as_str()));
        assert!(status == 200 || is_documented, "{path} {status} {code}");
    }
}

#[tokio::test]
async fn every_route_asks_the_gate_with_its_cost_and_passes_on_retry_after() {
    // W-4, U-3
    let node = Node::searching(TopicsMode::Required);
    *node.gate.refusal.lock().unwrap() = Some(Error::RateLimited { retry_after_seconds: 7 });
    for path in [SEARCH, CHANGES, SNAPSHOT, DESCRIPTION] {
        // The gate comes before input: nothing is said about the unknown parameter.
        let answer = node.get(&format!("{}?unknown=1", at(path))).await;
        assert_eq!(answer.code(), (429, "RATE_LIMITED".to_owned()));
        assert_eq!(answer.headers["retry-after"], "7");
    }
    assert_eq!(node.stream(TOPIC, 0).await.err().unwrap().status, 429, "streams too");
    let costs = std::mem::take(&mut *node.gate.costs.lock().unwrap());
    let [search, read, fixed] = [RouteCost::Search, RouteCost::Read, RouteCost::Static];
    assert_eq!(costs, [search, read, read, fixed, read]);
}
