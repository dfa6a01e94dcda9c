//! Export and deletion of personal data over HTTP (N-1, N-2).

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use axum::{
    body::to_bytes,
    http::{Method, Request},
};
use kukuri_control::{
    account::{self, AccountStatus},
    ban,
    job::{
        JobError,
        worker::{Handler, Worker, WorkerSettings},
    },
    personal_data::{
        EventCursor, EventPage, PersonEvents,
        deletion::{self, DeletionHandler},
        deletion_list::DeletionList,
        export::{self, ExportHandler},
    },
    policy::PolicyType,
};
use kukuri_domain::{Filter, PublicKey, Timestamp, Viewer};
use kukuri_store::{
    Query,
    conformance::build::{TOPIC, note},
    port::*,
};
use kukuri_testing::draft;
use serde_json::{Value, json};

use crate::support::{
    Node, clock,
    person::{key_of, now},
};

const ME: &str = "/v1/me";
const EXPORTS: &str = "/v1/personal-data-export-requests";
const DELETIONS: &str = "/v1/personal-data-deletion-requests";

/// The events of the node's store, on one page.
struct StoredEvents(Arc<dyn Store>);

#[async_trait]
impl PersonEvents for StoredEvents {
    async fn page(&self, author: &PublicKey, _: EventCursor) -> Result<EventPage, JobError> {
        let query = Query::of(Filter::new().with_authors([*author]), Viewer::Node, clock());
        let found = self.0.query(&query).await.map_err(|error| JobError::Events(error.into()))?;
        Ok(EventPage { events: found.events.iter().map(|event| event.json.to_vec()).collect(), next: None })
    }

    async fn vanish(&self, author: &PublicKey, until: Timestamp) -> Result<(), JobError> {
        let done = self.0.leave_vanish_mark(author, until, clock()).await;
        done.map(drop).map_err(|error| JobError::Events(error.into()))
    }
}

impl Node {
    /// Runs all jobs that are due.
    pub(crate) async fn work(&self) {
        let directory = tempfile::tempdir().unwrap();
        let (control, events) = (Arc::clone(&self.control), Arc::new(StoredEvents(Arc::clone(&self.store) as _)));
        let list = DeletionList::new(directory.path().join("deletions.log"));
        let handlers: [(&'static str, Arc<dyn Handler>); 2] = [
            (export::KIND, Arc::new(ExportHandler { control: Arc::clone(&control), events: events.clone() })),
            (deletion::KIND, Arc::new(DeletionHandler { control: Arc::clone(&control), events, list })),
        ];
        let time = Arc::new(|| clock().seconds());
        let worker = Worker::new(control.database().clone(), handlers, WorkerSettings::default(), time);
        while worker.run_one().await.unwrap() {}
    }

    async fn post(&self, path: &str, authorization: &str, body: &Value) -> Value {
        let answer = self.call(Method::POST, path, authorization, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// The archive, and the headers that come with it.
    async fn download(&self, path: &str) -> (axum::http::HeaderMap, Vec<u8>) {
        let response = self.respond(Request::get(path)).await;
        assert_eq!(response.status(), 200);
        let headers = response.headers().clone();
        (headers, to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
    }
}

fn text<'v>(object: &'v Value, field: &str) -> &'v str {
    object[field].as_str().unwrap_or_else(|| panic!("{field}: {object}"))
}

#[tokio::test]
async fn export_is_made_and_downloaded_once() {
    // N-1
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let other = node.sign_in(2).await;
    let in_topic = |author, kind| draft(author, kind).tag(["t", TOPIC]).at(now());
    let message = in_topic(1, 4).tag(["p", &key_of(2).to_string()]).sign();
    node.send(&[in_topic(1, 1).sign(), message, in_topic(2, 1).sign()]).await;
    let made = node.post(EXPORTS, &own, &Value::Null).await;
    assert_eq!((text(&made, "status"), made.get("download_expires_at")), ("queued", None));
    let (id, token) = (text(&made, "export_request_id"), text(&made, "download_token"));
    let (path, download) = (format!("{EXPORTS}/{id}"), format!("{EXPORTS}/{id}/download?token={token}"));
    assert_eq!(node.get(&download).await.code(), (409, "INVALID_STATE".to_owned()));
    let again = node.call(Method::POST, EXPORTS, &own, &Value::Null).await;
    assert_eq!(again.code(), (429, "EXPORT_LIMIT_REACHED".to_owned()));
    assert_eq!(again.headers["retry-after"], "60");
    node.work().await;

    let answer = node.call(Method::GET, &path, &own, &Value::Null).await.json();
    assert_eq!((text(&answer, "status"), answer.get("download_token")), ("completed", None));
    assert_eq!(answer["download_expires_at"], now() + 24 * 3_600);
    assert_eq!(node.call(Method::GET, &path, &other, &Value::Null).await.code().0, 404, "another person's");
    let wrong = node.get(&format!("{path}/download?token={}", "0".repeat(64))).await;
    assert_eq!(wrong.code(), (404, "NOT_FOUND".to_owned()));
    let look = node.call(Method::HEAD, &download, "", &Value::Null).await;
    assert_eq!(look.status, 405, "a look does not use up the token");
    let (headers, archive) = node.download(&download).await;
    assert_eq!(headers["content-type"], "application/zip");
    assert_eq!(headers["content-length"], archive.len().to_string());
    assert_eq!(headers["cache-control"], "no-store");
    assert!(headers["content-disposition"].to_str().unwrap().starts_with("attachment"), "{headers:?}");
    assert_eq!((answer["bytes"].as_u64(), &archive[..4]), (Some(archive.len() as u64), &b"PK\x03\x04"[..]));
    assert_eq!(node.get(&download).await.code(), (410, "DOWNLOAD_EXPIRED".to_owned()));
    let part = export::read_part(node.control.database(), id, 0).await.unwrap();
    assert_eq!(part, None, "nothing of it is left");

    let listed = node.call(Method::GET, &format!("{EXPORTS}?limit=1"), &own, &Value::Null).await.json();
    assert_eq!((listed["items"][0]["export_request_id"].as_str(), &listed["cursor"]), (Some(id), &Value::Null));
    assert_eq!(node.call(Method::GET, EXPORTS, &other, &Value::Null).await.json()["items"], json!([]));
}

#[tokio::test]
async fn account_is_deleted_and_the_receipt_tells() {
    // N-2
    let node = Node::with_people().await;
    let own = node.sign_in(1).await;
    let (mine, others) = (draft(1, 1).tag(["t", TOPIC]).at(now() - 10).sign(), note("stays").build());
    node.send(&[mine.clone(), others.clone()]).await;
    let made = node.post(DELETIONS, &own, &json!({ "include_events": true })).await;
    let receipt = format!("{DELETIONS}/{}?token={}", text(&made, "deletion_request_id"), text(&made, "receipt_token"));
    for authorization in [own.as_str(), ""] {
        let expected = if authorization.is_empty() { (401, "AUTH_REQUIRED") } else { (401, "AUTH_FAILED") };
        let answer = node.call(Method::GET, ME, authorization, &Value::Null).await.code();
        assert_eq!((answer.0, answer.1.as_str()), expected, "the token is dead at once");
    }
    for path in [ME, EXPORTS] {
        let answer = node.call_signed(1, Method::GET, path, &Value::Null).await;
        assert_eq!(answer.code(), (410, "ACCOUNT_DELETED".to_owned()));
    }
    for authorization in ["", own.as_str(), "Bearer x"] {
        let found = node.call(Method::GET, &receipt, authorization, &Value::Null).await.json();
        assert_eq!(text(&found, "status"), "queued", "the receipt is enough, whatever the credentials are");
    }
    node.work().await;
    let done = node.get(&receipt).await.json();
    assert_eq!((text(&done, "status"), &done["include_events"]), ("completed", &json!(true)));
    assert!(done["completed_at"].is_u64() && done.get("receipt_token").is_none(), "{done}");
    let left = node.store.get(&[mine.id, others.id], clock()).await.unwrap();
    assert_eq!(left.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    let again = node.call_signed(1, Method::GET, ME, &Value::Null).await;
    assert_eq!(again.status, 200, "the same key may register anew: {again:?}");
}

#[tokio::test]
async fn own_data_is_within_reach_of_who_is_not_served() {
    // N-2, L-3
    let node = Node::with_people().await;
    node.publish(PolicyType::Terms, "1", now()).await;
    for author in [1, 2, 3] {
        node.sign_in(author).await;
    }
    let mut transaction = node.control.database().begin().await.unwrap();
    let (secrets, time) = (node.control.secrets(), Timestamp(now()));
    account::set_status(&mut transaction, &key_of(1), AccountStatus::Disabled, None, time).await.unwrap();
    ban::ban(&mut transaction, &secrets, &key_of(2), "spam", None, time).await.unwrap();
    ban::ban(&mut transaction, &secrets, &key_of(4), "spam", None, time).await.unwrap();
    transaction.commit().await.unwrap();
    node.control.refresh(time).await.unwrap();
    let mut refusals = BTreeSet::new();
    for author in [1, 2, 3] {
        let elsewhere = node.call_signed(author, Method::GET, "/v1/topic-subscription-requests", &Value::Null).await;
        refusals.insert(elsewhere.code().1);
        assert_eq!(node.call_signed(author, Method::POST, EXPORTS, &Value::Null).await.status, 200);
        assert_eq!(node.call_signed(author, Method::GET, EXPORTS, &Value::Null).await.status, 200);
        let made = node.call_signed(author, Method::POST, DELETIONS, &json!({})).await;
        assert_eq!(made.status, 200, "{made:?}");
        node.work().await;
        let (made, found) = (made.json(), account::find(node.control.database(), &key_of(author)).await.unwrap());
        assert!(found.is_none(), "{made}");
    }
    let expected = ["ACCOUNT_DISABLED", "BANNED", "CONSENT_REQUIRED"].map(str::to_owned);
    assert_eq!(refusals, expected.into());
    let stranger = node.call_signed(4, Method::POST, EXPORTS, &Value::Null).await;
    assert_eq!(stranger.code(), (403, "BANNED".to_owned()), "who has no account gets none by it");
}
