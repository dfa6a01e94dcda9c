//! The HTTP API as its own description tells it (U-2), tried by schemathesis: requests made up from the description, valid and not, are
//! answered as described, and never by an error of the node.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kukuri_testing::long;
use nostr_sdk::{EventBuilder, Keys, Kind, Tag};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{Node, TOPIC};

/// What every answer has to be.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
/// Would end the token of the run, or its account.
const ENDS_THE_RUN: &str = "^/v1/(auth/session|personal-data-deletion-requests)";

fn schemathesis() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("schemathesis").join("bin/schemathesis");
    assert!(place.exists(), "schemathesis is not installed: run `cargo xtask test`");
    place
}

/// Runs it for some seconds.
async fn try_api(node: &Node, seconds: u32, arguments: &[String]) {
    let mut command = Command::new(schemathesis());
    command.env("SCHEMATHESIS_HOOKS", "hooks");
    command.env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis"));
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.args([
        "run",
        "--checks",
        CHECKS,
        "--phases",
        "examples,coverage,fuzzing",
        "--max-time",
        &seconds.to_string(),
    ]);
    command.args(["--request-timeout", "35", "--suppress-health-check", "all", "--warnings", "off", "--seed", "1"]);
    command.args(["--url", &node.url().replacen("ws", "http", 1)]).args(arguments);
    let output = command.arg(description(node)).current_dir(node.place("")).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// The description that the node serves, in a file.
fn description(node: &Node) -> PathBuf {
    let (status, document) = node.get("/v1/openapi.json");
    assert_eq!(status, 200);
    let file = node.place("openapi.json");
    fs::write(&file, document.to_string()).unwrap();
    file
}

async fn post(node: &Node, path: &str, body: Value) -> Value {
    let url = format!("{}{path}", node.url().replacen("ws", "http", 1));
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--show-error",
        "--header",
        "content-type: application/json",
        "--data",
        &body.to_string(),
    ]);
    let output = command.arg(url).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

async fn sign_in(node: &Node, keys: &Keys) -> String {
    let challenge = post(node, "/v1/auth/challenge", json!({ "pubkey": keys.public_key().to_hex() })).await;
    let tags = [["relay", &node.url()], ["challenge", challenge["challenge"].as_str().unwrap()]];
    let answer = EventBuilder::new(Kind::Authentication, "").tags(tags.map(|tag| Tag::parse(tag).unwrap()));
    let answer = answer.sign_with_keys(keys).unwrap();
    let verified = post(node, "/v1/auth/verify", json!({ "auth_event_json": answer })).await;
    verified["access_token"].as_str().unwrap_or_else(|| panic!("{verified}")).to_owned()
}

/// A node with events, policies and somebody's account.
async fn prepared() -> (Node, String) {
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    for number in 0..30 {
        let note = crate::support::events::note(&keys, &format!("tea {number}"));
        assert!(client.publish(&note).await.0);
    }
    let token = sign_in(&node, &keys).await;
    let text = node.place("rules.md");
    fs::write(&text, "# Rules\n\n1. Be kind.").unwrap();
    node.run(&["policy", "draft", "rules", "1", "--locale", "en", "--file", text.to_str().unwrap()]).ok();
    node.run(&["policy", "publish", "rules", "1"]).ok();
    node.run(&["plan", "set", "free", "max_topics", "level", "unlimited"]).ok();
    assert!(node.get(&format!("/v1/topics/{TOPIC}/snapshot")).1["items"].as_array().unwrap().len() == 30);
    (node, token)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_requests_are_answered_as_described() {
    let seconds: u32 = long::scaled(60);
    let (node, token) = prepared().await;
    try_api(&node, seconds / 3, &[]).await;
    let member = ["--header".to_owned(), format!("Authorization: Bearer {token}")];
    let excluded = ["--exclude-path-regex".to_owned(), ENDS_THE_RUN.to_owned()];
    try_api(&node, seconds * 2 / 3, &[member, excluded].concat()).await;
    let log = node.log();
    assert!(!log.contains("panicked") && !log.contains("INTERNAL"), "{log}");
}
