//! Accounts over HTTP: signing in, consents, requests for topics. On SQLite.

use axum::{
    body::Body,
    http::{Method, Request},
};
use kukuri_control::{
    account::{self, AccountStatus},
    admission, ban, invite,
    policy::PolicyType,
    request, token,
};
use kukuri_domain::{Timestamp, TopicId, topic::TopicRules};
use kukuri_store::conformance::build::{TOPIC, later};
use serde_json::{Value, json};

use crate::support::{
    Answer, NETWORK_ID, Node, PUBLIC_URL, UPGRADE_URL,
    person::{answer_draft, bearer, event_json, key_of, nostr, now, request_draft},
    set_clock,
};

/// The issuer of tokens.
const ISSUER: &str = "https://node.example";

const ME: &str = "/v1/me";
const REQUESTS: &str = "/v1/topic-subscription-requests";
const SUBSCRIPTIONS: &str = "/v1/topic-subscriptions";
const CONSENTS: &str = "/v1/consents";

impl Node {
    async fn accounts(&self) -> usize {
        account::list(self.control.database(), None, 100).await.unwrap().len()
    }

    async fn requests(&self) -> usize {
        request::list(self.control.database(), None, None, None, 100).await.unwrap().len()
    }

    async fn me(&self, authorization: &str) -> Answer {
        self.call(Method::GET, ME, authorization, &Value::Null).await
    }

    async fn ask_for(&self, authorization: &str, body: Value) -> Answer {
        self.call(Method::POST, REQUESTS, authorization, &body).await
    }

    async fn list(&self, path: &str, authorization: &str) -> Answer {
        self.call(Method::GET, path, authorization, &Value::Null).await
    }

    async fn delete(&self, path: &str, authorization: &str) -> Answer {
        self.call(Method::DELETE, path, authorization, &Value::Null).await
    }

    async fn set_admission(&self, mode: admission::AdmissionMode) {
        let mut transaction = self.control.database().begin().await.unwrap();
        admission::set_mode(&mut transaction, mode, Timestamp(now())).await.unwrap();
        transaction.commit().await.unwrap();
    }

    async fn new_invite(&self, uses: u32) -> String {
        let mut transaction = self.control.database().begin().await.unwrap();
        let (code, _) = invite::create(&mut transaction, uses, None, Timestamp(now())).await.unwrap();
        transaction.commit().await.unwrap();
        code
    }

    async fn set_status(&self, author: u8, status: AccountStatus) {
        let mut transaction = self.control.database().begin().await.unwrap();
        let now = Timestamp(now());
        account::set_status(&mut transaction, &key_of(author), status, None, now).await.unwrap();
        transaction.commit().await.unwrap();
        self.control.refresh(now).await.unwrap();
    }
}

fn topic(number: u8) -> String {
    kukuri_testing::topic(number)
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn person_signs_in_and_out() {
    //
    let node = Node::with_people().await;
    let npub = kukuri_domain::nip19::npub(&key_of(1));
    let made = node.call(Method::POST, "/v1/auth/challenge", "", &json!({ "pubkey": npub })).await.json();
    assert_eq!(made["expires_at"], now() + 300);
    assert_eq!(node.accounts().await, 0, "a challenge makes no account");
    let event = answer_draft(1, made["challenge"].as_str().unwrap()).sign();
    let answer = node.verify(&event).await;
    assert_eq!(answer.headers["cache-control"], "no-store");
    let signed_in = answer.json();
    assert_eq!(signed_in["token_type"], "Bearer");
    assert_eq!(signed_in["expires_at"], now() + 900);
    assert_eq!(signed_in["pubkey"], key_of(1).to_string());
    let authorization = bearer(signed_in["access_token"].as_str().unwrap());
    let me = node.me(&authorization).await;
    assert_eq!(me.headers["cache-control"], "no-store");
    let me = me.json();
    assert_eq!((&me["pubkey"], &me["npub"]), (&json!(key_of(1)), &json!(npub)));
    assert_eq!((&me["status"], &me["created_at"]), (&json!("active"), &json!(now())));
    assert_eq!((&me["plan"]["plan_id"], &me["plan"]["name"]), (&json!("free"), &json!("Free")));
    let of = |list: &Value, metric: &str| {
        list.as_array().unwrap().iter().find(|item| item["metric"] == metric).cloned().unwrap()
    };
    assert_eq!(
        of(&me["plan"]["limits"], "index.search_requests"),
        json!({ "metric": "index.search_requests", "window": "day", "limit": 100 })
    );
    assert_eq!(of(&me["usage"], "max_topics"), json!({ "metric": "max_topics", "count": 0, "limit": 1 }));
    let reset_at = (now() / 86_400 + 1) * 86_400;
    assert_eq!(
        of(&me["usage"], "relay.ws_event_publishes"),
        json!({ "metric": "relay.ws_event_publishes", "count": 0, "reset_at": reset_at })
    );
    // As a string; a second session.
    let event = answer_draft(1, &node.challenge(1).await).sign();
    let body = json!({ "auth_event_json": event_json(&event).to_string() });
    let second = node.call(Method::POST, "/v1/auth/verify", "", &body).await.json();
    let second = bearer(second["access_token"].as_str().unwrap());
    assert_eq!(node.delete("/v1/auth/session", &authorization).await.json(), json!({ "status": "ended" }));
    assert_eq!(node.me(&authorization).await.code(), code(401, "AUTH_FAILED"));
    assert_eq!(node.me(&second).await.status, 200, "the other session goes on");
    set_clock(later(900));
    assert_eq!(node.me(&second).await.code(), code(401, "AUTH_FAILED"), "it has expired");
    assert_eq!(node.accounts().await, 1);
}

#[tokio::test]
async fn answer_that_proves_nothing_signs_nobody_in() {
    //
    let node = Node::with_people().await;
    let challenge = node.challenge(1).await;
    let right = |author| answer_draft(author, &challenge);
    let bare = || kukuri_testing::draft(1, 22242).at(now());
    let mut forged = right(1).sign();
    forged.content = "other".to_owned();
    for (why, event) in [
        ("a challenge nobody made", answer_draft(1, "0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e").sign()),
        ("the challenge of another key", right(2).sign()),
        ("no challenge", bare().tag(["relay", PUBLIC_URL]).sign()),
        ("another relay", bare().tag(["relay", "wss://other.example"]).tag(["challenge", &challenge]).sign()),
        ("too old", right(1).at(now() - 601).sign()),
        ("ahead", right(1).at(now() + 601).sign()),
        ("another kind", kukuri_testing::draft(1, 27235).at(now()).tag(["challenge", &challenge]).sign()),
        ("forged", forged),
    ] {
        let answer = node.verify(&event).await;
        assert_eq!(answer.code(), code(401, "AUTH_FAILED"), "{why}: {answer:?}");
        assert_eq!(answer.headers["www-authenticate"], "Bearer realm=\"kukuri-node\"", "{why}");
    }
    for (why, event) in [("no event", json!({ "kind": 1 })), ("a text", json!("tea")), ("a number", json!(1))] {
        let answer = node.call(Method::POST, "/v1/auth/verify", "", &json!({ "auth_event_json": event })).await;
        assert_eq!(answer.refused_parameter().as_deref(), Some("auth_event_json"), "{why}");
    }
    for (why, body) in [
        ("no key", json!({})),
        ("a short key", json!({ "pubkey": "12" })),
        ("more", json!({ "pubkey": key_of(1), "x": 1 })),
    ] {
        let answer = node.call(Method::POST, "/v1/auth/challenge", "", &body).await;
        assert_eq!(answer.code(), code(400, "INVALID_REQUEST"), "{why}");
    }
    assert_eq!(node.accounts().await, 0);
    let event = right(1).sign();
    assert_eq!(node.verify(&event).await.status, 200, "refused answers did not use the challenge up");
    assert_eq!(node.verify(&event).await.code(), code(401, "AUTH_FAILED"), "an answer counts once");
    let late = answer_draft(1, &node.challenge(1).await).at(now() + 300).sign();
    set_clock(later(300));
    assert_eq!(node.verify(&late).await.code(), code(401, "AUTH_FAILED"), "the challenge has expired");
}

#[tokio::test]
async fn header_that_proves_nothing_is_refused_everywhere() {
    //
    let (node, other) = (Node::with_people().await, Node::with_people().await);
    let (own, foreign) = (node.sign_in(1).await, other.sign_in(1).await);
    let issue = |url: &str, at: u64| {
        bearer(&token::issue(&node.control.secrets(), url, &key_of(1), Timestamp(at)).unwrap().text)
    };
    let path = ME;
    let signed = |draft: kukuri_testing::Draft| nostr(&draft.sign());
    let right = || request_draft(1, "GET", path, b"");
    for (why, authorization) in [
        ("another node's token", foreign),
        ("a token of another URL", issue("wss://other.example", now())),
        ("an expired token", issue(ISSUER, now() - 900)),
        (
            "a token of a key without an account",
            bearer(&token::issue(&node.control.secrets(), ISSUER, &key_of(9), Timestamp(now())).unwrap().text),
        ),
        ("a changed token", format!("{own}A")),
        ("no token", "Bearer".to_owned()),
        ("no scheme", own.replace("Bearer ", "")),
        ("another scheme", "Basic YTpi".to_owned()),
        ("no base64", "Nostr {}".to_owned()),
        ("no event", "Nostr e30=".to_owned()),
        ("too long", format!("Nostr {}", "A".repeat(20_000))),
        ("late", signed(right().at(now() - 61))),
        ("ahead", signed(right().at(now() + 61))),
        ("another method", signed(request_draft(1, "POST", path, b""))),
        ("another path", signed(request_draft(1, "GET", "/v1/you", b""))),
        ("an answer to a challenge", signed(answer_draft(1, "c"))),
    ] {
        for path in [ME, "/v1/policies/current"] {
            // A token without an account is seen only where the account is.
            let answer = node.list(path, &authorization).await;
            assert_eq!(answer.code(), code(401, "AUTH_FAILED"), "{why}, {path}: {answer:?}");
            assert!(answer.headers.contains_key("www-authenticate"), "{why}");
        }
    }
    let none = node.me("").await;
    assert_eq!(none.code(), code(401, "AUTH_REQUIRED"));
    assert_eq!(none.headers["www-authenticate"], "Bearer realm=\"kukuri-node\"");
    let twice = Request::get(ME).header("authorization", &own).header("authorization", &own);
    assert_eq!(node.ask(twice).await.code(), code(401, "AUTH_FAILED"), "two headers");
    assert_eq!(node.me(&own).await.status, 200);
    assert_eq!(node.list("/v1/openapi.json", "Bearer x").await.status, 200, "it is the same for everybody");
    assert_eq!(node.accounts().await, 1);
}

#[tokio::test]
async fn signed_request_is_taken_once_and_with_its_body_only() {
    //
    let node = Node::with_people().await;
    let body = json!({ "topic_id": TOPIC });
    let bytes = body.to_string().into_bytes();
    let right = request_draft(1, "POST", REQUESTS, &bytes).sign();
    for (why, event) in [
        ("no payload", request_draft(1, "POST", REQUESTS, b"").sign()),
        ("another body", request_draft(1, "POST", REQUESTS, b"{}").sign()),
    ] {
        let answer = node.call(Method::POST, REQUESTS, &nostr(&event), &body).await;
        assert_eq!(answer.code(), code(401, "AUTH_FAILED"), "{why}");
    }
    assert_eq!((node.accounts().await, node.requests().await), (0, 0));
    let made = node.call(Method::POST, REQUESTS, &nostr(&right), &body).await;
    assert_eq!(made.status, 200, "an unknown key counts as a first visit: {made:?}");
    assert_eq!((node.accounts().await, node.requests().await), (1, 1));
    let again = node.call(Method::POST, REQUESTS, &nostr(&right), &body).await;
    assert_eq!(again.code(), code(401, "AUTH_FAILED"), "each event counts once");
    assert_eq!(node.call_signed(1, Method::GET, ME, &Value::Null).await.status, 200);
    let path = format!("{REQUESTS}?limit=1");
    assert_eq!(node.call_signed(1, Method::GET, &path, &Value::Null).await.status, 200, "the query is signed, too");
    let answer = node.call_signed(2, Method::GET, "/v1/policies/current", &Value::Null).await;
    assert_eq!((answer.status.as_u16(), node.accounts().await), (200, 1), "what is open makes no account");
    let ended = node.call_signed(1, Method::DELETE, "/v1/auth/session", &Value::Null).await;
    assert_eq!(ended.code(), code(400, "INVALID_REQUEST"), "there is no token");
}

#[tokio::test]
async fn large_body_is_refused_before_it_is_looked_at() {
    // U-4
    let node = Node::with_people().await;
    let body = " ".repeat((256 << 10) + 1).into_bytes();
    let signed = nostr(&request_draft(1, "POST", REQUESTS, &body).sign());
    let own = node.sign_in(1).await;
    for authorization in [signed, own] {
        let request = Request::post(REQUESTS).header("authorization", authorization);
        let request = request.header("content-type", "application/json").body(Body::from(body.clone())).unwrap();
        assert_eq!(node.send_request(request).await.code(), code(413, "PAYLOAD_TOO_LARGE"));
    }
    let long = json!({ "auth_event_json": "x".repeat(1_000), "y".repeat(1_000): 1 });
    let answer = node.call(Method::POST, "/v1/auth/verify", "", &long).await;
    assert!(answer.code().0 == 400 && answer.text.len() < 600, "what was sent is not repeated at length: {answer:?}");
    assert_eq!(node.requests().await, 0);
}

#[tokio::test]
async fn admission_is_by_invite_or_list() {
    //
    let node = Node::with_people().await;
    let old = node.sign_in(1).await;
    node.set_admission(admission::AdmissionMode::Invite).await;
    let event = answer_draft(2, &node.challenge(2).await).sign();
    assert_eq!(node.verify(&event).await.code(), code(403, "INVITE_REQUIRED"));
    assert_eq!(node.call_signed(2, Method::GET, ME, &Value::Null).await.code(), code(403, "INVITE_REQUIRED"));
    let invite = node.new_invite(1).await;
    let verify = async |event, code: &str| {
        let body = json!({ "auth_event_json": event_json(event), "invite_code": code });
        node.call(Method::POST, "/v1/auth/verify", "", &body).await
    };
    assert_eq!(verify(&event, "wrong").await.code(), code(403, "INVITE_INVALID"));
    assert_eq!(verify(&event, &invite).await.status, 200, "refusals used up neither challenge nor invite");
    let redeem = async |author, code: &str| {
        node.call_signed(author, Method::POST, "/v1/invites/redeem", &json!({ "invite_code": code })).await
    };
    assert_eq!(redeem(3, &invite).await.code(), code(403, "INVITE_EXHAUSTED"));
    let invite = node.new_invite(1).await;
    let redeemed = redeem(3, &invite).await;
    assert_eq!(redeemed.json(), json!({ "pubkey": key_of(3), "status": "active" }), "{redeemed:?}");
    assert_eq!(redeem(3, &invite).await.status, 200, "who has an account keeps the invite");
    assert_eq!(node.call_signed(3, Method::GET, ME, &Value::Null).await.status, 200);
    let anonymous = node.call(Method::POST, "/v1/invites/redeem", "", &json!({ "invite_code": "x" })).await;
    assert_eq!(anonymous.code(), code(401, "AUTH_REQUIRED"));
    node.set_admission(admission::AdmissionMode::Allowlist).await;
    assert_eq!(redeem(4, &invite).await.code(), code(403, "NOT_ALLOWLISTED"));
    assert_eq!(node.me(&old).await.status, 200, "an account is never locked out");
    assert_eq!(node.accounts().await, 3);
}

#[tokio::test]
async fn person_who_is_not_served_is_told_why() {
    //
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    node.set_status(1, AccountStatus::Disabled).await;
    assert_eq!(node.me(&own).await.code(), code(403, "ACCOUNT_DISABLED"));
    let event = answer_draft(1, &node.challenge(1).await).sign();
    assert_eq!(node.verify(&event).await.code(), code(403, "ACCOUNT_DISABLED"));
    node.set_status(1, AccountStatus::Active).await;
    assert_eq!(node.me(&own).await.status, 200);
    for (until, expected) in
        [(None, json!({ "reason": "spam" })), (Some(now() + 60), json!({ "reason": "spam", "until": now() + 60 }))]
    {
        let mut transaction = node.control.database().begin().await.unwrap();
        let (secrets, time) = (node.control.secrets(), Timestamp(now()));
        ban::ban(&mut transaction, &secrets, &key_of(1), "spam", until.map(Timestamp), time).await.unwrap();
        transaction.commit().await.unwrap();
        node.control.refresh(time).await.unwrap();
        for answer in [
            node.me(&own).await,
            node.list("/v1/policies/current", &own).await,
            node.call_signed(1, Method::GET, ME, &Value::Null).await,
            node.verify(&event).await,
        ] {
            assert_eq!(answer.code(), code(403, "BANNED"), "{answer:?}");
            assert_eq!(answer.json()["error"]["details"], expected);
        }
    }
    set_clock(later(60));
    assert_eq!(node.me(&own).await.status, 200, "the ban is over");
    node.set_status(1, AccountStatus::Deleting).await;
    assert_eq!(node.me(&own).await.code(), code(410, "ACCOUNT_DELETED"));
    assert_eq!(node.call_signed(1, Method::GET, ME, &Value::Null).await.code(), code(410, "ACCOUNT_DELETED"));
}

#[tokio::test]
async fn policies_are_read_in_the_closest_language_and_drafts_are_not() {
    // L-1, L-3
    let node = Node::with_people().await;
    assert_eq!(node.get("/v1/policies/current").await.json(), json!({ "items": [], "cursor": null }));
    let text = node.publish(PolicyType::Terms, "1", now()).await;
    node.publish(PolicyType::Terms, "2", now() + 100).await;
    node.draft_policy(PolicyType::Privacy, "1").await;
    let current = node.get("/v1/policies/current").await.json();
    let expected = json!({
        "type": "terms", "version": "1", "locale": "en", "title": "Policy", "content_hash": text.content_hash,
        "url": "https://node.example/v1/policies/terms/1?locale=en", "published_at": now(), "effective_at": now(),
    });
    let items = current["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[0]), (2, &expected), "{current}");
    for (asked, locale) in [("", "ja"), ("?locale=en-GB", "en"), ("?locale=fr", "en")] {
        let read = node.get(&format!("/v1/policies/terms/1{asked}")).await.json();
        assert_eq!(read["locale"], locale, "{asked}");
        assert!(read["content_md"].as_str().unwrap().starts_with("# "));
    }
    for (path, expected) in [
        ("terms/2", 200),
        ("terms/3", 404),
        ("privacy/1", 404),
        ("laws/1", 404),
        ("terms/%00", 400),
        ("terms/1?lang=en", 400),
    ] {
        assert_eq!(node.get(&format!("/v1/policies/{path}")).await.status, expected, "{path}");
    }
}

#[tokio::test]
async fn routes_of_members_are_closed_until_the_policies_are_accepted() {
    // L-2, L-3, A-4
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    assert_eq!(node.list(REQUESTS, &own).await.status, 200, "nothing is to be accepted");
    let terms = node.publish(PolicyType::Terms, "1", now()).await;
    node.publish(PolicyType::Rules, "1", now()).await;
    let privacy = node.publish(PolicyType::Privacy, "1", now()).await;
    node.publish(PolicyType::Privacy, "2", now() + 100).await;
    let refused = node.ask_for(&own, json!({ "topic_id": TOPIC })).await;
    assert_eq!(refused.code(), code(428, "CONSENT_REQUIRED"));
    let link = |of: &str, version: &str| json!({ "type": of, "version": version, "url": format!("https://node.example/v1/policies/{of}/{version}") });
    let required = refused.json()["error"]["details"]["required"].clone();
    assert_eq!(required, json!([link("terms", "1"), link("privacy", "1")]));
    for path in [REQUESTS, SUBSCRIPTIONS] {
        assert_eq!(node.list(path, &own).await.code(), code(428, "CONSENT_REQUIRED"), "{path}");
    }
    assert_eq!(node.me(&own).await.status, 200, "free of consent");
    let status = node.list("/v1/consents/status", &own).await.json();
    assert_eq!((&status["accepted"], &status["missing"]), (&json!([]), &required));
    let mut coming = link("privacy", "2");
    coming["effective_at"] = json!(now() + 100);
    assert_eq!(status["coming"], json!([coming]));
    let one = |of: &str, version: &str, hash: &str| json!({ "type": of, "version": version, "content_hash": hash });
    let accept = async |all: Value| node.call(Method::POST, CONSENTS, &own, &json!({ "accept": all })).await;
    let right = one("terms", "1", &terms.content_hash);
    for (why, all, expected) in [
        ("nothing", json!([]), code(400, "INVALID_REQUEST")),
        ("rules", json!([one("rules", "1", &terms.content_hash)]), code(400, "INVALID_REQUEST")),
        ("no hash", json!([one("terms", "1", "tea")]), code(400, "INVALID_REQUEST")),
        ("a malformed version", json!([one("terms", "\0", &terms.content_hash)]), code(400, "INVALID_REQUEST")),
        ("another text", json!([one("terms", "1", &"0".repeat(64))]), code(409, "POLICY_NOT_CURRENT")),
        ("one of two", json!([right, one("terms", "0", &terms.content_hash)]), code(409, "POLICY_NOT_CURRENT")),
    ] {
        assert_eq!(accept(all).await.code(), expected, "{why}");
    }
    let status = accept(json!([right])).await.json();
    assert_eq!(status["accepted"].as_array().unwrap().len(), 1, "the refused ones changed nothing: {status}");
    assert_eq!(status["missing"], json!([link("privacy", "1")]));
    assert_eq!(node.list(REQUESTS, &own).await.code(), code(428, "CONSENT_REQUIRED"));
    let both = json!([one("privacy", "1", &privacy.content_hash), one("privacy", "2", &privacy.content_hash)]);
    let status = accept(both).await.json();
    assert_eq!((&status["missing"], &status["coming"]), (&json!([]), &json!([])));
    assert_eq!(node.list(REQUESTS, &own).await.status, 200);
    assert_eq!(node.list(REQUESTS, "").await.code(), code(401, "AUTH_REQUIRED"), "the account comes first");
}

#[tokio::test]
async fn topic_is_asked_for_listed_and_cancelled() {
    // S-1, S-2, S-6
    let node = Node::with_people().await;
    let (own, others) = (node.sign_in(1).await, node.sign_in(2).await);
    let asked =
        json!({ "topic_name": " 東京 Ramen ", "requested_services": ["index", "index", "relay"], "reason": "hungry" });
    let made = node.ask_for(&own, asked.clone()).await.json();
    let named = TopicId::from_name(NETWORK_ID, "東京 ramen", &TopicRules::default()).unwrap();
    let id = made["request_id"].as_str().unwrap().to_owned();
    let expected = json!({
        "request_id": id, "requester_pubkey": key_of(1), "topic_id": named.as_str(), "topic_name": "東京 Ramen",
        "requested_services": ["relay", "index"], "reason": "hungry", "status": "pending", "created_at": now(),
    });
    assert_eq!(made, expected);
    assert_eq!(node.ask_for(&own, asked).await.json(), expected, "asking again changes nothing");
    let with_id = json!({ "topic_id": named.as_str(), "topic_name": "東京 ramen" });
    assert_eq!(node.ask_for(&own, with_id).await.json()["request_id"], *id);
    set_clock(later(1));
    for number in [2, 3] {
        assert_eq!(node.ask_for(&own, json!({ "topic_id": topic(number) })).await.status, 200);
    }
    let refused = node.ask_for(&own, json!({ "topic_id": topic(4) })).await;
    assert_eq!(refused.code(), code(429, "PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED"));
    let details =
        json!({ "metric": "topic_subscription_requests.pending", "scope": "pubkey", "current": 3, "limit": 3 });
    assert_eq!(refused.json()["error"]["details"], details, "S-4");

    let (mut pages, mut path) = (Vec::new(), format!("{REQUESTS}?limit=2"));
    loop {
        let page = node.list(&path, &own).await.json();
        pages.push(page["items"].as_array().unwrap().len());
        let Some(cursor) = page["cursor"].as_str() else { break };
        path = format!("{REQUESTS}?limit=2&cursor={cursor}");
    }
    assert_eq!(pages, [2, 1]);
    assert_eq!(node.list(REQUESTS, &others).await.json()["items"], json!([]), "of others nothing is shown");

    let path = format!("{REQUESTS}/{id}");
    for answer in [node.list(&path, &others).await, node.delete(&path, &others).await] {
        assert_eq!(answer.code(), code(404, "NOT_FOUND"), "another person's");
    }
    assert_eq!(node.list(&path, &own).await.json(), expected);
    assert_eq!(node.delete(&path, &own).await.json()["status"], "cancelled");
    let again = node.delete(&path, &own).await;
    assert_eq!(again.code(), code(409, "INVALID_STATE"));
    assert_eq!(again.json()["error"]["details"], json!({ "status": "cancelled" }));
    assert_eq!(node.ask_for(&own, json!({ "topic_id": topic(4) })).await.status, 200, "there is room again");
    assert_eq!(node.requests().await, 4);
}

#[tokio::test]
async fn malformed_requests_for_topics_change_nothing() {
    // T-1, S-2, U-1
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    for (why, body, parameter) in [
        ("no topic", json!({}), "topic_id"),
        ("a malformed id", json!({ "topic_id": "kukuri:CATS" }), "topic_id"),
        ("an empty name", json!({ "topic_name": " " }), "topic_name"),
        ("a mistyped id as a name", json!({ "topic_name": "kukuri:cats" }), "topic_name"),
        ("a name of two lines", json!({ "topic_name": "a\nb" }), "topic_name"),
        ("a long name", json!({ "topic_name": "a".repeat(201) }), "topic_name"),
        ("another topic's name", json!({ "topic_id": TOPIC, "topic_name": "cats" }), "topic_name"),
        ("everybody's topic", json!({ "topic_id": "kukuri:global" }), "topic_id"),
        ("a forbidden topic", json!({ "topic_id": format!("kukuri:user:{}", "1".repeat(64)) }), "topic_id"),
        ("a service there is not", json!({ "topic_id": TOPIC, "requested_services": ["tea"] }), "requested_services"),
        ("a service not run here", json!({ "topic_id": TOPIC, "requested_services": ["trust"] }), "requested_services"),
        ("a long reason", json!({ "topic_id": TOPIC, "reason": "a".repeat(1_001) }), "reason"),
    ] {
        let answer = node.ask_for(&own, body).await;
        assert_eq!(answer.refused_parameter().as_deref(), Some(parameter), "{why}");
    }
    for (path, parameter) in [
        (format!("{REQUESTS}?cursor=1.2"), "cursor"),
        (format!("{REQUESTS}?limit=many"), "limit"),
        (format!("{REQUESTS}?who=all"), "who"),
        (format!("{REQUESTS}/%00"), "request_id"),
        (format!("{SUBSCRIPTIONS}?cursor=cats"), "cursor"),
    ] {
        assert_eq!(node.list(&path, &own).await.refused_parameter().as_deref(), Some(parameter), "{path}");
    }
    let answer = node.delete(&format!("{SUBSCRIPTIONS}/kukuri:cats"), &own).await;
    assert_eq!(answer.refused_parameter().as_deref(), Some("topic_id"));
    let unknown = format!("{REQUESTS}/0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e");
    assert_eq!(node.list(&unknown, &own).await.code(), code(404, "NOT_FOUND"));
    assert_eq!(node.requests().await, 0);
}

#[tokio::test]
async fn subscription_is_listed_and_ended() {
    // S-1, S-3, Q-3
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let made = node.ask_for(&own, json!({ "topic_id": topic(7), "requested_services": ["index"] })).await.json();
    let pending = node.ask_for(&own, json!({ "topic_id": topic(8) })).await;
    assert_eq!(pending.status, 200);
    node.approve(made["request_id"].as_str().unwrap()).await;
    let path = format!("{REQUESTS}/{}", made["request_id"].as_str().unwrap());
    let approved = node.list(&path, &own).await.json();
    assert_eq!((&approved["status"], &approved["review_note"]), (&json!("approved"), &json!("welcome")));
    assert_eq!(node.delete(&path, &own).await.code(), code(409, "INVALID_STATE"));
    let refused = node.ask_for(&own, json!({ "topic_id": topic(9) })).await;
    assert_eq!(refused.code(), code(402, "QUOTA_EXCEEDED"));
    assert_eq!(
        refused.json()["error"]["details"],
        json!({ "metric": "max_topics", "current": 1, "limit": 1, "upgrade_url": UPGRADE_URL })
    );
    let has = node.ask_for(&own, json!({ "topic_id": topic(7) })).await.json();
    assert_eq!(has["request_id"], made["request_id"], "the caller has the topic");
    let me = node.me(&own).await.json();
    assert_eq!(me["usage"][0], json!({ "metric": "max_topics", "count": 1, "limit": 1 }));

    let mut expected =
        json!({ "topic_id": topic(7), "services": ["relay", "index"], "status": "active", "started_at": now() });
    let list = node.list(SUBSCRIPTIONS, &own).await.json();
    assert_eq!(list, json!({ "items": [expected], "cursor": null }));
    let after = node.list(&format!("{SUBSCRIPTIONS}?cursor={}", topic(7)), &own).await.json();
    assert_eq!(after, json!({ "items": [], "cursor": null }));
    let path = format!("{SUBSCRIPTIONS}/{}", topic(7));
    set_clock(later(5));
    let service = request::Service::Relay;
    let subscribes = || node.control.people().is_subscribed(&key_of(1), &TopicId::new_unchecked(&topic(7)), service);
    assert!(subscribes());
    assert_eq!(node.delete(&path, &own).await.json(), json!({ "status": "ended" }));
    assert!(!subscribes(), "it counts at once");
    assert_eq!(node.delete(&path, &own).await.code(), code(404, "NOT_FOUND"));
    (expected["status"], expected["ended_at"]) = (json!("ended"), json!(now()));
    assert_eq!(node.list(SUBSCRIPTIONS, &own).await.json()["items"], json!([expected]));
    assert_eq!(node.ask_for(&own, json!({ "topic_id": topic(9) })).await.status, 200, "there is room again");
}

#[tokio::test]
async fn failure_of_the_database_is_503_and_signed_requests_are_not_taken() {
    // A-3, U-1
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    node.control.database().close().await;
    for answer in [
        node.call(Method::POST, "/v1/auth/challenge", "", &json!({ "pubkey": key_of(1) })).await,
        node.call_signed(1, Method::GET, ME, &Value::Null).await,
        node.ask_for(&own, json!({ "topic_id": TOPIC })).await,
        node.delete("/v1/auth/session", &own).await,
    ] {
        assert_eq!(answer.code(), code(503, "CONTROL_UNAVAILABLE"), "{answer:?}");
        assert_eq!(answer.headers["retry-after"], "5");
    }
}

#[tokio::test]
async fn reading_creates_nothing() {
    //
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let revision = async || node.control.refresh(Timestamp(now())).await.unwrap();
    revision().await;
    let topic_request = format!("{REQUESTS}/0b0f6c1e-6a53-4a53-9d0a-0a8f6f8c6c1e");
    for path in [ME, REQUESTS, SUBSCRIPTIONS, "/v1/consents/status", "/v1/policies/current", &topic_request] {
        node.list(path, &own).await;
    }
    assert_eq!(revision().await, kukuri_control::people::Refreshed::Same);
}
