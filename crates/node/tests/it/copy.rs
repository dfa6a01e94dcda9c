//! `copy`: a node moves to another store and back; clients and outbox consumers continue where they stopped.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Stdio},
};

use crate::database;
use crate::database::{Database, numbers};
use crate::support::{
    Node, TOPIC, bare,
    events::{deletion, note, topic},
};
use kukuri_domain::Millis;
use kukuri_postgres::Session;
use kukuri_store::{Seq, port::*};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_testing::eventually;
use nostr_sdk::{Event, EventBuilder, Keys, Metadata};
use rustix::process::{Pid, Signal, kill_process};

const CONSUMER: &str = "index-v1";

/// A key that the node does not serve.
const BANNED: &str = "0101010101010101010101010101010101010101010101010101010101010101";

/// All exported events, as JSON lines.
fn exported(node: &Node, store: &str) -> BTreeSet<String> {
    node.run(&["--store", store, "export", "--all"]).ok().lines().map(str::to_owned).collect()
}

/// The outbox rows after a sequence number.
fn outbox(node: &Node, store: &str, after: u64) -> Vec<String> {
    let rows = node.run(&["--store", store, "outbox", "tail", "--json", "--after", &after.to_string()]).ok();
    rows.lines().map(str::to_owned).collect()
}

fn subscriptions(node: &Node, store: &str) -> String {
    node.run(&["--store", store, "topic", "list", "--json"]).ok()
}

/// A stopped node on the embedded store with all kinds of rows, and a deleted event.
async fn used_node() -> (Node, Event) {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let gone = note(&keys, "gone");
    let profile = |name: &str| EventBuilder::metadata(&Metadata::new().name(name)).tag(topic());
    let earlier = profile("old").custom_created_at(nostr_sdk::Timestamp::now() - 10u64);
    for event in [&gone, &deletion(&keys, &gone)] {
        assert!(client.publish(event).await.0);
    }
    for profile in [earlier, profile("new")] {
        assert!(client.publish(&profile.sign_with_keys(&keys).unwrap()).await.0);
    }
    for number in 0..30 {
        assert!(client.publish(&note(&keys, &format!("note {number}"))).await.0);
    }
    node.run(&["topic", "set", TOPIC, "--keep-regular", "90d", "--priority", "7"]).ok();
    node.run(&["topic", "disable", "a name"]).ok();
    node.run(&["account", "ban", BANNED, "--reason", "spam"]).ok();
    node.stop(Signal::TERM).await;
    (node, gone)
}

#[tokio::test]
async fn a_node_moves_to_postgres_and_back_and_consumers_continue() {
    let (mut node, gone) = used_node().await;
    let embedded = format!("lmdb:{}", node.place("data/store").display());
    let seen = 12;
    let store = LmdbStore::open(node.place("data/store"), LmdbOptions::default()).unwrap();
    store.set_offset(CONSUMER, Seq(seen), Millis(1_000)).await.unwrap();
    drop(store);
    let before = (exported(&node, &embedded), outbox(&node, &embedded, seen), subscriptions(&node, &embedded));
    assert!(before.0.len() == 32 && !before.1.is_empty());

    let database = Database::new().await;
    let url = database.url();
    let said = node.run(&["copy", "--to", &url]).ok();
    assert!(said.contains("all is well") && said.contains("copied from lmdb:"), "{said}");
    let tally: Vec<Vec<&str>> = said.lines().map(|line| line.rsplitn(2, ' ').map(str::trim).collect()).collect();
    assert!(said.contains("accounts and settings: ") && said.contains(" rows copied from "), "{said}");
    for row in [["34", "events"], ["2", "hidden among them"], ["1", "consumers' offsets"]] {
        assert!(tally.iter().any(|line| *line == row), "{row:?}: {said}");
    }
    assert_eq!((exported(&node, &url), outbox(&node, &url, seen), subscriptions(&node, &url)), before);
    let offsets = node.run(&["--store", &url, "outbox", "offsets"]).ok();
    assert!(offsets.lines().any(|line| line.starts_with(CONSUMER) && line.contains(" 12 ")), "{offsets}");

    // Data directory and key stay; only the store changes.
    let key = node.run(&["key", "show"]).ok();
    fs::write(node.config_file(), format!("store = \"{url}\"\n")).unwrap();
    node.start_again();
    let keys = Keys::generate();
    let mut client = node.client().await;
    assert_eq!(client.publish(&gone).await, (false, "blocked: deleted by its author".to_owned()), "D-6");
    let later = note(&keys, "on Postgres");
    assert!(client.publish(&later).await.0);
    assert_eq!(node.run(&["key", "show"]).ok(), key);
    node.stop(Signal::TERM).await;
    let rows = outbox(&node, &url, seen);
    let (known, new) = rows.split_at(before.1.len());
    assert_eq!(known, before.1, "what the consumer had not seen");
    assert!(matches!(new, [row] if row.contains(&later.id.to_hex())), "then what is new, once: {new:?}");

    let back = format!("lmdb:{}", node.place("back").display());
    fs::write(node.config_file(), format!("store = \"{url}\"\n")).unwrap();
    node.run(&["plan", "set", "free", "max_topics", "level", "7"]).ok();
    let there = (exported(&node, &url), rows, subscriptions(&node, &url));
    let refused = node.run(&["copy", "--from", &url, "--to", &back]).refusal();
    assert!(refused.contains("there is a control database here already; move the file away first"), "{refused}");
    for file in ["control.db", "control.db-wal", "control.db-shm"] {
        let _ = fs::remove_file(node.place("data").join(file));
    }
    let said = node.run(&["copy", "--from", &url, "--to", &back]).ok();
    assert!(said.contains("all is well"), "{said}");
    assert_eq!((exported(&node, &back), outbox(&node, &back, seen), subscriptions(&node, &back)), there);
    fs::write(node.config_file(), format!("store = \"{back}\"\n")).unwrap();
    assert!(node.run(&["account", "show", BANNED]).ok().contains("banned"), "accounts and bans moved along");
    node.start_again();
    let mut client = node.client().await;
    assert_eq!(client.publish(&gone).await, (false, "blocked: deleted by its author".to_owned()), "D-6");
    assert_eq!(client.publish(&later).await.1.split(':').next(), Some("duplicate"));
    assert!(client.publish(&note(&keys, "embedded again")).await.0);
}

#[tokio::test]
async fn copy_refuses_a_target_that_is_not_empty_and_a_source_in_use() {
    let (mut node, _) = used_node().await;
    let embedded = format!("lmdb:{}", node.place("data/store").display());
    let again = format!("lmdb:{}", node.place("again").display());
    node.run(&["copy", "--to", &again]).ok();
    assert_eq!(exported(&node, &again), exported(&node, &embedded), "from one embedded store to another");
    for (arguments, why) in [
        (["copy", "--from", &embedded, "--to", &again], "only an empty one"),
        (["copy", "--from", &again, "--to", &again], "into itself"),
        (["copy", "--from", "lmdb:nowhere", "--to", "lmdb:new"], "there is no store here"),
        (["copy", "--from", &again, "--to", "new"], "--to new: must be lmdb:"),
        (["copy", "--from", &again, "--to", "postgres://u:sesame@h:p/d"], "--to postgres://u:***@h:p/d: must be"),
    ] {
        let refused = node.run(&arguments).refusal();
        assert!(refused.contains(why) && refused.lines().count() == 1, "{why}: {refused}");
    }
    assert!(!node.place("new").exists() && !node.place("nowhere").exists());
    node.start_again();
    let refused = node.run(&["copy", "--to", "lmdb:new"]).refusal();
    assert!(refused.contains("stop it first"), "{refused}");
    assert!(!node.place("new").exists());
}

fn start_copy(node: &Node, from: &str, to: &str) -> Child {
    let mut copy = bare();
    copy.current_dir(node.place("")).args(["copy", "--from", from, "--to", to]);
    copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Locks a table until the returned session ends.
async fn lock_table(url: &str, table: &str, mode: &str) -> Session {
    let session = Session::connect(url).await.unwrap();
    let lock = format!("BEGIN; LOCK TABLE cn_relay.{table} IN {mode} MODE");
    session.run(lock).await.unwrap();
    session
}

/// Waits until another session waits for the lock.
async fn until_blocked(url: &str, table: &str) {
    let waiting =
        format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'cn_relay.{table}'::regclass");
    eventually("the copy comes to that table", async || numbers(url, &waiting).await != [0]).await;
}

#[tokio::test]
async fn an_incomplete_copy_is_refused_with_the_way_to_remove_it() {
    let (node, _) = used_node().await;
    let embedded = format!("lmdb:{}", node.place("data/store").display());
    let database = Database::new().await;
    let url = database.url();
    node.run(&["--store", &url, "migrate"]).ok();
    let serve = |store: &str| node.run(&["--store", store, "serve", "--listen", "127.0.0.1:0"]).refusal();

    // Killed before the outbox is written.
    let lock = lock_table(&url, "events_outbox", "SHARE").await;
    let mut copy = start_copy(&node, &embedded, &url);
    until_blocked(&url, "events_outbox").await;
    copy.kill().unwrap();
    copy.wait().unwrap();
    lock.close().await;
    let refused = serve(&url);
    assert!(refused.contains("broke off") && refused.contains("DROP SCHEMA cn_relay CASCADE"), "{refused}");
    assert!(node.run(&["--store", &url, "stats"]).refusal().contains("broke off"));
    assert!(node.run(&["copy", "--from", &embedded, "--to", &url]).refusal().contains("broke off"));
    assert!(node.run(&["copy", "--from", &url, "--to", "lmdb:new"]).refusal().contains("broke off"));
    database::run(&url, "DROP SCHEMA cn_relay CASCADE").await.unwrap();
    node.run(&["copy", "--from", &embedded, "--to", &url]).ok();
    assert_eq!(exported(&node, &url), exported(&node, &embedded));

    // Interrupted before the offsets are read.
    let back = format!("lmdb:{}", node.place("back").display());
    let lock = lock_table(&url, "consumer_offsets", "ACCESS EXCLUSIVE").await;
    let copy = start_copy(&node, &url, &back);
    until_blocked(&url, "consumer_offsets").await;
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    let output = copy.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("stopped: lmdb:") && said.contains("remove"), "{said}");
    lock.close().await;
    let refused = serve(&back);
    assert!(refused.contains("broke off") && refused.contains("remove this directory"), "{refused}");
    fs::remove_dir_all(node.place("back")).unwrap();
    node.run(&["copy", "--from", &url, "--to", &back]).ok();
    assert_eq!(exported(&node, &back), exported(&node, &embedded));
}
