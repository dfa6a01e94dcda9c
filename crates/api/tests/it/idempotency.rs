//! `Idempotency-Key`.

use axum::http::{Method, Request};
use kukuri_control::{
    idempotency::{self, ABANDONED_AFTER, ANSWER_TTL, RepeatableRequest},
    metric::Metric,
    request,
};
use kukuri_domain::Timestamp;
use kukuri_store::conformance::build::{TOPIC, later};
use serde_json::{Value, json};

use crate::support::{
    Node,
    person::{key_of, now},
    set_clock,
};

const REQUESTS: &str = "/v1/topic-subscription-requests";
const CONSENTS: &str = "/v1/consents";

impl Node {
    async fn all_requests(&self) -> usize {
        request::list(self.control.database(), None, None, None, 100).await.unwrap().len()
    }
}

fn conflict(code: &str) -> (u16, String) {
    (409, code.to_owned())
}

#[tokio::test]
async fn same_request_with_the_same_key_gets_the_same_answer_and_does_nothing_again() {
    let node = Node::with_people().await;
    let [own, other] = [node.sign_in(1).await, node.sign_in(2).await];
    let body = json!({ "topic_id": TOPIC });
    let first = node.post_once("k1", &own, REQUESTS, &body).await;
    assert_eq!(first.status, 200, "{first:?}");
    let path = format!("{REQUESTS}/{}", first.json()["request_id"].as_str().unwrap());
    assert_eq!(node.call(Method::DELETE, &path, &own, &Value::Null).await.status, 200);
    let again = node.post_once("k1", &own, REQUESTS, &body).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text), "though it was cancelled since");
    assert_eq!(
        (first.headers.get("idempotency-replayed"), &again.headers["idempotency-replayed"]),
        (None, &"true".parse().unwrap())
    );
    assert_eq!(again.headers["content-type"], "application/json");
    assert_eq!(node.all_requests().await, 1);

    assert_eq!(
        node.post_once("k1", &own, REQUESTS, &json!({ "topic_name": "tea" })).await.code(),
        conflict("IDEMPOTENCY_KEY_REUSED")
    );
    assert_eq!(
        node.post_once("k1", &own, CONSENTS, &body).await.code(),
        conflict("IDEMPOTENCY_KEY_REUSED"),
        "another path"
    );
    assert_eq!(node.post_once("k1", &other, REQUESTS, &body).await.status, 200, "another person's key");
    assert_eq!(node.post_once("k2", &own, REQUESTS, &body).await.status, 200);
    assert_eq!(node.all_requests().await, 3);
    set_clock(later(ANSWER_TTL));
    let own = node.sign_in(1).await;
    let late = node.post_once("k1", &own, REQUESTS, &json!({ "topic_name": "tea" })).await;
    assert_eq!(late.status, 200, "a day later: {late:?}");
}

#[tokio::test]
async fn refusals_are_kept_and_failures_are_not() {
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let malformed = node.post_once("k1", &own, REQUESTS, &json!({ "topic_id": "kukuri:x" })).await;
    let again = node.post_once("k1", &own, REQUESTS, &json!({ "topic_id": "kukuri:x" })).await;
    assert_eq!((malformed.status.as_u16(), &malformed.text), (400, &again.text), "with the request id of the first");

    node.set_limit(Metric::MaxTopics, 0).await;
    let body = json!({ "topic_id": TOPIC });
    let refused = node.post_once("k2", &own, REQUESTS, &body).await;
    assert_eq!(refused.code(), (402, "QUOTA_EXCEEDED".to_owned()));
    assert_eq!(node.post_once("k2", &own, REQUESTS, &body).await.text, refused.text);
    node.set_limit(Metric::MaxTopics, 9).await;

    for number in 0..3 {
        let body = json!({ "topic_name": format!("topic {number}") });
        assert_eq!(node.post_once(&format!("n{number}"), &own, REQUESTS, &body).await.status, 200);
    }
    let too_many = json!({ "topic_name": "one more" });
    assert_eq!(node.post_once("k3", &own, REQUESTS, &too_many).await.status, 429);
    let first = node.call(Method::GET, REQUESTS, &own, &Value::Null).await.json()["items"][0]["request_id"].clone();
    let path = format!("{REQUESTS}/{}", first.as_str().unwrap());
    assert_eq!(node.call(Method::DELETE, &path, &own, &Value::Null).await.status, 200);
    assert_eq!(node.post_once("k3", &own, REQUESTS, &too_many).await.status, 200, "429 is not final");
}

#[tokio::test]
async fn request_that_is_being_worked_on_is_not_worked_on_twice() {
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let body = json!({ "topic_id": TOPIC });
    // As if this node, or another, had begun with it.
    let content = sha256(&format!("POST {REQUESTS}\n{body}"));
    let begun = RepeatableRequest { person: key_of(1), key: "k1".to_owned(), content_hash: content };
    let database = node.control.database();
    assert_eq!(idempotency::begin(database, &begun, Timestamp(now())).await.unwrap(), idempotency::Begun::New);
    let refused = node.post_once("k1", &own, REQUESTS, &body).await;
    assert_eq!(
        (refused.code(), refused.headers["retry-after"].as_bytes()),
        (conflict("REQUEST_IN_PROGRESS"), &b"1"[..])
    );
    set_clock(later(ABANDONED_AFTER));
    assert_eq!(node.post_once("k1", &own, REQUESTS, &body).await.status, 200, "its process must have ended");
}

fn sha256(text: &str) -> String {
    use sha2::Digest;
    data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(text))
}

#[tokio::test]
async fn malformed_keys_are_refused_and_keys_of_other_methods_ignored() {
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    for key in ["", &"x".repeat(201), "é"] {
        let answer = node.post_once(key, &own, REQUESTS, &json!({ "topic_id": TOPIC })).await;
        assert_eq!(answer.refused_parameter().as_deref(), Some("Idempotency-Key"), "{key}");
    }
    let read = Request::get("/v1/me").header("authorization", &own).header("idempotency-key", "");
    assert_eq!(node.ask(read).await.status, 200);
    let answer = node.post_once("k", "", REQUESTS, &json!({ "topic_id": TOPIC })).await;
    assert_eq!(answer.code(), (401, "AUTH_REQUIRED".to_owned()), "the caller comes first");
}
