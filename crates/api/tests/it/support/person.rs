//! A person who uses the API: signs in, signs requests, sends them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::{
    body::Body,
    http::{Method, Request},
};
use data_encoding::{BASE64, HEXLOWER};
use kukuri_control::{
    metric::Metric,
    plan,
    policy::{self, PolicyText, PolicyType, PolicyVersion},
    request::{self, RequestLimits},
    topic_name,
};
use kukuri_domain::{Event, PublicKey, Timestamp, TopicId, topic::TopicRules};
use kukuri_testing::{Draft, draft};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, NETWORK_ID, Node, PUBLIC_URL, clock};

/// Makes events of the same second different.
static NONCE: AtomicU64 = AtomicU64::new(0);

/// The time of the test in seconds.
pub(crate) fn now() -> u64 {
    clock().seconds().0
}

/// The public key of an author of tests.
pub(crate) fn key_of(author: u8) -> PublicKey {
    PublicKey::from_hex(kukuri_testing::key_of(author)).unwrap()
}

/// The answer to a challenge, to be changed and signed.
pub(crate) fn answer_draft(author: u8, challenge: &str) -> Draft {
    draft(author, 22242).at(now()).tag(["relay", PUBLIC_URL]).tag(["challenge", challenge])
}

/// A signature of a request, to be changed and signed.
pub(crate) fn request_draft(author: u8, method: &str, path: &str, body: &[u8]) -> Draft {
    let url = format!("https://node.example{path}");
    let signed = draft(author, 27235).at(now()).tag(["u", &url]).tag(["method", method]);
    if body.is_empty() { signed } else { signed.tag(["payload", &HEXLOWER.encode(&Sha256::digest(body))]) }
}

/// The value of `Authorization` of a signed request.
pub(crate) fn nostr(event: &Event) -> String {
    format!("Nostr {}", BASE64.encode(&event.to_json()))
}

/// The value of `Authorization` of a token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

pub(crate) fn event_json(event: &Event) -> Value {
    serde_json::from_slice(&event.to_json()).unwrap()
}

impl Node {
    /// Sends a request with this `Authorization`, unless it is empty, and this body, unless it is null.
    pub(crate) async fn call(&self, method: Method, path: &str, authorization: &str, body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !authorization.is_empty() {
            request = request.header("authorization", authorization);
        }
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        self.send_request(request.body(Body::from(body)).unwrap()).await
    }

    /// Sends a request signed by an author, by an event that was not used before.
    pub(crate) async fn call_signed(&self, author: u8, method: Method, path: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let nonce = NONCE.fetch_add(1, Relaxed).to_string();
        let event = request_draft(author, method.as_str(), path, &bytes).tag(["nonce", &nonce]).sign();
        self.call(method, path, &nostr(&event), body).await
    }

    pub(crate) async fn challenge(&self, author: u8) -> String {
        let body = json!({ "pubkey": key_of(author) });
        let answer = self.call(Method::POST, "/v1/auth/challenge", "", &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["challenge"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn verify(&self, event: &Event) -> Answer {
        let body = json!({ "auth_event_json": event_json(event) });
        self.call(Method::POST, "/v1/auth/verify", "", &body).await
    }

    /// Signs an author in. Returns the `Authorization` of its requests.
    pub(crate) async fn sign_in(&self, author: u8) -> String {
        let challenge = self.challenge(author).await;
        let answer = self.verify(&answer_draft(author, &challenge).sign()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        bearer(answer.json()["access_token"].as_str().unwrap())
    }

    /// Approves a request for a topic.
    pub(crate) async fn approve(&self, id: &str) {
        let mut transaction = self.control.database().begin().await.unwrap();
        let (secrets, limits) = (self.control.secrets(), RequestLimits::default());
        request::approve(&mut transaction, &secrets, id, Some("welcome"), "command", limits, Timestamp(now()))
            .await
            .unwrap();
        transaction.commit().await.unwrap();
        self.control.refresh(Timestamp(now())).await.unwrap();
    }

    /// Asks for a topic with the search in it, or without, and approves that.
    pub(crate) async fn subscribe(&self, authorization: &str, topic: &str, services: &[&str]) {
        let body = json!({ "topic_id": topic, "requested_services": services });
        let asked = self.call(Method::POST, "/v1/topic-subscription-requests", authorization, &body).await;
        assert_eq!(asked.status, 200, "{asked:?}");
        self.approve(asked.json()["request_id"].as_str().unwrap()).await;
    }

    /// Sets a limit of the free plan.
    pub(crate) async fn set_limit(&self, metric: Metric, limit: u64) {
        let mut transaction = self.control.database().begin().await.unwrap();
        plan::set_limit(&mut transaction, plan::FREE, metric, Some(limit), Timestamp(now())).await.unwrap();
        transaction.commit().await.unwrap();
        self.control.refresh(Timestamp(now())).await.unwrap();
    }

    /// The topic of a name.
    pub(crate) fn topic_of(&self, name: &str) -> String {
        TopicId::from_name(NETWORK_ID, name, &TopicRules::default()).unwrap().to_string()
    }

    /// Keeps the name of a topic, as an operator's command does.
    pub(crate) async fn name_topic(&self, name: &str) {
        let topic = TopicId::from_name(NETWORK_ID, name, &TopicRules::default()).unwrap();
        topic_name::keep(self.control.database(), &topic, name).await.unwrap();
    }

    /// Sends a POST with an `Idempotency-Key`.
    pub(crate) async fn post_once(&self, key: &str, authorization: &str, path: &str, body: &Value) -> Answer {
        let mut request = Request::post(path).header("content-type", "application/json").header("idempotency-key", key);
        if !authorization.is_empty() {
            request = request.header("authorization", authorization);
        }
        self.send_request(request.body(Body::from(body.to_string())).unwrap()).await
    }

    /// Publishes a policy in Japanese and English, in effect from a time on.
    pub(crate) async fn publish(&self, of: PolicyType, version: &str, effective_at: u64) -> PolicyText {
        let text = self.draft_policy(of, version).await;
        let mut transaction = self.control.database().begin().await.unwrap();
        let (effective_at, now) = (Some(Timestamp(effective_at)), Timestamp(now()));
        policy::publish(&mut transaction, &text.of, effective_at, now).await.unwrap();
        transaction.commit().await.unwrap();
        self.control.refresh(now).await.unwrap();
        text
    }

    /// Drafts a policy in Japanese and English. Returns the English text.
    pub(crate) async fn draft_policy(&self, of: PolicyType, version: &str) -> PolicyText {
        let of = PolicyVersion::new(of, version).unwrap();
        let mut transaction = self.control.database().begin().await.unwrap();
        policy::draft(&mut transaction, &of, "ja", "# 規約\nお茶", Timestamp(now())).await.unwrap();
        let text = policy::draft(&mut transaction, &of, "en", "# Policy\ntea", Timestamp(now())).await.unwrap();
        transaction.commit().await.unwrap();
        text
    }
}
