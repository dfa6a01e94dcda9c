//! The test vectors of `docs/topics.md` hold (T-2, T-3).

use kukuri_domain::{TopicId, topic::TopicRules};

const DOCUMENT: &str = include_str!("../../../../docs/topics.md");

/// One row of the table, its cells without the marks around them.
struct Vector {
    name: String,
    network: &'static str,
    normalized: Option<String>,
    topic: &'static str,
    gossip: &'static str,
}

/// The rows whose first cell is a JSON string.
fn vectors() -> Vec<Vector> {
    let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `\""));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [name, network, normalized, topic, gossip] = cells[..] else { panic!("five cells: {row}") };
        let text = |cell: &str| serde_json::from_str(cell).unwrap_or_else(|error| panic!("{cell}: {error}"));
        let normalized = (normalized != "taken as it is").then(|| text(normalized));
        Vector { name: text(name), network, normalized, topic, gossip }
    })
    .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn topic_of(network: &str, name: &str) -> TopicId {
    TopicId::from_name(network, name, &TopicRules::default()).unwrap()
}

#[test]
fn every_name_maps_to_its_topic_and_gossip_id() {
    let vectors = vectors();
    assert!(vectors.len() >= 12, "{} vectors", vectors.len());
    for Vector { name, network, topic, gossip, .. } in vectors {
        let id = topic_of(network, &name);
        assert_eq!(id.as_str(), topic, "{name:?} in {network}");
        assert_eq!(hex(&id.gossip_id()), gossip, "{name:?} in {network}");
    }
}

#[test]
fn the_ids_are_the_plain_hash_of_the_normalized_names() {
    for Vector { name, network, normalized, topic, gossip } in vectors() {
        let Some(normalized) = normalized else {
            assert_eq!(topic, name, "an id is taken as it is");
            continue;
        };
        let hash = blake3::hash(format!("{network}{normalized}").as_bytes()).to_hex();
        assert_eq!(topic, format!("kukuri:{hash}"), "{name:?}");
        assert_eq!(gossip, hash.as_str(), "{name:?}");
        assert_eq!(topic_of(network, &normalized).as_str(), topic, "{name:?}: normalizing again changes nothing");
    }
}
