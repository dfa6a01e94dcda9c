//! The JavaScript client library `nostr-tools` against the real binary: one script per test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
    time::Duration,
};

use crate::{database::Database, support::Node};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

/// Timeout of a whole script; a script has its own timeout for each step.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A node for members.
const MEMBERS: &str = "auth.mode = \"required\"\ntopics.open = false\n";

/// The directory of the installed modules, to which the scripts are copied: the source tree stays clean.
fn scripts() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nostr-tools");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("nostr-tools");
        let wanted = fs::read(source.join("package.json")).unwrap();
        let installed = fs::read(place.join("installed.json")).unwrap_or_default();
        assert!(wanted == installed, "nostr-tools is not installed, or not this version: run `cargo xtask test`");
        for entry in fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, place.join(path.file_name().unwrap())).unwrap();
        }
        place
    })
}

/// Runs a script against a new node. The script may ask for the node to be killed and restarted, and for commands.
async fn run(script: &str, mode: &'static str) {
    run_on(script, Node::start(mode)).await;
}

async fn run_on(script: &str, mut node: Node) {
    let place = scripts();
    let mut child = Command::new("node")
        .arg(place.join(script))
        .arg(node.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node can be started; cargo xtask test installs it");
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stderr = child.stderr.take().unwrap();
    let complaints = tokio::spawn(async move {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text).await;
        text
    });
    let mut said = String::new();
    let to_the_end = async {
        while let Some(line) = stdout.next_line().await.unwrap() {
            match line.as_str() {
                "please kill" => node.kill(),
                "please start" => node.start_again(),
                other => match other.strip_prefix("please run ") {
                    Some(words) => {
                        let words: Vec<String> = serde_json::from_str(words).unwrap();
                        let answer = node.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
                        let output = if answer.is_success { answer.out } else { answer.error };
                        let answer = serde_json::json!({ "succeeded": answer.is_success, "output": output });
                        stdin.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
                        continue;
                    }
                    None => {
                        said += other;
                        said += "\n";
                        continue;
                    }
                },
            }
            stdin.write_all(b"done\n").await.unwrap();
        }
        child.wait().await.unwrap()
    };
    let ended = tokio::time::timeout(TIMEOUT, to_the_end).await;
    // Kills a script that still runs, which also closes its stderr.
    drop(child);
    let succeeded = ended.as_ref().is_ok_and(|status| status.success());
    assert!(succeeded, "{script}: {ended:?}\n{said}{}", complaints.await.unwrap());
}

#[tokio::test]
async fn events_of_a_topic_are_published_stored_and_live() {
    run("topics.mjs", "required").await;
}

#[tokio::test]
async fn a_newer_version_replaces_an_older_one() {
    run("versions.mjs", "global").await;
}

#[tokio::test]
async fn deletions_by_id_and_by_address_apply_to_earlier_and_later_targets() {
    run("deletions.mjs", "global").await;
}

#[tokio::test]
async fn an_expired_event_is_not_served() {
    run("expiry.mjs", "global").await;
}

#[tokio::test]
async fn a_vanish_request_removes_all_events_of_its_author() {
    run("vanish.mjs", "global").await;
}

#[tokio::test]
async fn a_protected_event_is_accepted_only_from_its_authenticated_author() {
    run("auth.mjs", "global").await;
}

#[tokio::test]
async fn count_equals_the_number_of_events_a_query_returns() {
    run("count.mjs", "global").await;
}

#[tokio::test]
async fn nip77_sync_finds_the_events_each_side_lacks() {
    run("sync.mjs", "global").await;
}

#[tokio::test]
async fn a_client_reconnects_after_a_crash_and_finds_every_acknowledged_event() {
    run("reconnect.mjs", "global").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_sign_in_accept_ask_publish_leave_and_are_banned() {
    run_on("members.mjs", Node::start_with("required", MEMBERS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_a_node_on_postgres_do_the_same() {
    let database = Database::new().await;
    let configuration = format!("store = \"{}\"\n{MEMBERS}", database.url());
    run_on("members.mjs", Node::start_with("required", &configuration)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_from_before_authentication_was_required_are_told_and_closed_after_the_grace() {
    run_on("transition.mjs", Node::start("required")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transition_on_postgres_is_the_same() {
    let database = Database::new().await;
    let configuration = format!("store = \"{}\"\n", database.url());
    run_on("transition.mjs", Node::start_with("required", &configuration)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worked_example_of_the_documentation_works() {
    let node = Node::start_with("required", MEMBERS);
    let text = node.place("terms.md");
    fs::write(&text, "# Terms\n\nBe kind.").unwrap();
    node.run(&["policy", "draft", "terms", "1", "--locale", "en", "--file", text.to_str().unwrap()]).ok();
    node.run(&["policy", "publish", "terms", "1"]).ok();

    let docs = include_str!("../../../../docs/api.md");
    let (_, section) = docs.split_once("## A worked example\n").unwrap();
    let (_, code) = section.split_once("```js\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let url = node.url().replacen("ws", "http", 1);
    assert!(code.contains("'https://relay.example.com'"));
    // Node.js has no WebSocket of its own in all versions.
    fs::write(scripts().join("websocket.mjs"), "import WebSocket from 'ws'\nglobalThis.WebSocket = WebSocket\n")
        .unwrap();
    let script = scripts().join("worked_example.mjs");
    fs::write(&script, code.replace("https://relay.example.com", &url)).unwrap();
    let mut command = Command::new("node");
    command.current_dir(scripts()).args(["--import", "./websocket.mjs"]).arg(script).kill_on_drop(true);
    let example = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    let approve = async {
        loop {
            let listed = node.run(&["request", "list", "--status", "pending", "--json"]).ok();
            if let Some(request) = listed.lines().next() {
                let request: serde_json::Value = serde_json::from_str(request).unwrap();
                return node.run(&["request", "approve", request["id"].as_str().unwrap()]).ok();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let both = async { tokio::join!(example.wait_with_output(), approve) };
    let (output, _) = tokio::time::timeout(TIMEOUT, both).await.expect("it ends");
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("Be kind.") && said.contains("tonkotsu with extra garlic"), "{said}");
}
