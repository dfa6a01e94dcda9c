//! Search on a real node: after crashes, rebuilds and a restore; deleted posts are never found.

use std::{collections::BTreeSet, fs, path::PathBuf};

use crate::support::{
    Node, TOPIC, bare,
    events::{deletion, note},
};
use kukuri_testing::{Client, eventually};
use nostr_sdk::{Event, Keys};
use rustix::process::Signal;
use serde_json::{Value, json};

async fn search(client: &mut Client, words: &str) -> Vec<String> {
    client.request("r", &[json!({ "#t": [TOPIC], "search": words, "limit": 500 })]).await
}

async fn publish(client: &mut Client, keys: &Keys, texts: &[&str]) -> Vec<Event> {
    let mut published = Vec::new();
    for text in texts {
        let event = note(keys, text);
        assert_eq!(client.publish(&event).await, (true, String::new()));
        published.push(event);
    }
    published
}

fn ids(events: &[Event]) -> BTreeSet<String> {
    events.iter().map(|event| event.id.to_hex()).collect()
}

#[tokio::test]
async fn posts_are_found_at_once_and_after_crashes_and_deleted_ones_never() {
    // C-1, W-9, O-6
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let texts = ["今日は東京で会いましょう", "Meet us in Kyoto tomorrow", "東京タワーの写真"];
    let posts = publish(&mut client, &keys, &texts).await;
    let tokyo = ids(&[posts[0].clone(), posts[2].clone()]);
    for round in ["while it runs", "after a crash", "after another", "after a stop"] {
        let mut client = node.client().await;
        eventually(round, async || ids_found(&node, "東京").await == tokyo).await;
        assert_eq!(search(&mut client, "東京").await.len(), 2, "each once, {round}");
        assert_eq!(search(&mut client, "KYOTO").await, [posts[1].id.to_hex()], "{round}");
        assert_eq!(node.run(&["index", "verify"]).ok(), "3 documents compared, 0 differences\n", "{round}");
        if round == "after another" {
            assert_eq!(node.stop(Signal::TERM).await.0.code(), Some(0));
        } else {
            node.kill();
        }
        node.start_again();
    }

    eventually("the index is filled", async || ids_found(&node, "東京").await == tokyo).await;
    let mut client = node.client().await;
    let new = publish(&mut client, &keys, &["大阪"]).await;
    assert_eq!(
        search(&mut client, "大阪").await,
        [new[0].id.to_hex()],
        "a post is found as soon as it is acknowledged"
    );
    assert!(client.publish(&deletion(&keys, &posts[0])).await.0);
    assert_eq!(search(&mut client, "東京").await, [posts[2].id.to_hex()]);
    node.kill();
    node.start_again();
    eventually("after the crash", async || ids_found(&node, "東京").await == ids(&posts[2..])).await;
    assert_eq!(node.run(&["index", "verify"]).ok(), "3 documents compared, 0 differences\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rebuild_runs_while_posts_are_published_deleted_and_searched() {
    // O-8, C-1
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let first = publish(&mut client, &keys, &["lantern one", "lantern two"]).await;
    let mut writer = node.client().await;
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn({
        let keys = keys.clone();
        async move {
            let mut end = end;
            let (mut kept, mut gone) = (Vec::new(), Vec::new());
            while end.try_recv().is_err() {
                let events = publish(&mut writer, &keys, &["lantern kept", "lantern gone"]).await;
                assert!(writer.publish(&deletion(&keys, &events[1])).await.0);
                kept.push(events[0].clone());
                gone.push(events[1].clone());
                // Posts of one second with the same words would be the same event.
                tokio::time::sleep(std::time::Duration::from_millis(1_001)).await;
            }
            (kept, gone)
        }
    });
    for _ in 0..3 {
        let said = tokio::task::block_in_place(|| node.run(&["index", "rebuild"])).ok();
        assert!(said.starts_with("index-v1 is rebuilt: documents "), "{said}");
        assert!(ids(&first).is_subset(&ids_found(&node, "lantern").await));
    }
    ended.send(()).unwrap();
    let (kept, gone) = writing.await.unwrap();
    // On a new connection: the others also receive live events.
    let found = ids_found(&node, "lantern").await;
    assert_eq!(found, ids(&[first, kept].concat()));
    assert!(found.is_disjoint(&ids(&gone)));
    let said = node.run(&["index", "verify"]).ok();
    assert_eq!(said, format!("{} documents compared, 0 differences\n", found.len()));
    let status = node.run(&["index", "status"]).ok();
    assert!(status.lines().any(|line| line.starts_with("state") && line.ends_with("following")), "{status}");
}

#[tokio::test]
async fn index_commands_work_without_a_node() {
    let mut node = Node::start("required");
    let mut client = node.client().await;
    publish(&mut client, &Keys::generate(), &["one", "two"]).await;
    node.kill();
    assert_eq!(node.run(&["index", "verify"]).ok(), "2 documents compared, 0 differences\n");
    let status = node.run(&["index", "status"]).ok();
    let has = |what: &str, value: &str| status.lines().any(|line| line.starts_with(what) && line.ends_with(value));
    assert!(has("state", "no node runs here") && has("documents", " 2") && has("backlog", " 0"), "{status}");
    assert!(node.run(&["index", "rebuild"]).ok().starts_with("index-v1 is rebuilt: documents 2, size "));
    assert_eq!(node.run(&["index", "verify"]).ok(), "2 documents compared, 0 differences\n");
}

/// Path and content of the index's meta file.
fn meta(node: &Node) -> (PathBuf, Value) {
    let current = fs::read_to_string(node.place("data/index/current")).unwrap();
    let path = node.place("data/index").join(current.trim()).join("meta.json");
    let meta = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (path, meta)
}

#[tokio::test]
async fn verify_names_missing_and_left_over_documents() {
    let keys = Keys::generate();
    let (mut ours, mut theirs) = (Node::start("required"), Node::start("required"));
    let our_post = publish(&mut ours.client().await, &keys, &["ours"]).await;
    let their_post = publish(&mut theirs.client().await, &keys, &["theirs"]).await;
    for node in [&mut ours, &mut theirs] {
        wait_until_indexed(node);
        node.stop(Signal::TERM).await;
    }
    // The other node's index with this node's fingerprint: the only mismatch that a start does not detect.
    let (_, our_meta) = meta(&ours);
    let (path, mut their_meta) = meta(&theirs);
    their_meta["payload"] = our_meta["payload"].clone();
    fs::write(path, their_meta.to_string()).unwrap();
    fs::remove_dir_all(ours.place("data/index")).unwrap();
    fs::rename(theirs.place("data/index"), ours.place("data/index")).unwrap();

    let answer = ours.run(&["index", "verify"]);
    let lines = format!(
        "{} is visible, but not in the index\n{} is in the index, but should not be\n",
        our_post[0].id, their_post[0].id
    );
    assert_eq!(answer.out, lines);
    assert!(answer.refusal().contains("1 documents compared, 2 differences"));
    ours.start_again();
    assert_eq!(search(&mut ours.client().await, "theirs").await, [""; 0], "every hit is read from the store");
    ours.run(&["index", "rebuild"]).ok();
    assert_eq!(ours.run(&["index", "verify"]).ok(), "1 documents compared, 0 differences\n");
}

#[tokio::test]
async fn index_is_rebuilt_for_a_restored_or_another_store() {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let posts = publish(&mut client, &keys, &["harbour in the morning"]).await;
    let backup = node.place("backup");
    node.run(&["backup", backup.to_str().unwrap()]).ok();
    assert!(client.publish(&deletion(&keys, &posts[0])).await.0);
    publish(&mut client, &keys, &["harbour at night"]).await;
    wait_until_indexed(&node);
    node.stop(Signal::TERM).await;
    fs::remove_dir_all(node.place("data/store")).unwrap();
    for file in ["control.db", "control.db-wal", "control.db-shm"] {
        let _ = fs::remove_file(node.place("data").join(file));
    }
    node.run(&["restore", backup.to_str().unwrap()]).ok();
    node.start_again();
    wait_until_found(&node, "harbour", &posts).await;
    assert!(node.log().contains("it is ahead of the store"), "{}", node.log());

    // Another store, with more outbox rows than the index has processed.
    let mut other = Node::start("required");
    let others = ["lighthouse 1", "lighthouse 2", "lighthouse 3", "lighthouse 4", "lighthouse 5"];
    let others = publish(&mut other.client().await, &keys, &others).await;
    for node in [&mut node, &mut other] {
        node.stop(Signal::TERM).await;
    }
    fs::remove_dir_all(node.place("data/store")).unwrap();
    fs::rename(other.place("data/store"), node.place("data/store")).unwrap();
    node.start_again();
    wait_until_found(&node, "lighthouse", &others).await;
    assert!(node.log().contains("it belongs to another store"), "{}", node.log());
    assert_eq!(search(&mut node.client().await, "harbour").await, [""; 0]);
}

/// Waits until the index has all posts on disk: a search also finds posts that are not indexed yet.
fn wait_until_indexed(node: &Node) {
    node.run(&["index", "verify"]).ok();
}

async fn ids_found(node: &Node, words: &str) -> BTreeSet<String> {
    search(&mut node.client().await, words).await.into_iter().collect()
}

/// Waits for a rebuild: a new index finds nothing before it is complete.
async fn wait_until_found(node: &Node, words: &str, expected: &[Event]) {
    eventually(words, async || ids_found(node, words).await == ids(expected)).await;
    let said = node.run(&["index", "verify"]).ok();
    assert_eq!(said, format!("{} documents compared, 0 differences\n", expected.len()));
}

#[tokio::test]
async fn changed_kinds_rebuild_the_index_and_off_refuses_searches() {
    // C-1
    let mut node = Node::start_with("required", "[search]\nkinds = [30023]\n");
    let keys = Keys::generate();
    let posts = publish(&mut node.client().await, &keys, &["a note"]).await;
    assert_eq!(search(&mut node.client().await, "note").await, [""; 0]);
    node.stop(Signal::TERM).await;
    fs::write(node.config_file(), "").unwrap();
    node.start_again();
    wait_until_found(&node, "note", &posts).await;

    node.stop(Signal::TERM).await;
    fs::write(node.config_file(), "[search]\nindex = \"off\"\n").unwrap();
    node.start_again();
    let mut client = node.client().await;
    client.say(json!(["REQ", "r", { "#t": [TOPIC], "search": "note" }])).await;
    assert_eq!(client.hear().await, json!(["CLOSED", "r", "unsupported: there is no search here"]));
    assert!(node.run(&["index", "status"]).refusal().contains("search.index is off"));
}

#[test]
fn index_that_cannot_be_opened_is_reported_in_one_line() {
    let node = Node::place_for("required", "");
    fs::create_dir_all(node.place("data")).unwrap();
    fs::write(node.place("data/index"), "in the way").unwrap();
    let output = bare().args(["--listen", "127.0.0.1:0", "--data"]).arg(node.place("data")).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.starts_with("kukuri-node: can't open the search index in ") && error.lines().count() == 1, "{error}");
}

#[tokio::test]
async fn index_deleted_under_a_running_node_is_reported_and_rebuilt_on_command() {
    // C-1, O-6: the consumer retries; the relay keeps serving.
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let mut posts = publish(&mut client, &keys, &["lantern 1"]).await;
    wait_until_found(&node, "lantern", &posts).await;
    fs::remove_dir_all(node.place("data/index")).unwrap();
    posts.extend(publish(&mut client, &keys, &["lantern 2", "lantern 3"]).await);
    let status = || node.run(&["index", "status"]);
    eventually("the failure is reported", async || status().out.contains("retrying")).await;
    assert!(node.http_text("/healthz").contains("retrying"));
    assert!(!ids_found(&node, "lantern").await.is_disjoint(&ids(&posts[1..])), "new posts are found meanwhile");
    assert!(node.run(&["index", "rebuild"]).ok().starts_with("index-v1 is rebuilt: documents 3"));
    wait_until_found(&node, "lantern", &posts).await;
}
