//! A node on Postgres: its start on an empty database, its commands, and its errors about the database.

use std::{collections::BTreeSet, fs, time::Instant};

use crate::database;
use crate::database::{Database, cluster::Cluster, private};
use crate::support::{
    Answer, Node, TOPIC,
    events::{deletion, note},
};
use kukuri_testing::{Client, TIMEOUT, eventually};
use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::{Value, json};

fn everything() -> Value {
    json!({ "#t": [TOPIC], "limit": 500 })
}

/// The configuration of a node on this database.
fn on(url: &str) -> String {
    format!("store = \"{url}\"\n")
}

/// The error of a command. Panics unless it is one line with exit code 1.
fn line(answer: Answer) -> String {
    let error = answer.refusal();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

/// Publishes until events of the topic are accepted, or refused.
async fn until_topic_is(client: &mut Client, keys: &Keys, accepted: bool) {
    let end = Instant::now() + TIMEOUT;
    while client.publish(&note(keys, &format!("at {:?}", Instant::now()))).await.0 != accepted {
        assert!(Instant::now() < end, "accepted: {}", !accepted);
    }
}

#[tokio::test]
async fn a_node_starts_on_an_empty_database_and_has_its_events_after_a_restart() {
    let database = Database::new().await;
    let mut node = Node::start_with("required", &on(&database.url()));
    let keys = Keys::generate();
    let mut client = node.client().await;
    let (kept, gone) = (note(&keys, "kept"), note(&keys, "gone"));
    let request = deletion(&keys, &gone);
    for event in [&kept, &gone, &request] {
        assert_eq!(client.publish(event).await, (true, String::new()));
    }
    assert_eq!(client.publish(&gone).await, (false, "blocked: deleted by its author".to_owned()));
    node.kill();
    node.start_again();
    let mut client = node.client().await;
    let found: BTreeSet<String> = client.request("r", &[everything()]).await.into_iter().collect();
    assert_eq!(found, BTreeSet::from([kept.id.to_hex(), request.id.to_hex()]));
    assert!(!node.place("data/store").exists(), "there is no embedded store beside it");
    assert_eq!(node.stop(Signal::TERM).await.0.code(), Some(0));
}

#[tokio::test]
async fn every_command_works_beside_a_node_on_postgres() {
    let database = Database::new().await;
    let node = Node::start_with("required", &on(&database.url()));
    let keys = Keys::generate();
    let mut client = node.client().await;
    let (kept, gone) = (note(&keys, "kept"), note(&keys, "gone"));
    for event in [&kept, &gone, &deletion(&keys, &gone)] {
        assert!(client.publish(event).await.0);
    }

    // T-8: the running node applies it.
    assert!(node.run(&["topic", "disable", TOPIC]).ok().contains("is disabled"));
    until_topic_is(&mut client, &keys, false).await;
    node.run(&["topic", "enable", TOPIC]).ok();
    until_topic_is(&mut client, &keys, true).await;
    assert!(node.run(&["topic", "set", TOPIC, "--keep-regular", "90d"]).ok().contains("regular 90d"));
    assert!(node.run(&["topic", "list"]).ok().contains("regular 90d"));

    let file = node.place("events.jsonl");
    fs::write(&file, serde_json::to_string(&note(&keys, "imported")).unwrap()).unwrap();
    assert!(node.run(&["import", file.to_str().unwrap()]).ok().contains("1 stored"));
    let exported = node.run(&["export", "--all"]).ok();
    let stats: Value = serde_json::from_str(&node.run(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(stats["visible"], exported.lines().count());
    assert!(exported.contains("imported") && exported.contains(&kept.id.to_hex()));
    assert_eq!(client.request("r", &[everything()]).await.len(), exported.lines().count());

    let explained = node.run(&["explain", &gone.id.to_hex()]).ok();
    assert!(explained.contains("its author or its recipient deleted it"), "{explained}");
    let rows = node.run(&["outbox", "tail", "--after", "0", "--json"]).ok();
    assert_eq!(rows.lines().count() as u64, stats["outbox"]["head"].as_u64().unwrap());
    assert!(rows.contains("nip09"));
    assert!(node.run(&["outbox", "offsets"]).ok().contains("index-v1"));
    assert!(node.run(&["retention", "run", "--dry-run"]).ok().contains("would be purged"));
    assert!(node.run(&["retention", "run"]).ok().contains("purged"));
    assert!(node.run(&["check"]).ok().contains("all is well"));
    assert!(node.run(&["migrate"]).ok().contains("up to date"));
    assert!(node.run(&["key", "show"]).ok().contains("public key"));

    let place = node.place("backup");
    let place = place.to_str().unwrap();
    for (command, instead) in
        [(&["backup", place][..], "pg_dump"), (&["restore", place], "pg_restore"), (&["compact"], "VACUUM")]
    {
        let refused = line(node.run(command));
        assert!(refused.contains(instead), "{refused}");
    }
    assert!(!node.place("backup").exists());
}

#[tokio::test]
async fn two_nodes_share_a_database_but_not_a_data_directory() {
    let database = Database::new().await;
    let one = Node::start_with("required", &on(&database.url()));
    let other = Node::start_with("required", &on(&database.url()));
    let event = note(&Keys::generate(), "taken in by one");
    assert!(one.client().await.publish(&event).await.0);
    assert_eq!(other.client().await.request("r", &[everything()]).await, [event.id.to_hex()], "read from the other");
    let third = line(one.run(&["serve", "--listen", "127.0.0.1:0"]));
    assert!(third.contains("another node runs on") && third.contains("--data"), "{third}");
}

#[tokio::test]
async fn tables_are_created_by_a_node_or_migrate_and_by_no_other_command() {
    let database = Database::new().await;
    database::run(&database.url(), "DROP SCHEMA IF EXISTS cn_relay CASCADE").await.unwrap();
    let careful = Node::place_for("required", &format!("{}[postgres]\nmigrate = \"off\"\n", on(&database.url())));
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    for command in [&["stats"][..], &["topic", "enable", "x"], &["retention", "run"], &["export"], &serve] {
        let refused = line(careful.run(command));
        assert!(refused.contains("there is no store here yet"), "{command:?}: {refused}");
    }

    // Tables as the first release created them.
    let first = include_str!("../../../store-postgres/migrations/0001_schema.sql");
    let older = format!(
        "CREATE SCHEMA cn_relay; CREATE TABLE cn_relay.migrations (number integer PRIMARY KEY, name text NOT NULL, \
         applied_at timestamptz NOT NULL DEFAULT now()); {first}; \
         INSERT INTO cn_relay.migrations (number, name) VALUES (1, 'schema')"
    );
    database::run(&database.url(), &older).await.unwrap();
    for command in [&["stats"][..], &serve] {
        let refused = line(careful.run(command));
        assert!(
            refused.contains("its tables are of version 1") && refused.contains("kukuri-node migrate"),
            "{refused}"
        );
    }
    let migrated = careful.run(&["migrate"]).ok();
    assert!(migrated.contains("migrated from version 1 to "), "{migrated}");
    assert!(careful.run(&["migrate"]).ok().contains("up to date"));
    careful.run(&["stats"]).ok();

    let newer = "INSERT INTO cn_relay.migrations (number, name) VALUES (99, 'from tomorrow')";
    database::run(&database.url(), newer).await.unwrap();
    for command in [&["migrate"][..], &["stats"], &serve] {
        let refused = line(careful.run(command));
        assert!(refused.contains("99 is newer than this program's"), "{refused}");
    }
    database::run(&database.url(), "DROP SCHEMA cn_relay CASCADE").await.unwrap();
    assert!(careful.run(&["migrate"]).ok().contains("tables made"));

    let embedded = Node::place_for("required", "");
    assert!(embedded.run(&["migrate"]).ok().contains("nothing to do"));
    assert!(!embedded.place("data").exists());
}

#[tokio::test]
async fn errors_about_the_server_are_one_line_without_the_password() {
    const SECRET: &str = "open-sesame";
    let cluster = Cluster::at(private(&format!("postgres-node-{}", std::process::id())));
    cluster.start().unwrap();
    let directory = cluster.directory().display().to_string();
    let statements =
        format!("CREATE ROLE kukuri LOGIN PASSWORD '{SECRET}'; CREATE ROLE guest LOGIN PASSWORD '{SECRET}'");
    database::run(&cluster.url(), &statements).await.unwrap();
    database::run(&cluster.url(), "CREATE DATABASE kukuri OWNER kukuri").await.unwrap();
    let rules = "host all postgres 127.0.0.1/32 trust\nlocal all all scram-sha-256\n";
    fs::write(format!("{directory}/data/pg_hba.conf"), rules).unwrap();
    database::run(&cluster.url(), "SELECT pg_reload_conf()").await.unwrap();
    let url = |user: &str, password: &str, name: &str| {
        format!("postgres://{user}:{password}@localhost/{name}?host={directory}&port={}", cluster.port())
    };
    let right = url("kukuri", SECRET, "kukuri");
    let mut node = Node::place_for("required", &on(&right));
    eventually("the server asks for passwords", async || {
        !node.run(&["--store", &url("kukuri", "wrong-sesame", "kukuri"), "migrate"]).is_success
    })
    .await;
    node.start_again();
    assert!(node.announcement.contains("store     postgres://kukuri:***@localhost/kukuri"), "{}", node.announcement);
    let mut client = node.client().await;
    assert!(client.publish(&note(&Keys::generate(), "written with a password")).await.0);
    let config = node.run(&["config"]).ok();
    assert!(config.contains("store = \"postgres://kukuri:***@localhost/kukuri"), "{config}");
    let mut said = vec![node.announcement.clone(), config, node.run(&["stats"]).ok()];

    for (store, wrong) in [
        (url("kukuri", "wrong-sesame", "kukuri"), "password authentication failed"),
        (url("kukuri", SECRET, "nowhere"), "\"nowhere\" does not exist"),
        (url("guest", SECRET, "kukuri"), "permission denied"),
        (format!("postgres://kukuri:{SECRET}@localhost:port/kukuri"), "--store = "),
        (format!("postgres://kukuri:{SECRET}@127.0.0.1:1/kukuri"), "Connection refused"),
    ] {
        let elsewhere = node.place("elsewhere");
        let refused = line(crate::support::run(&elsewhere, &["--store", &store, "serve", "--listen", "127.0.0.1:0"]));
        assert!(refused.starts_with("kukuri-node: ") && refused.contains(wrong), "{wrong}: {refused}");
        assert!(refused.contains("postgres://"), "it says which: {refused}");
        said.push(refused);
    }

    // The server stops under a running node: clients get an error, without the password.
    cluster.stop("fast").unwrap();
    let (taken, why) = client.publish(&note(&Keys::generate(), "nobody is there")).await;
    assert!(!taken && why.starts_with("error: "), "{why}");
    said.push(line(node.run(&["stats"])));
    said.push(line(node.run(&["copy", "--to", "lmdb:copy"])));
    node.stop(Signal::TERM).await;
    said.push(node.log());
    cluster.remove();
    for text in said {
        assert!(!text.contains("sesame"), "{text}");
    }
}
