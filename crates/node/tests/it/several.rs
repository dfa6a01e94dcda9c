//! Several nodes on one database: clients of all nodes receive the events of each, though sessions or the server end.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use crate::database;
use crate::database::{Database, cluster::Cluster, private};
use crate::support::{
    Node, TOPIC,
    events::{deletion, note, topic},
    mesh::{configured, listener},
};
use kukuri_testing::{Client, eventually};
use nostr_sdk::{Event, EventBuilder, Keys, Kind, Tag, Timestamp};
use serde_json::{Value, json};

const NODES: usize = 3;
const EVENTS: usize = 100;

fn everything() -> Value {
    json!({ "#t": [TOPIC], "limit": 500 })
}

fn node_on(url: &str, more: &str) -> Node {
    Node::start_with("required", &format!("store = \"{url}\"\n{more}"))
}

/// A pseudo-random generator with a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A random event of an author who writes to all nodes at once, so that versions of one key compete in the database.
fn random_event(dice: &mut Dice, keys: &Keys, own: &[Event], number: usize) -> Event {
    let at = Timestamp::from_secs(Timestamp::now().as_secs() - dice.roll(50));
    let made = |builder: EventBuilder| builder.custom_created_at(at).tag(topic()).sign_with_keys(keys).unwrap();
    let text = format!("{number} {}", dice.roll(1_000_000));
    match dice.roll(10) {
        0 | 1 if !own.is_empty() => deletion(keys, &own[dice.roll(own.len() as u64) as usize]),
        2 => made(EventBuilder::new(Kind::Metadata, text)),
        3 => made(EventBuilder::new(Kind::RelayList, text)),
        4..=6 => {
            let identifier = Tag::identifier(dice.roll(3).to_string());
            made(EventBuilder::new(Kind::LongFormTextNote, text).tag(identifier))
        }
        _ => made(EventBuilder::text_note(text)),
    }
}

/// Publishes again after errors: a test may just have ended the session.
async fn publish_with_retries(client: &mut Client, event: &Event) {
    while client.publish(event).await.1.starts_with("error:") {}
}

async fn write(mut client: Client, keys: Keys, seed: u64) {
    let (mut dice, mut own) = (Dice(seed), Vec::new());
    for number in 0..EVENTS {
        let event = random_event(&mut dice, &keys, &own, number);
        publish_with_retries(&mut client, &event).await;
        own.push(event);
    }
}

/// The ids of the events that a subscriber receives up to the event `last`.
async fn listen(mut client: Client, last: String) -> Vec<String> {
    let mut heard = Vec::new();
    while heard.last() != Some(&last) {
        let message = client.hear().await;
        assert_eq!(message[0], "EVENT", "{message}");
        heard.push(message[2]["id"].as_str().unwrap().to_owned());
    }
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscribers_of_three_nodes_see_the_same_events_in_the_same_order() {
    // W-2, W-3, O-4, O-5, E-6
    let database = Database::new().await;
    let nodes: Vec<Node> = (0..NODES).map(|_| node_on(&database.url(), "")).collect();
    let shared = Keys::generate();
    let last = note(&shared, "the last one");
    let mut listeners = Vec::new();
    for node in nodes.iter().chain(&nodes) {
        let mut client = node.client().await;
        assert_eq!(client.request("r", &[everything()]).await, Vec::<String>::new());
        listeners.push(tokio::spawn(listen(client, last.id.to_hex())));
    }
    let mut writers = Vec::new();
    for (seed, node) in (1..).zip(nodes.iter()) {
        writers.push(tokio::spawn(write(node.client().await, shared.clone(), seed)));
        writers.push(tokio::spawn(write(node.client().await, Keys::generate(), 10 + seed)));
    }
    // Ends sessions that listen, write or read meanwhile.
    let (url, sessions) =
        (database.url(), "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
    for and in ["AND query LIKE 'LISTEN%'", "AND random() < 0.3", "AND query LIKE 'LISTEN%'"] {
        tokio::time::sleep(Duration::from_millis(400)).await;
        database::run(&url, &format!("SELECT pg_terminate_backend(pid) {sessions} {and}")).await.unwrap();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    publish_with_retries(&mut nodes[1].client().await, &last).await;

    let mut answers = Vec::new();
    for node in &nodes {
        answers.push(node.client().await.request("r", &[everything()]).await);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "stored events are the same for all");
    let effective: HashSet<&String> = answers[0].iter().collect();
    assert!(effective.len() > EVENTS && effective.len() < 500, "{}", effective.len());

    let rows = nodes[0].run(&["outbox", "tail", "--after", "0", "--json"]).ok();
    let mut became: HashMap<String, usize> = HashMap::new();
    for (place, row) in rows.lines().enumerate() {
        let row: Value = serde_json::from_str(row).unwrap();
        if row["op"] == "upsert" {
            became.insert(row["event_id"].as_str().unwrap().to_owned(), place);
        }
    }
    for listener in listeners {
        let heard = listener.await.unwrap();
        let places: Vec<usize> = heard.iter().map(|id| became[id]).collect();
        assert!(places.is_sorted(), "in the order in which they became effective");
        assert_eq!(heard.iter().collect::<BTreeSet<_>>().len(), heard.len(), "nothing comes twice");
        let missing: Vec<_> = effective.iter().filter(|id| !heard.contains(id)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    assert!(nodes[2].run(&["check"]).ok().contains("all is well"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_stay_connected_while_the_server_is_stopped_and_no_acknowledged_event_is_lost() {
    // P-3, W-3
    let cluster = Cluster::at(private(&format!("postgres-away-{}", std::process::id())));
    cluster.start().unwrap();
    let nodes = [node_on(&cluster.url(), ""), node_on(&cluster.url(), "")];
    let keys = Keys::generate();
    let last = note(&keys, "the last one");
    let mut subscriber = nodes[1].client().await;
    subscriber.request("r", &[everything()]).await;
    let subscriber = tokio::spawn(listen(subscriber, last.id.to_hex()));
    let mut client = nodes[0].client().await;
    let mut reader = nodes[1].client().await;
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        let mut away: Option<std::thread::JoinHandle<()>> = None;
        for number in 0.. {
            if number == 30 {
                let cluster = Cluster::at(private(&format!("postgres-away-{}", std::process::id())));
                away = Some(std::thread::spawn(move || {
                    cluster.stop(if round == 0 { "immediate" } else { "fast" }).unwrap();
                }));
            }
            let event = note(&keys, &format!("{round} {number}"));
            match client.publish(&event).await {
                (true, _) => acknowledged.push(event),
                (false, message) => {
                    assert!(message.starts_with("error:"), "{message}");
                    break;
                }
            }
        }
        away.expect("it was stopped").join().unwrap();
        reader.say(json!(["REQ", "away", everything()])).await;
        let answer = reader.hear().await;
        assert_eq!(
            (&answer[0], answer[2].as_str().map(|why| why.starts_with("error:"))),
            (&json!("CLOSED"), Some(true)),
            "{answer}"
        );
        cluster.start().unwrap();
        let back = note(&keys, &format!("{round} back"));
        publish_with_retries(&mut client, &back).await;
        acknowledged.push(back);
    }
    publish_with_retries(&mut client, &last).await;
    acknowledged.push(last);
    let heard = subscriber.await.unwrap();
    let stored = reader.request("r", &[everything()]).await;
    for event in acknowledged {
        assert!(stored.contains(&event.id.to_hex()), "it was acknowledged: {}", event.content);
        assert!(heard.contains(&event.id.to_hex()), "it was not live: {}", event.content);
    }
    drop(nodes);
    cluster.stop("immediate").unwrap();
    cluster.remove();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_database_broadcast_and_receive_each_event_once() {
    // G-2, G-3: both nodes are peers of each other and of the third, and each reads the rows of the other.
    let database = Database::new().await;
    let told = |nodes: &[&Node]| nodes.iter().map(|node| format!("{:?}", node.peer())).collect::<Vec<_>>();
    let one = node_on(&database.url(), "");
    let other = node_on(&database.url(), &configured("", &told(&[&one])));
    let far = Node::start_with("required", &configured("", &told(&[&one, &other])));
    let nodes = [&one, &other, &far];
    let mut listeners = Vec::new();
    for node in nodes {
        node.topic("enable", TOPIC);
        listeners.push(listener(node, TOPIC).await);
    }
    for node in nodes {
        node.joined(TOPIC, 2).await;
    }
    let keys = Keys::generate();
    for (number, node) in nodes.into_iter().enumerate() {
        let event = note(&keys, &format!("from {number}"));
        assert!(node.client().await.publish(&event).await.0);
        for listener in &mut listeners {
            // A duplicate would arrive in place of the next event.
            assert_eq!(listener.hear().await[2]["id"], event.id.to_hex());
        }
    }
    for (number, node) in nodes.into_iter().enumerate() {
        eventually("it is counted", || async { node.figure("kukuri_gossip_sent_total", "") >= 1 }).await;
        assert_eq!(node.figure("kukuri_gossip_sent_total", ""), 1, "node {number} broadcast what was published on it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_query_of_a_disconnected_client_is_cancelled() {
    let database = Database::new().await;
    // The query itself would take much longer.
    let long =
        "[limits]\nquery_time = \"10m\"\ncostly_queries = 8\n[postgres]\nquery_timeout = \"10m\"\nreaders = 16\n";
    let node = node_on(&database.url(), long);
    let hold = "BEGIN; LOCK TABLE cn_relay.event_topics IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600)";
    let url = database.url();
    let holding = tokio::spawn(async move { database::run(&url, hold).await });
    let url = database.url();
    let waiting = || async {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        database::numbers(&url, waiting).await[0]
    };
    let held = || async {
        let held = "SELECT count(*) FROM pg_locks WHERE relation = 'cn_relay.event_topics'::regclass AND mode = 'AccessExclusiveLock' AND granted";
        database::numbers(&url, held).await[0] > 0
    };
    eventually("the table is locked", held).await;
    let mut patient = node.client().await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = node.client().await;
        client.say(json!(["REQ", "r", everything()])).await;
        client.say(json!(["COUNT", "c", everything()])).await;
        clients.push(client);
    }
    patient.say(json!(["REQ", "r", everything()])).await;
    eventually("all wait", || async { waiting().await == 4 }).await;
    drop(clients);
    eventually("only the one that is still there waits", || async { waiting().await == 1 }).await;
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND pid <> pg_backend_pid()";
    database::run(&database.url(), end).await.unwrap();
    assert!(holding.await.unwrap().is_err());
    assert_eq!(patient.hear().await[0], "EOSE");
}
