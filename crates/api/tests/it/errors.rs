//! The error body, and the request id in it (U-1).

use crate::support::Node;
use axum::http::Request;
use kukuri_domain::topic::TopicsMode;
use kukuri_store::conformance::build::TOPIC;

#[tokio::test]
async fn every_error_has_the_same_body() {
    let node = Node::new(TopicsMode::Required);
    let failing = Node::new(TopicsMode::Required);
    failing.lose_store();
    let changes = format!("/v1/topics/{TOPIC}/changes");
    for (answer, status, code) in [
        (node.get("/v1/unknown").await, 404, "NOT_FOUND"),
        (node.get("/v1/").await, 404, "NOT_FOUND"),
        (node.get("/v1/topics/kukuri:global").await, 404, "NOT_FOUND"),
        (node.ask(Request::post("/v1/unknown")).await, 404, "NOT_FOUND"),
        (node.ask(Request::delete(&changes)).await, 405, "METHOD_NOT_ALLOWED"),
        (node.get("/v1/topics/kukuri:cats/changes").await, 400, "INVALID_REQUEST"),
        (node.get("/v1/topics/%FF/changes").await, 400, "INVALID_REQUEST"),
        (node.get(&format!("{changes}?after=99")).await, 410, "GONE"),
        (failing.get(&changes).await, 503, "STORE_UNAVAILABLE"),
    ] {
        assert_eq!(answer.code(), (status, code.to_owned()), "{answer:?}");
        assert_eq!(answer.headers["content-type"], "application/json");
        let body = answer.json();
        let error = body["error"].as_object().unwrap();
        assert_eq!(error["request_id"], answer.headers["x-request-id"].to_str().unwrap());
        assert!(error["message"].as_str().unwrap().len() > 10, "{answer:?}");
        let known = ["code", "message", "details", "request_id"];
        assert!(error.keys().all(|key| known.contains(&key.as_str())) && body.as_object().unwrap().len() == 1);
    }
}

#[tokio::test]
async fn request_id_is_echoed_if_it_is_short_and_plain_and_replaced_otherwise() {
    let node = Node::new(TopicsMode::Required);
    let long = "a".repeat(65);
    for (sent, is_echoed) in
        [("abc-DEF_1.2", true), (&long[..64], true), (&long, false), ("a b", false), ("a\"b", false), ("", false)]
    {
        for path in ["/v1/openapi.json", "/v1/unknown"] {
            let answer = node.ask(Request::get(path).header("x-request-id", sent)).await;
            let echoed = answer.headers["x-request-id"].to_str().unwrap();
            assert_eq!(echoed == sent, is_echoed, "{sent}");
            assert!(!echoed.is_empty());
        }
    }
    let [first, second] = [node.get("/v1/openapi.json").await, node.get("/v1/openapi.json").await];
    assert_ne!(first.headers["x-request-id"], second.headers["x-request-id"], "each request has its own");
}

#[tokio::test]
async fn auth_required_names_the_scheme() {
    //
    let node = Node::new(TopicsMode::Required);
    *node.gate.members_topics.lock().unwrap() = Some(Vec::new());
    let answer = node.get(&format!("/v1/topics/{TOPIC}/changes")).await;
    assert_eq!(answer.code(), (401, "AUTH_REQUIRED".to_owned()));
    assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"kukuri-node\"");
    assert_eq!(node.get("/v1/openapi.json").await.status, 200, "the description is open to everybody");
}
