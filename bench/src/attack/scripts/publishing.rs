//! Events that cost more than they look.

use kukuri_testing::{draft, events::now};

use crate::{
    attack::{
        attacker::{Attacker, TOPIC, publication, stranger},
        prepared::AUTHOR_OF_VERSIONS,
    },
    corpus::mixed,
};

const CONNECTIONS: usize = 2;
const IN_FLIGHT: usize = 8;
/// The most topics of one event.
const TOPICS: u64 = 50;
/// As many targets as an event of 128 KiB holds.
const TARGETS: u64 = 1_450;

/// Deletion requests that name topics nobody has heard of.
pub(super) async fn topics(attacker: Attacker) {
    attacker.flood(CONNECTIONS, IN_FLIGHT, |n| publication(&request_in_unknown_topics(n))).await;
}

pub(super) fn request_in_unknown_topics(n: u64) -> kukuri_domain::Event {
    let mut request = stranger(n, 5).tag(["t", TOPIC]);
    for topic in 1..TOPICS {
        request = request.tag(["t", &format!("kukuri:{}", random_hex(n * TOPICS + topic))]);
    }
    request.sign()
}

/// 64 hexadecimal digits.
pub(super) fn random_hex(number: u64) -> String {
    (0..4).map(|part| format!("{:016x}", mixed(number * 4 + part))).collect()
}

/// Deletion requests with as many targets as fit, none of them known.
pub(super) async fn deletions(attacker: Attacker) {
    attacker
        .flood(CONNECTIONS, IN_FLIGHT, |n| {
            let request = stranger(n, 5).tag(["t", TOPIC]);
            let targets = (0..TARGETS).map(|target| random_hex(n * TARGETS + target));
            publication(&targets.fold(request, |request, id| request.tag(["e", &id])).sign())
        })
        .await;
}

/// Addressable events that are kept for ever, each with a key of its own.
pub(super) async fn keys(attacker: Attacker) {
    let content = "kept for ever. ".repeat(64);
    attacker
        .flood(CONNECTIONS, IN_FLIGHT, |n| {
            publication(&stranger(n, 30_000).tag(["t", TOPIC]).tag(["d", &random_hex(n)]).content(&content).sign())
        })
        .await;
}

/// Vanish requests of an author with many replaced versions, each of a time before all of them.
pub(super) async fn vanish(attacker: Attacker) {
    let long_ago = now() - 10_000_000;
    attacker
        .flood(CONNECTIONS, IN_FLIGHT, |n| {
            publication(&draft(1, 62).by(AUTHOR_OF_VERSIONS).at(long_ago + n).tag(["relay", "ALL_RELAYS"]).sign())
        })
        .await;
}
