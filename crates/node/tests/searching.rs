//! Members find posts by their words, on a real node: after a crash, after a restore, and never what was deleted.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

use std::{collections::BTreeSet, fs, path::PathBuf};

use nostr_sdk::{Event, Keys};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{
    Node, TOPIC, bare,
    client::{Client, deletion, note},
    until,
};

async fn search(client: &mut Client, words: &str) -> Vec<String> {
    client.request(json!({ "#t": [TOPIC], "search": words, "limit": 500 })).await
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
async fn posts_are_found_at_once_and_after_a_crash_and_deleted_ones_never() {
    // C-1, W-9, O-6
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = Client::connect(&node).await;
    let texts = ["今日は東京で会いましょう", "Meet us in Kyoto tomorrow", "東京タワーの写真"];
    let posts = publish(&mut client, &keys, &texts).await;
    let tokyo = ids(&[posts[0].clone(), posts[2].clone()]);
    for round in ["while it runs", "after a crash", "after another", "after a stop"] {
        let mut client = Client::connect(&node).await;
        until(round, async || ids_found(&node, "東京").await == tokyo).await;
        assert_eq!(search(&mut client, "東京").await.len(), 2, "nothing twice, {round}");
        assert_eq!(search(&mut client, "KYOTO").await, [posts[1].id.to_hex()], "{round}");
        assert_eq!(node.run(&["index", "verify"]).ok(), "3 documents compared, 0 differences\n", "{round}");
        if round == "after another" {
            assert_eq!(node.stop(Signal::TERM).await.0.code(), Some(0));
        } else {
            node.kill();
        }
        node.start_again();
    }

    until("it is filled", async || ids_found(&node, "東京").await == tokyo).await;
    let mut client = Client::connect(&node).await;
    let new = publish(&mut client, &keys, &["大阪"]).await;
    assert_eq!(search(&mut client, "大阪").await, [new[0].id.to_hex()], "whoever was told OK finds it");
    assert!(client.publish(&deletion(&keys, &posts[0])).await.0);
    assert_eq!(search(&mut client, "東京").await, [posts[2].id.to_hex()]);
    node.kill();
    node.start_again();
    until("after the crash", async || ids_found(&node, "東京").await == ids(&posts[2..])).await;
    assert_eq!(node.run(&["index", "verify"]).ok(), "3 documents compared, 0 differences\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_is_built_anew_while_posts_come_and_go_and_is_searched_meanwhile() {
    // O-8, C-1
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = Client::connect(&node).await;
    let first = publish(&mut client, &keys, &["lantern one", "lantern two"]).await;
    let mut writer = Client::connect(&node).await;
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
        assert!(said.starts_with("built anew: "), "{said}");
        assert!(ids(&first).is_subset(&ids_found(&node, "lantern").await));
    }
    ended.send(()).unwrap();
    let (kept, gone) = writing.await.unwrap();
    // On a connection of its own: to the others posts come live too.
    let found = ids_found(&node, "lantern").await;
    assert_eq!(found, ids(&[first, kept].concat()));
    assert!(found.is_disjoint(&ids(&gone)));
    let said = node.run(&["index", "verify"]).ok();
    assert_eq!(said, format!("{} documents compared, 0 differences\n", found.len()));
    let status = node.run(&["index", "status"]).ok();
    assert!(status.lines().any(|line| line.starts_with("state") && line.ends_with("following")), "{status}");
}

#[tokio::test]
async fn commands_about_the_index_work_without_a_node() {
    let mut node = Node::start("required");
    let mut client = Client::connect(&node).await;
    publish(&mut client, &Keys::generate(), &["one", "two"]).await;
    node.kill();
    assert_eq!(node.run(&["index", "verify"]).ok(), "2 documents compared, 0 differences\n");
    let status = node.run(&["index", "status"]).ok();
    let has = |what: &str, value: &str| status.lines().any(|line| line.starts_with(what) && line.ends_with(value));
    assert!(has("state", "no node runs here") && has("documents", " 2") && has("behind", " 0"), "{status}");
    assert!(node.run(&["index", "rebuild"]).ok().starts_with("built anew: 2 documents"));
    assert_eq!(node.run(&["index", "verify"]).ok(), "2 documents compared, 0 differences\n");
}

/// What an index says of itself.
fn meta(node: &Node) -> (PathBuf, Value) {
    let current = fs::read_to_string(node.place("data/index/current")).unwrap();
    let path = node.place("data/index").join(current.trim()).join("meta.json");
    let meta = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    (path, meta)
}

#[tokio::test]
async fn an_index_that_differs_is_told_with_what_differs() {
    let keys = Keys::generate();
    let (mut ours, mut theirs) = (Node::start("required"), Node::start("required"));
    let our_post = publish(&mut Client::connect(&ours).await, &keys, &["ours"]).await;
    let their_post = publish(&mut Client::connect(&theirs).await, &keys, &["theirs"]).await;
    for node in [&mut ours, &mut theirs] {
        indexed(node);
        node.stop(Signal::TERM).await;
    }
    // Their index with our mark: the one thing that is not noticed when a node starts.
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
    assert_eq!(search(&mut Client::connect(&ours).await, "theirs").await, [""; 0], "every hit is looked up");
    ours.run(&["index", "rebuild"]).ok();
    assert_eq!(ours.run(&["index", "verify"]).ok(), "1 documents compared, 0 differences\n");
}

#[tokio::test]
async fn a_restored_store_or_another_one_gets_an_index_of_its_own() {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = Client::connect(&node).await;
    let posts = publish(&mut client, &keys, &["harbour in the morning"]).await;
    let backup = node.place("backup");
    node.run(&["backup", backup.to_str().unwrap()]).ok();
    assert!(client.publish(&deletion(&keys, &posts[0])).await.0);
    publish(&mut client, &keys, &["harbour at night"]).await;
    indexed(&node);
    node.stop(Signal::TERM).await;
    fs::remove_dir_all(node.place("data/store")).unwrap();
    node.run(&["restore", backup.to_str().unwrap()]).ok();
    node.start_again();
    found_in_the_end(&node, "harbour", &posts).await;
    assert!(node.log().contains("it is ahead of the store"), "{}", node.log());

    // Another one, with more in it than the index has seen.
    let mut other = Node::start("required");
    let others = ["lighthouse 1", "lighthouse 2", "lighthouse 3", "lighthouse 4", "lighthouse 5"];
    let others = publish(&mut Client::connect(&other).await, &keys, &others).await;
    for node in [&mut node, &mut other] {
        node.stop(Signal::TERM).await;
    }
    fs::remove_dir_all(node.place("data/store")).unwrap();
    fs::rename(other.place("data/store"), node.place("data/store")).unwrap();
    node.start_again();
    found_in_the_end(&node, "lighthouse", &others).await;
    assert!(node.log().contains("it follows another store"), "{}", node.log());
    assert_eq!(search(&mut Client::connect(&node).await, "harbour").await, [""; 0]);
}

/// Posts are found before the index has them: that it has them all on the disk is waited for by comparing it.
fn indexed(node: &Node) {
    node.run(&["index", "verify"]).ok();
}

async fn ids_found(node: &Node, words: &str) -> BTreeSet<String> {
    search(&mut Client::connect(node).await, words).await.into_iter().collect()
}

/// An index that is built anew has nothing until that is done.
async fn found_in_the_end(node: &Node, words: &str, expected: &[Event]) {
    until(words, async || ids_found(node, words).await == ids(expected)).await;
    let said = node.run(&["index", "verify"]).ok();
    assert_eq!(said, format!("{} documents compared, 0 differences\n", expected.len()));
}

#[tokio::test]
async fn what_is_indexed_follows_what_is_set() {
    // C-1
    let mut node = Node::start_with("required", "[search]\nkinds = [30023]\n");
    let keys = Keys::generate();
    let posts = publish(&mut Client::connect(&node).await, &keys, &["a note"]).await;
    assert_eq!(search(&mut Client::connect(&node).await, "note").await, [""; 0]);
    node.stop(Signal::TERM).await;
    fs::write(node.config_file(), "").unwrap();
    node.start_again();
    found_in_the_end(&node, "note", &posts).await;

    node.stop(Signal::TERM).await;
    fs::write(node.config_file(), "[search]\nindex = \"off\"\n").unwrap();
    node.start_again();
    let mut client = Client::connect(&node).await;
    client.say(json!(["REQ", "r", { "#t": [TOPIC], "search": "note" }])).await;
    assert_eq!(client.hear().await, json!(["CLOSED", "r", "unsupported: there is no search here"]));
    assert!(node.run(&["index", "status"]).refusal().contains("search.index is off"));
}

#[test]
fn an_index_that_cannot_be_opened_is_told_in_one_line() {
    let node = Node::place_for("required", "");
    fs::create_dir_all(node.place("data")).unwrap();
    fs::write(node.place("data/index"), "in the way").unwrap();
    let output = bare().args(["--listen", "127.0.0.1:0", "--data"]).arg(node.place("data")).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.starts_with("kukuri-node: can't open the search index in ") && error.lines().count() == 1, "{error}");
}

#[tokio::test]
async fn an_index_that_is_lost_under_a_running_node_costs_no_post_and_is_built_anew_on_request() {
    // C-1, O-6: what fails is told, and tried again; the relay goes on.
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = Client::connect(&node).await;
    let mut posts = publish(&mut client, &keys, &["lantern 1"]).await;
    found_in_the_end(&node, "lantern", &posts).await;
    fs::remove_dir_all(node.place("data/index")).unwrap();
    posts.extend(publish(&mut client, &keys, &["lantern 2", "lantern 3"]).await);
    let status = || node.run(&["index", "status"]);
    until("it is told", async || status().out.contains("tries again")).await;
    assert!(node.http_text("/healthz").contains("retrying"));
    assert!(!ids_found(&node, "lantern").await.is_disjoint(&ids(&posts[1..])), "what is new is found meanwhile");
    assert!(node.run(&["index", "rebuild"]).ok().starts_with("built anew: 3 documents"));
    found_in_the_end(&node, "lantern", &posts).await;
}
