//! A follower of a topic's changes on a real node, on either store: both are killed and resumed, and in the end the follower holds
//! exactly what is effective in the topic (W-8).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../../store-postgres/tests/support/mod.rs"]
mod database;
mod support;

use std::{collections::BTreeSet, time::Duration};

use nostr_sdk::{EventBuilder, Keys, Kind, Tag, Timestamp};
use serde_json::{Value, json};
use support::{
    Node, TOPIC,
    client::{self, Client, deletion, note},
};

const LIVES: u64 = 4;
const EVENTS: u64 = 40;

/// What a follower has, and where it was, the last last.
#[derive(Default)]
struct Follower {
    held: BTreeSet<String>,
    places: Vec<u64>,
}

impl Follower {
    /// Reads one page. Returns whether it was the last for now.
    fn read(&mut self, node: &Node, limit: u64) -> bool {
        let topic = TOPIC.replace(':', "%3A");
        let after = self.places.last().copied().unwrap_or(0);
        let (status, page) = node.get(&format!("/v1/topics/{topic}/changes?after={after}&limit={limit}"));
        assert_eq!(status, 200, "{page}");
        for change in page["changes"].as_array().unwrap() {
            let id = change["event_id"].as_str().unwrap().to_owned();
            match change["op"].as_str() {
                Some("upsert") => drop(self.held.insert(id)),
                _ => drop(self.held.remove(&id)),
            }
        }
        self.places.push(page["next"].as_u64().unwrap());
        page["next"] == page["head"]
    }

    /// What it has done is done; it knows only of an earlier place.
    fn die(&mut self, back: usize) {
        self.places.truncate(self.places.len().saturating_sub(back));
    }
}

/// A number that looks random.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn article(keys: &Keys, key: u64, version: u64) -> nostr_sdk::Event {
    let article = EventBuilder::new(Kind::LongFormTextNote, format!("version {version}"));
    let article = article.tags([client::topic(), Tag::identifier(key.to_string())]);
    article.custom_created_at(Timestamp::from(1_700_000_000 + version)).sign_with_keys(keys).unwrap()
}

async fn follow(configuration: &str) {
    let mut node = Node::start_with("required", configuration);
    let keys = Keys::generate();
    let (mut follower, mut notes) = (Follower::default(), Vec::new());
    for life in 0..LIVES {
        let mut client = Client::connect(&node).await;
        for number in life * EVENTS..(life + 1) * EVENTS {
            let chance = mixed(number);
            match chance % 5 {
                0 if !notes.is_empty() => {
                    let target = &notes[chance as usize % notes.len()];
                    client.publish(&deletion(&keys, target)).await;
                }
                1 => drop(client.publish(&article(&keys, chance % 3, mixed(chance) % 200)).await),
                _ => {
                    notes.push(note(&keys, &number.to_string()));
                    assert!(client.publish(notes.last().unwrap()).await.0);
                }
            }
            match mixed(chance) % 6 {
                0 => drop(follower.read(&node, 1 + chance % 7)),
                1 => follower.die(chance as usize % 4),
                _ => {}
            }
        }
        // Some are on their way when it ends.
        for number in 0..20 {
            client.say(json!(["EVENT", note(&keys, &format!("{life} {number}"))])).await;
        }
        tokio::time::sleep(Duration::from_millis(mixed(life) % 20)).await;
        node.kill();
        node.start_again();
    }
    while !follower.read(&node, 7) {}
    let filter: Value = json!({ "#t": [TOPIC], "limit": 500 });
    let effective: BTreeSet<String> = Client::connect(&node).await.request(filter).await.into_iter().collect();
    assert!(effective.len() > 60, "{}", effective.len());
    assert_eq!(follower.held, effective);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_ends_with_what_is_effective_on_the_embedded_store() {
    follow("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_ends_with_what_is_effective_on_postgres() {
    let database = database::Database::new().await;
    follow(&format!("store = {:?}\n", database.url())).await;
}
