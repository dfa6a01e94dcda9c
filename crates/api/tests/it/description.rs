//! `/v1/openapi.json` against real answers and against docs/api.md (U-2).

use std::{collections::BTreeSet, time::Duration};

use crate::support::{
    Answer, Node, clock,
    person::{answer_draft, event_json, key_of, now},
    set_clock,
};
use axum::http::{Method, Request};
use kukuri_api::{Error, RouteCost};
use kukuri_bootstrap::ListAccess;
use kukuri_control::{
    account::{self, AccountStatus},
    database::sql,
    metric::Metric,
    policy::PolicyType,
};
use kukuri_domain::{
    Timestamp,
    retention::{Keep, Retention},
    topic::TopicsMode,
};
use kukuri_store::{
    conformance::build::{OTHER_TOPIC, TOPIC, article, deletion, later, note},
    port::*,
};
use serde_json::{Value, json};

const SEARCH: &str = "/v1/search";
const CHANGES: &str = "/v1/topics/{topic}/changes";
const SNAPSHOT: &str = "/v1/topics/{topic}/snapshot";
const TOPICS: &str = "/v1/topics";
const SUGGEST: &str = "/v1/communities/suggest";
const TRENDING: &str = "/v1/trending";
const DESCRIPTION: &str = "/v1/openapi.json";
const COMMUNITY_NODE: &str = "/.well-known/kukuri/community-node.json";
const NODES: &str = "/v1/bootstrap/nodes";
const SERVICES: &str = "/v1/bootstrap/topics/{topic}/services";
const CHALLENGE: &str = "/v1/auth/challenge";
const VERIFY: &str = "/v1/auth/verify";
const SESSION: &str = "/v1/auth/session";
const REDEEM: &str = "/v1/invites/redeem";
const ME: &str = "/v1/me";
const POLICIES: &str = "/v1/policies/current";
const POLICY: &str = "/v1/policies/{type}/{version}";
const CONSENT_STATUS: &str = "/v1/consents/status";
const CONSENTS: &str = "/v1/consents";
const REQUESTS: &str = "/v1/topic-subscription-requests";
const REQUEST: &str = "/v1/topic-subscription-requests/{request_id}";
const SUBSCRIPTIONS: &str = "/v1/topic-subscriptions";
const SUBSCRIPTION: &str = "/v1/topic-subscriptions/{topic_id}";

const EXPORTS: &str = "/v1/personal-data-export-requests";
const EXPORT: &str = "/v1/personal-data-export-requests/{export_request_id}";
const DOWNLOAD: &str = "/v1/personal-data-export-requests/{export_request_id}/download";
const DELETIONS: &str = "/v1/personal-data-deletion-requests";
const DELETION: &str = "/v1/personal-data-deletion-requests/{deletion_request_id}";

/// What a route asks of its caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Access {
    Open,
    /// Open, or for members, as the node serves.
    Reader,
    /// Like `Reader`, for the lists of bootstrap.
    ListReader,
    Account,
    Member,
}

use Access::{Account, ListReader, Member, Open, Reader};

/// All operations, with the cost and the access of their routes.
const OPERATIONS: [(Method, &str, RouteCost, Access); 31] = [
    (Method::GET, SEARCH, RouteCost::Search, Reader),
    (Method::GET, CHANGES, RouteCost::Read, Reader),
    (Method::GET, SNAPSHOT, RouteCost::Read, Reader),
    (Method::GET, TOPICS, RouteCost::Read, Reader),
    (Method::GET, SUGGEST, RouteCost::Read, Reader),
    (Method::GET, TRENDING, RouteCost::Read, Reader),
    (Method::GET, DESCRIPTION, RouteCost::Static, Open),
    (Method::GET, COMMUNITY_NODE, RouteCost::Static, Open),
    (Method::GET, NODES, RouteCost::Listing, Open),
    (Method::GET, SERVICES, RouteCost::Listing, ListReader),
    (Method::POST, CHALLENGE, RouteCost::SignIn, Open),
    (Method::POST, VERIFY, RouteCost::SignIn, Open),
    (Method::POST, REDEEM, RouteCost::SignIn, Open),
    (Method::DELETE, SESSION, RouteCost::Control, Account),
    (Method::GET, ME, RouteCost::Control, Account),
    (Method::GET, POLICIES, RouteCost::Control, Open),
    (Method::GET, POLICY, RouteCost::Control, Open),
    (Method::GET, CONSENT_STATUS, RouteCost::Control, Account),
    (Method::POST, CONSENTS, RouteCost::Control, Account),
    (Method::POST, REQUESTS, RouteCost::Control, Member),
    (Method::GET, REQUESTS, RouteCost::Control, Member),
    (Method::GET, REQUEST, RouteCost::Control, Member),
    (Method::DELETE, REQUEST, RouteCost::Control, Member),
    (Method::GET, SUBSCRIPTIONS, RouteCost::Control, Member),
    (Method::DELETE, SUBSCRIPTION, RouteCost::Control, Account),
    (Method::POST, EXPORTS, RouteCost::SignIn, Account),
    (Method::GET, EXPORTS, RouteCost::Control, Account),
    (Method::GET, EXPORT, RouteCost::Control, Account),
    (Method::GET, DOWNLOAD, RouteCost::Control, Open),
    (Method::POST, DELETIONS, RouteCost::SignIn, Account),
    (Method::GET, DELETION, RouteCost::Control, Open),
];

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
        "boolean" => value.is_boolean(),
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
    const ID: &str = "0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e";
    path.replace("{topic}", TOPIC)
        .replace("{topic_id}", TOPIC)
        .replace("{request_id}", ID)
        .replace("{export_request_id}", ID)
        .replace("{deletion_request_id}", ID)
        .replace("{type}/{version}", "terms/1")
}

/// An answer, with the method and the path as described.
type Answered = (Method, &'static str, Answer);

/// Answers with every status that the API has.
async fn answers() -> Vec<Answered> {
    let mut answers = answers_about_events().await;
    answers.extend(answers_about_people().await);
    answers.extend(answers_to_members().await);
    let node = Node::new(TopicsMode::Required);
    for (method, path, cost, _) in OPERATIONS {
        if cost != RouteCost::Static {
            answers.push((method.clone(), path, node.call(method, &at(path), "Bearer x", &Value::Null).await));
        }
    }
    for refusal in [Error::AddressDenied, Error::RateLimited { retry_after_seconds: 7 }] {
        *node.gate.refusal.lock().unwrap() = Some(refusal);
        for (method, path, ..) in OPERATIONS {
            answers.push((method.clone(), path, node.call(method, &at(path), "", &Value::Null).await));
        }
    }
    answers
}

async fn answers_about_events() -> Vec<Answered> {
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
        (CHANGES, node.get("/v1/topics/kukuri:cats/changes").await),
        (CHANGES, node.get(&format!("{}?after=99", at(CHANGES))).await),
        (CHANGES, away.get(&at(CHANGES)).await),
        (SNAPSHOT, node.get(&format!("{}?limit=1", at(SNAPSHOT))).await),
        (SNAPSHOT, node.get("/v1/topics/kukuri:cats/snapshot").await),
        (SNAPSHOT, node.get(&format!("{}?cursor=0000000000000000.1.1", at(SNAPSHOT))).await),
        (SNAPSHOT, away.get(&at(SNAPSHOT)).await),
        (DESCRIPTION, node.get(DESCRIPTION).await),
        (COMMUNITY_NODE, node.get(COMMUNITY_NODE).await),
        (NODES, node.get(NODES).await),
        (NODES, away.get(NODES).await),
        (SERVICES, node.get(&at(SERVICES)).await),
        (SERVICES, node.get("/v1/bootstrap/topics/kukuri:x/services").await),
        (SERVICES, away.get(&at(SERVICES)).await),
        (TOPICS, node.get(TOPICS).await),
        (TOPICS, node.get(&format!("{TOPICS}?cursor=x")).await),
        (TOPICS, away.get(TOPICS).await),
        (SUGGEST, node.get(&format!("{SUGGEST}?q=tea")).await),
        (SUGGEST, node.get(SUGGEST).await),
        (SUGGEST, away.get(&format!("{SUGGEST}?q=tea")).await),
        (TRENDING, node.get(TRENDING).await),
        (TRENDING, node.get(&format!("{TRENDING}?limit=x")).await),
        (TRENDING, away.get(TRENDING).await),
    ];
    for path in [COMMUNITY_NODE, NODES, SERVICES] {
        answers.push((path, node.ask(Request::get(at(path)).header("if-none-match", "*")).await));
    }
    set_clock(later(60));
    let retention = Retention { outbox: Keep::For(Duration::from_secs(1)), ..Retention::default() };
    node.store.purge(&retention, clock()).await.unwrap();
    answers.push((CHANGES, node.get(&at(CHANGES)).await));
    answers.into_iter().map(|(path, answer)| (Method::GET, path, answer)).collect()
}

async fn answers_about_people() -> Vec<Answered> {
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    let (node, none) = (Node::with_people().await, Value::Null);
    let own = node.sign_in(1).await;
    let mut answers = Vec::new();
    let mut add = |method: &Method, path, answer: Answer| answers.push((method.clone(), path, answer));

    let key = json!({ "pubkey": key_of(1) });
    for body in [&key, &json!({})] {
        add(&post, CHALLENGE, node.call(post.clone(), CHALLENGE, "", body).await);
    }
    let event = event_json(&answer_draft(1, &node.challenge(1).await).sign());
    let signed = json!({ "auth_event_json": event });
    for body in [&signed, &signed, &json!({})] {
        add(&post, VERIFY, node.call(post.clone(), VERIFY, "", body).await);
    }
    for body in [json!({ "invite_code": "x" }), json!({})] {
        add(&post, REDEEM, node.call(post.clone(), REDEEM, &own, &body).await);
    }
    add(&get, ME, node.call(get.clone(), ME, &own, &none).await);
    add(&get, CONSENT_STATUS, node.call(get.clone(), CONSENT_STATUS, &own, &none).await);

    let text = node.publish(PolicyType::Terms, "1", now()).await;
    node.publish(PolicyType::Privacy, "1", now() + 100).await;
    add(&get, POLICIES, node.get(POLICIES).await);
    for path in ["/v1/policies/terms/1", "/v1/policies/terms/9", "/v1/policies/terms/1?lang=ja"] {
        add(&get, POLICY, node.get(path).await);
    }
    *node.gate.members_topics.lock().unwrap() = Some(Vec::new());
    node.configure(|profile| profile.access = ListAccess::MembersFrom(clock()));
    for (method, path, _, access) in OPERATIONS {
        if matches!(access, Member | Reader | ListReader) {
            add(&method, path, node.call(method.clone(), &at(path), &own, &none).await);
        }
    }
    *node.gate.members_topics.lock().unwrap() = None;
    let accept = |hash: &str| json!({ "accept": [{ "type": "terms", "version": "1", "content_hash": hash }] });
    for body in [accept(&text.content_hash), accept(&"0".repeat(64)), json!({})] {
        add(&post, CONSENTS, node.call(post.clone(), CONSENTS, &own, &body).await);
    }
    add(&get, CONSENT_STATUS, node.call(get.clone(), CONSENT_STATUS, &own, &none).await);

    let body = json!({ "topic_name": "tea", "reason": "thirst" });
    let made = node.call(post.clone(), REQUESTS, &own, &body).await;
    let path = format!("{REQUESTS}/{}", made.json()["request_id"].as_str().unwrap());
    add(&post, REQUESTS, made);
    add(&post, REQUESTS, node.call(post.clone(), REQUESTS, &own, &json!({})).await);
    for query in ["", "?limit=x"] {
        add(&get, REQUESTS, node.call(get.clone(), &format!("{REQUESTS}{query}"), &own, &none).await);
    }
    for method in [&get, &delete, &delete] {
        add(method, REQUEST, node.call(method.clone(), &path, &own, &none).await);
        add(method, REQUEST, node.call(method.clone(), &at(REQUEST), &own, &none).await);
        add(method, REQUEST, node.call(method.clone(), &format!("{REQUESTS}/x"), &own, &none).await);
    }
    let body = json!({ "topic_id": TOPIC });
    let made = node.call(post.clone(), REQUESTS, &own, &body).await;
    node.approve(made.json()["request_id"].as_str().unwrap()).await;
    add(&post, REQUESTS, node.call(post.clone(), REQUESTS, &own, &json!({ "topic_name": "coffee" })).await);
    for query in ["", "?limit=x"] {
        add(&get, SUBSCRIPTIONS, node.call(get.clone(), &format!("{SUBSCRIPTIONS}{query}"), &own, &none).await);
    }
    for path in [at(SUBSCRIPTION), at(SUBSCRIPTION), format!("{SUBSCRIPTIONS}/kukuri:cats")] {
        add(&delete, SUBSCRIPTION, node.call(delete.clone(), &path, &own, &none).await);
    }
    add(&get, SUBSCRIPTIONS, node.call(get.clone(), SUBSCRIPTIONS, &own, &none).await);
    add(&delete, SESSION, node.call_signed(1, delete.clone(), SESSION, &none).await);
    add(&delete, SESSION, node.call(delete.clone(), SESSION, &own, &none).await);
    answers.extend(answers_about_personal_data().await);
    answers.extend(answers_of_a_deleted_account().await);
    answers.extend(answers_without_a_database().await);
    answers
}

async fn answers_about_personal_data() -> Vec<Answered> {
    let (get, post) = (Method::GET, Method::POST);
    let (node, none) = (Node::with_people().await, Value::Null);
    let own = node.sign_in(1).await;
    let mut answers = Vec::new();
    let mut add = |method: &Method, path, answer: Answer| answers.push((method.clone(), path, answer));
    let made = node.call(post.clone(), EXPORTS, &own, &none).await;
    let path = format!("{EXPORTS}/{}", made.json()["export_request_id"].as_str().unwrap());
    let download = format!("{path}/download?token={}", made.json()["download_token"].as_str().unwrap());
    add(&post, EXPORTS, made);
    add(&post, EXPORTS, node.call(post.clone(), EXPORTS, &own, &none).await);
    add(&get, DOWNLOAD, node.get(&download).await);
    node.work().await;
    for query in ["", "?limit=x"] {
        add(&get, EXPORTS, node.call(get.clone(), &format!("{EXPORTS}{query}"), &own, &none).await);
    }
    for path in [path, at(EXPORT), format!("{EXPORTS}/x")] {
        add(&get, EXPORT, node.call(get.clone(), &path, &own, &none).await);
    }
    for path in [at(DOWNLOAD), format!("{}?token=x", at(DOWNLOAD)), download.clone(), download] {
        add(&get, DOWNLOAD, node.get(&path).await);
    }
    let made = node.call(post.clone(), DELETIONS, &own, &json!({ "include_events": true })).await;
    let path = format!("{DELETIONS}/{}", made.json()["deletion_request_id"].as_str().unwrap());
    let receipt = format!("{path}?token={}", made.json()["receipt_token"].as_str().unwrap());
    add(&post, DELETIONS, made);
    add(&post, DELETIONS, node.call_signed(2, post.clone(), DELETIONS, &json!({ "include_events": 1 })).await);
    node.work().await;
    for path in [receipt, format!("{path}?token=x"), path] {
        add(&get, DELETION, node.get(&path).await);
    }
    answers
}

/// Answers to members where the node serves nobody else.
async fn answers_to_members() -> Vec<Answered> {
    let node = Node::for_members().await;
    let own = node.sign_in(1).await;
    let mut answers = Vec::new();
    let none = Value::Null;
    for limit in [None, Some(0)] {
        if let Some(limit) = limit {
            node.set_limit(Metric::SearchRequests, limit).await;
            node.set_limit(Metric::TrendingRequests, limit).await;
        }
        let question = format!("{SEARCH}?topic={OTHER_TOPIC}&q=tea");
        for (path, asked) in [(SEARCH, question.as_str()), (TRENDING, TRENDING)] {
            answers.push((Method::GET, path, node.call(Method::GET, asked, &own, &none).await));
        }
    }
    node.name_topic("tea").await;
    node.send(&[note("tea").tag(["t", &node.topic_of("tea")]).build()]).await;
    for (path, asked) in [(TOPICS, TOPICS), (SUGGEST, "/v1/communities/suggest?q=t")] {
        let answer = node.call(Method::GET, asked, &own, &none).await;
        assert_eq!(answer.json()["items"][0]["name"], "tea", "{answer:?}");
        answers.push((Method::GET, path, answer));
    }
    // A key of another request.
    for (path, bodies) in [
        (CONSENTS, [json!({ "accept": [] }), json!({})]),
        (REQUESTS, [json!({ "topic_name": "tea" }), json!({ "topic_name": "milk" })]),
    ] {
        for body in bodies {
            answers.push((Method::POST, path, node.post_once(path, &own, path, &body).await));
        }
    }
    answers
}

async fn answers_of_a_deleted_account() -> Vec<Answered> {
    let node = Node::for_members().await;
    node.configure(|profile| profile.access = ListAccess::MembersFrom(clock()));
    let own = node.sign_in(1).await;
    let event = event_json(&answer_draft(1, &node.challenge(1).await).sign());
    let mut transaction = node.control.database().begin().await.unwrap();
    let (status, time) = (AccountStatus::Deleting, Timestamp(now()));
    account::set_status(&mut transaction, &key_of(1), status, None, time).await.unwrap();
    transaction.commit().await.unwrap();
    node.control.refresh(time).await.unwrap();
    let signed = json!({ "auth_event_json": event });
    let mut answers = vec![(Method::POST, VERIFY, node.call(Method::POST, VERIFY, "", &signed).await)];
    for (method, path, _, access) in OPERATIONS {
        if access != Open || path == REDEEM {
            answers.push((method.clone(), path, node.call(method, &at(path), &own, &Value::Null).await));
        }
    }
    answers
}

async fn answers_without_a_database() -> Vec<Answered> {
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let event = event_json(&answer_draft(1, &node.challenge(1).await).sign());
    for table in [
        "cn_admin.policy_texts",
        "cn_user.policy_consents",
        "cn_user.topic_subscription_requests",
        "cn_user.topic_subscriptions",
        "cn_user.personal_data_export_requests",
        "cn_user.personal_data_deletion_requests",
    ] {
        node.control.database().change(sql(format!("DROP TABLE {table}"))).await.unwrap();
    }
    // Changes are not possible any more.
    node.control.database().close().await;
    let consents = json!({ "accept": [{ "type": "terms", "version": "1", "content_hash": "0".repeat(64) }] });
    let mut answers = Vec::new();
    for (method, path, cost, _) in OPERATIONS {
        let body = match (&method, path) {
            (_, CHALLENGE) => json!({ "pubkey": key_of(1) }),
            (_, VERIFY) => json!({ "auth_event_json": event }),
            (_, REDEEM) => json!({ "invite_code": "x" }),
            (_, CONSENTS) => consents.clone(),
            (&Method::POST, REQUESTS) => json!({ "topic_id": TOPIC }),
            (_, DELETIONS) => json!({}),
            _ => Value::Null,
        };
        if matches!(cost, RouteCost::Control | RouteCost::SignIn) {
            let query = if [DOWNLOAD, DELETION].contains(&path) { "?token=x" } else { "" };
            let answer = node.call(method.clone(), &format!("{}{query}", at(path)), &own, &body).await;
            assert_eq!(answer.status, 503, "{method} {path}: {answer:?}");
            answers.push((method, path, answer));
        }
    }
    answers
}

fn described<'d>(document: &'d Value, method: &Method, path: &str) -> &'d Value {
    &document["paths"][path][method.as_str().to_lowercase()]
}

/// All operations of the description, as method and path.
fn described_operations(document: &Value) -> BTreeSet<(String, String)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let of_path = |(path, item): (&String, &Value)| -> Vec<(String, String)> {
        item.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())).collect()
    };
    paths.flat_map(of_path).collect()
}

#[tokio::test]
async fn answers_have_exactly_the_described_statuses_and_schemas() {
    let document = document().await;
    let mut seen = BTreeSet::new();
    for (method, path, answer) in answers().await {
        let status = answer.status.as_str();
        let described = &described(&document, &method, path)["responses"][status];
        assert!(described.is_object(), "{method} {path} {status} is not described: {answer:?}");
        seen.insert((method.to_string(), path.to_owned(), status.to_owned()));
        if let Some(schema) = described["content"]["application/json"].get("schema") {
            check(&document, schema, &answer.json()).unwrap_or_else(|why| panic!("{method} {path} {status}: {why}"));
        }
    }
    let mut all = BTreeSet::new();
    for (method, path) in described_operations(&document) {
        let operation = &document["paths"][&path][method.to_lowercase()];
        let statuses = operation["responses"].as_object().unwrap().keys().filter(|status| *status != "default");
        all.extend(statuses.map(|status| (method.clone(), path.clone(), status.clone())));
    }
    assert_eq!(seen.difference(&all).collect::<Vec<_>>(), Vec::<&(String, String, String)>::new());
    assert_eq!(
        all.difference(&seen).collect::<Vec<_>>(),
        Vec::<&(String, String, String)>::new(),
        "no answer has these"
    );
}

#[tokio::test]
async fn description_names_the_access_of_every_operation() {
    //
    let document = document().await;
    let operations: BTreeSet<_> =
        OPERATIONS.map(|(method, path, ..)| (method.to_string(), path.to_owned())).into_iter().collect();
    assert_eq!(described_operations(&document), operations);
    let node = Node::new(TopicsMode::Required);
    for (method, path, _, access) in OPERATIONS {
        let operation = described(&document, &method, path);
        assert_eq!(operation.get("security").is_some(), access != Open, "{method} {path}");
        let has_consent = matches!(access, Member | Reader | ListReader);
        assert_eq!(operation["responses"].get("428").is_some(), has_consent, "{method} {path}");
        let answer = node.call(method.clone(), &at(path), "", &Value::Null).await;
        let is_closed = answer.code() == (401, "AUTH_REQUIRED".to_owned());
        assert_eq!(is_closed, matches!(access, Account | Member) || path == REDEEM, "{method} {path}: {answer:?}");
    }
    *node.gate.members_topics.lock().unwrap() = Some(Vec::new());
    node.configure(|profile| profile.access = ListAccess::MembersFrom(clock()));
    let for_members = |access| matches!(access, Reader | ListReader);
    for (method, path, ..) in OPERATIONS.into_iter().filter(|(.., access)| for_members(*access)) {
        let answer = node.call(method, &at(path), "", &Value::Null).await;
        assert_eq!(answer.code(), (401, "AUTH_REQUIRED".to_owned()), "{path}");
    }
    for scheme in ["bearer", "nostr"] {
        assert!(document["components"]["securitySchemes"][scheme].is_object(), "{scheme}");
    }
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

/// The names of the query parameters of an operation.
fn parameters(document: &Value, method: &Method, path: &str) -> Vec<String> {
    let all = described(document, method, path)["parameters"].as_array();
    let of_query = all.into_iter().flatten().filter(|parameter| parameter["in"] == "query");
    of_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
}

/// The names of the fields of the body that an operation takes.
fn body_fields(document: &Value, method: &Method, path: &str) -> Vec<String> {
    let body = &described(document, method, path)["requestBody"]["content"]["application/json"]["schema"];
    let Some(name) = body["$ref"].as_str() else { return Vec::new() };
    let schema = document.pointer(name.trim_start_matches('#')).unwrap();
    schema["properties"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn exactly_the_described_parameters_are_accepted() {
    let document = document().await;
    let (node, people) = (Node::searching(TopicsMode::Global), Node::with_people().await);
    let own = people.sign_in(1).await;
    for (method, path, _, access) in OPERATIONS.into_iter().filter(|(method, ..)| method == Method::GET) {
        let parameters = parameters(&document, &method, path);
        if parameters.is_empty() {
            continue;
        }
        let is_open = matches!(access, Open | Reader | ListReader);
        let (node, own) = if is_open { (&node, "") } else { (&people, own.as_str()) };
        // The message lists the parameters that the handler accepts.
        let answer = node.call(method.clone(), &format!("{}?unknown=1", at(path)), own, &Value::Null).await.json();
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("there are {}", parameters.join(", "))), "{message}");
        // An empty value is malformed for each.
        for parameter in parameters {
            let rest = if path == SEARCH && parameter != "q" { "&q=tea" } else { "" };
            let path = format!("{}?{parameter}={rest}", at(path));
            assert_eq!(node.call(method.clone(), &path, own, &Value::Null).await.status, 400, "{path} {parameter}");
        }
    }
}

#[tokio::test]
async fn unknown_fields_of_bodies_are_refused() {
    // U-1
    let document = document().await;
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let posts = OPERATIONS.into_iter().filter(|(method, ..)| method == Method::POST);
    for (method, path, ..) in posts {
        // One takes no body.
        if path == EXPORTS {
            continue;
        }
        assert!(!body_fields(&document, &method, path).is_empty(), "{path}");
        let answer = node.call(method, path, &own, &json!({ "unknown": 1 })).await;
        assert_eq!(answer.code(), (400, "INVALID_REQUEST".to_owned()), "{path}");
        assert!(answer.text.contains("unknown field"), "{path}: {answer:?}");
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
    let mut operations = BTreeSet::new();
    for section in docs.split("\n## ").flat_map(|section| section.split("\n### ")) {
        let (heading, text) = section.split_once('\n').unwrap();
        let of_heading = quoted(heading).filter_map(|quoted| quoted.split_once(" /"));
        let of_heading: Vec<(Method, String)> =
            of_heading.map(|(method, path)| (method.parse().unwrap(), format!("/{path}"))).collect();
        if of_heading.is_empty() {
            continue;
        }
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let documented: BTreeSet<String> =
            rows.flat_map(|row| quoted(row.split(" |").next().unwrap())).map(str::to_owned).collect();
        let of_operation = |(method, path): &(Method, String)| {
            [parameters(&document, method, path), body_fields(&document, method, path)].concat()
        };
        let described: BTreeSet<String> = of_heading.iter().flat_map(of_operation).collect();
        assert_eq!(documented, described, "{heading}");
        operations.extend(of_heading.into_iter().map(|(method, path)| (method.to_string(), path)));
    }
    assert_eq!(operations, described_operations(&document));

    let (_, errors) = docs.split_once("\n## Errors").unwrap();
    let rows = errors.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | `"));
    let codes: Vec<(&str, &str)> = rows.map(|(status, rest)| (status, rest.split('`').next().unwrap())).collect();
    let described = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    let documented: Vec<&str> = codes.iter().map(|(_, code)| *code).collect();
    assert_eq!(documented, described.iter().map(|code| code.as_str().unwrap()).collect::<Vec<_>>());
    for (_, path, answer) in answers().await {
        let (status, code) = answer.code();
        let is_documented = codes.contains(&(status.to_string().as_str(), code.as_str()));
        assert!(matches!(status, 200 | 304) || is_documented, "{path} {status} {code}");
    }
}

#[tokio::test]
async fn every_route_asks_the_gate_with_its_cost_and_passes_on_retry_after() {
    // W-4, U-3
    let node = Node::searching(TopicsMode::Required);
    *node.gate.refusal.lock().unwrap() = Some(Error::RateLimited { retry_after_seconds: 7 });
    for (method, path, ..) in OPERATIONS {
        // The gate comes before everything else: nothing is said about unknown parameters, or about credentials.
        let answer = node.call(method, &format!("{}?unknown=1", at(path)), "Bearer x", &Value::Null).await;
        assert_eq!(answer.code(), (429, "RATE_LIMITED".to_owned()));
        assert_eq!(answer.headers["retry-after"], "7");
    }
    assert_eq!(node.stream(TOPIC, 0).await.err().unwrap().status, 429, "streams too");
    let costs = std::mem::take(&mut *node.gate.costs.lock().unwrap());
    let expected: Vec<RouteCost> =
        OPERATIONS.map(|(_, _, cost, _)| cost).into_iter().chain([RouteCost::Read]).collect();
    assert_eq!(costs, expected);
}
