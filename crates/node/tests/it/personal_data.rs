//! Export and deletion of personal data on a real node (N-1, N-2), over HTTP, with a restored backup.

use std::{
    fs,
    io::{Cursor, Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
};

use kukuri_testing::{as_json, draft, eventually, key_of, note, now};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Node, TOPIC};

const EXPORTS: &str = "/v1/personal-data-export-requests";
const DELETIONS: &str = "/v1/personal-data-deletion-requests";

impl Node {
    /// Sends a request over HTTP. Returns the status and the body.
    fn exchange(&self, method: &str, path: &str, token: &str, body: &Value) -> (u16, Vec<u8>) {
        let address = self.url().replace("ws://", "");
        let mut stream = TcpStream::connect(&address).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let authorization = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{authorization}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer[..head]).split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_off(head + 4))
    }

    fn call(&self, method: &str, path: &str, token: &str, body: &Value) -> Value {
        let (status, answer) = self.exchange(method, path, token, body);
        let answer = serde_json::from_slice(&answer).unwrap();
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }

    /// Signs an author in. Returns the token.
    fn sign_in(&self, author: u8) -> String {
        let made = self.call("POST", "/v1/auth/challenge", "", &json!({ "pubkey": key_of(author) }));
        let answer = draft(author, 22242).at(now()).tag(["relay", &self.url()]);
        let answer = answer.tag(["challenge", made["challenge"].as_str().unwrap()]).sign();
        let verified = self.call("POST", "/v1/auth/verify", "", &json!({ "auth_event_json": as_json(&answer) }));
        verified["access_token"].as_str().unwrap().to_owned()
    }

    /// Asks for the deletion of an account, and waits until it is done. Returns the path of its receipt.
    async fn delete_account(&self, token: &str) -> String {
        let made = self.call("POST", DELETIONS, token, &json!({ "include_events": true }));
        let (id, receipt) = (made["deletion_request_id"].as_str().unwrap(), made["receipt_token"].as_str().unwrap());
        let path = format!("{DELETIONS}/{id}?token={receipt}");
        eventually("the account is deleted", async || {
            self.call("GET", &path, "", &Value::Null)["status"] == "completed"
        })
        .await;
        path
    }

    /// The files of the control database.
    fn control_files(&self) -> Vec<std::path::PathBuf> {
        let files = fs::read_dir(self.place("data")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("control.db")).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn person_takes_own_data_along_and_is_forgotten() {
    let mut node = Node::start("required");
    let mine = [note(1, "first").at(now() - 20).sign(), note(1, "second").at(now() - 10).sign()];
    let others = note(2, "other").at(now() - 10).sign();
    let mut client = node.client().await;
    for event in mine.iter().chain([&others]) {
        client.accepted(event).await;
    }
    let token = node.sign_in(1);
    let joined = now();
    node.sign_in(2);

    // N-1
    let made = node.call("POST", EXPORTS, &token, &Value::Null);
    let id = made["export_request_id"].as_str().unwrap();
    let status = || node.call("GET", &format!("{EXPORTS}/{id}"), &token, &Value::Null)["status"].clone();
    eventually("the export is made", async || status() == "completed").await;
    let download = format!("{EXPORTS}/{id}/download?token={}", made["download_token"].as_str().unwrap());
    let (status, archive) = node.exchange("GET", &download, "", &Value::Null);
    assert_eq!(status, 200);
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut events = String::new();
    zip.by_name("events.ndjson").unwrap().read_to_string(&mut events).unwrap();
    let ids: Vec<Value> =
        events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids, [&mine[1], &mine[0]].map(|event| json!(event.id.to_string())));
    assert_eq!(node.exchange("GET", &download, "", &Value::Null).0, 410, "once");

    // A backup from before the deletion. Times are seconds: the deletion has to come later than the account.
    node.stop(Signal::TERM).await;
    let backup: Vec<_> = node.control_files().into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
    node.start_again();
    eventually("the next second begins", async || now() > joined).await;

    // N-2
    let receipt = node.delete_account(&node.sign_in(1)).await;
    let mut client = node.client().await;
    let filter = json!({ "#t": [TOPIC] });
    assert_eq!(client.request("all", std::slice::from_ref(&filter)).await, [others.id.to_string()]);
    let (is_accepted, reason) = client.publish(&mine[0]).await;
    assert!(!is_accepted && reason.starts_with("blocked: "), "{reason}");
    assert!(!node.run(&["account", "list"]).ok().contains(&key_of(1)));
    assert!(node.run(&["explain", &mine[0].id.to_string()]).ok().contains("N-2"), "an operator finds out why");
    let list = node.place("data/deletions.log");
    let listed = fs::read_to_string(&list).unwrap();
    assert!(listed.ends_with(" account+events\n") && !listed.contains(&key_of(1)), "{listed}");
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    let jobs = node.run(&["job", "list", "--status", "completed"]).ok();
    for kind in ["personal-data.export", "personal-data.deletion"] {
        assert!(jobs.lines().any(|line| line.contains(kind)), "{jobs}");
    }
    eventually("the tables were swept", async || node.run(&["job", "retention"]).ok().contains("cn_admin.audit_logs"))
        .await;
    let queued = node.run(&["job", "list", "--status", "queued", "--json"]).ok();
    let queued: Value = serde_json::from_str(queued.lines().next().unwrap()).unwrap();
    assert_eq!(queued["kind"], "personal-data.remove-export");
    let id = queued["id"].as_str().unwrap();
    assert_eq!(
        node.run(&["job", "cancel", id]).ok(),
        format!("job {id} (personal-data.remove-export) is cancelled, was queued\n")
    );
    assert!(node.run(&["job", "cancel", id]).refusal().contains("neither queued nor running"));
    assert!(node.run(&["job", "retry", id]).ok().ends_with("is queued, was cancelled\n"));
    assert!(node.run(&["job", "retry", "nonsense"]).refusal().contains("there is no such job"));

    // The backup brings nobody back, and leaves who came with it.
    node.stop(Signal::TERM).await;
    node.control_files().iter().for_each(|path| fs::remove_file(path).unwrap());
    backup.iter().for_each(|(content, path)| fs::write(path, content).unwrap());
    node.start_again();
    assert_eq!(node.exchange("GET", &receipt, "", &Value::Null).0, 404, "of another history");
    eventually("the account is deleted again", async || !node.run(&["account", "list"]).ok().contains(&key_of(1)))
        .await;
    assert!(node.log().contains("they are deleted again"), "{}", node.log());
    assert!(node.run(&["account", "list"]).ok().contains(&key_of(2)));
}
