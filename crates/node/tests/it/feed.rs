//! A client follows a topic's changes on a real node, on either store. Client and node are killed and restarted; in the
//! end the client holds exactly the effective events of the topic (W-8).

use std::{collections::BTreeSet, time::Duration};

use crate::database;
use crate::support::{
    Node, TOPIC,
    events::{deletion, note, topic},
};
use nostr_sdk::{EventBuilder, Keys, Kind, Tag, Timestamp};
use serde_json::{Value, json};

const RESTARTS: u64 = 4;
const EVENTS: u64 = 40;

/// The event ids that the client holds, and the cursors that it has seen.
#[derive(Default)]
struct Follower {
    held: BTreeSet<String>,
    cursors: Vec<String>,
}

impl Follower {
    /// Reads one page. Returns whether it reached the head.
    fn read(&mut self, node: &Node, limit: u64) -> bool {
        let topic = TOPIC.replace(':', "%3A");
        let after = self.cursors.last().map_or("0", String::as_str);
        let (status, page) = node.get(&format!("/v1/topics/{topic}/changes?after={after}&limit={limit}"));
        assert_eq!(status, 200, "{page}");
        for change in page["items"].as_array().unwrap() {
            let id = change["event_id"].as_str().unwrap().to_owned();
            match change["op"].as_str() {
                Some("upsert") => drop(self.held.insert(id)),
                _ => drop(self.held.remove(&id)),
            }
        }
        self.cursors.push(page["next"].as_str().unwrap().to_owned());
        page["next"] == page["head"]
    }

    /// A crash that loses the last cursors, but not their effects.
    fn crash(&mut self, back: usize) {
        self.cursors.truncate(self.cursors.len().saturating_sub(back));
    }
}

/// A deterministic pseudo-random number.
fn mixed(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33
}

fn article(keys: &Keys, key: u64, version: u64) -> nostr_sdk::Event {
    let article = EventBuilder::new(Kind::LongFormTextNote, format!("version {version}"));
    let article = article.tags([topic(), Tag::identifier(key.to_string())]);
    article.custom_created_at(Timestamp::from(1_700_000_000 + version)).sign_with_keys(keys).unwrap()
}

async fn follow(configuration: &str) {
    let mut node = Node::start_with("required", configuration);
    let keys = Keys::generate();
    let (mut follower, mut notes) = (Follower::default(), Vec::new());
    for round in 0..RESTARTS {
        let mut client = node.client().await;
        for number in round * EVENTS..(round + 1) * EVENTS {
            let chance = mixed(number);
            match chance % 5 {
                0 if !notes.is_empty() => {
                    let target = &notes[chance as usize % notes.len()];
                    client.publish(&deletion(&keys, target)).await;
                }
                1 => drop(client.publish(&article(&keys, chance % 3, mixed(chance) % 200)).await),
                _ => {
                    notes.push(note(&keys, &number.to_string()));
                    // An error may come from a session that ended while the node was held up.
                    while let (false, reason) = client.publish(notes.last().unwrap()).await {
                        assert!(reason.starts_with("error:"), "{reason}");
                    }
                }
            }
            match mixed(chance) % 6 {
                0 => drop(follower.read(&node, 1 + chance % 7)),
                1 => follower.crash(chance as usize % 4),
                _ => {}
            }
        }
        // Some events are in flight when the node is killed.
        for number in 0..20 {
            client.say(json!(["EVENT", note(&keys, &format!("{round} {number}"))])).await;
        }
        tokio::time::sleep(Duration::from_millis(mixed(round) % 20)).await;
        node.kill();
        node.start_again();
    }
    while !follower.read(&node, 7) {}
    let filter: Value = json!({ "#t": [TOPIC], "limit": 500 });
    let effective: BTreeSet<String> = node.client().await.request("r", &[filter]).await.into_iter().collect();
    assert!(effective.len() > 60, "{}", effective.len());
    assert_eq!(follower.held, effective);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_ends_with_the_effective_events_on_the_embedded_store() {
    follow("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follower_ends_with_the_effective_events_on_postgres() {
    let database = database::Database::new().await;
    follow(&format!("store = {:?}\n", database.url())).await;
}
