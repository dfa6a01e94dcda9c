//! Requests that read much and find little.

use std::fmt::Write as _;

use super::publishing::random_hex;
use crate::attack::{
    attacker::{Attacker, TOPIC, publication, stranger},
    prepared::COMMON_WORD,
};

const CONNECTIONS: usize = 5;
const IN_FLIGHT: usize = 4;
/// The most filters of one request.
const FILTERS: usize = 20;
/// The most of them that may search.
const SEARCHES: usize = 4;

fn message(word: &str, id: u64, filters: usize, filter: impl Fn(usize) -> String) -> String {
    let mut message = format!(r#"["{word}","s{}""#, id % 16);
    for index in 0..filters {
        let _ = write!(message, ",{}", filter(index));
    }
    message + "]"
}

/// Counts everything, many times over.
pub(super) async fn count(attacker: Attacker) {
    let filter = |index: usize| format!(r##"{{"#t":["{TOPIC}"],"since":{index}}}"##);
    attacker.flood(CONNECTIONS, IN_FLIGHT, |n| message("COUNT", n, FILTERS, filter)).await;
}

/// Searches for a word that is in every post, with a condition that none of them meets.
pub(super) async fn search(attacker: Attacker) {
    let filter =
        |index: usize| format!(r##"{{"#t":["{TOPIC}"],"search":"{COMMON_WORD}","#x":["none {index}"],"limit":1}}"##);
    attacker.flood(CONNECTIONS, IN_FLIGHT, |n| message("REQ", n, SEARCHES, filter)).await;
}

/// Publishes long posts, and searches before they are indexed.
pub(super) async fn lag(attacker: Attacker) {
    let text = format!("{COMMON_WORD} report, long form. ").repeat(60 * 1024 / 27);
    let posts = attacker.flood(1, IN_FLIGHT, |n| publication(&stranger(n, 1).tag(["t", TOPIC]).content(&text).sign()));
    let searches = attacker.flood(CONNECTIONS, IN_FLIGHT, |n| {
        message("REQ", n, SEARCHES, |index| {
            format!(r##"{{"#t":["{TOPIC}"],"search":"nothing{index} has this","limit":5}}"##)
        })
    });
    tokio::join!(posts, searches);
}

/// Opens reconciliations of everything: every other one with nothing to compare, the rest with as many ids as a message holds.
pub(super) async fn neg(attacker: Attacker) {
    // Version 1, one range up to infinity, a list of no ids.
    let nothing = "6100000200".to_owned();
    // The same with 7,000 ids: a number in base 128, and 32 bytes each.
    let ids: String = (0..7_000).map(random_hex).collect();
    let many = format!("61000002b658{ids}");
    let open = |n: u64| {
        let opening = if n.is_multiple_of(2) { &nothing } else { &many };
        format!(r##"["NEG-OPEN","n{}",{{"#t":["{TOPIC}"]}},"{opening}"]"##, n % 4)
    };
    attacker.flood(CONNECTIONS, IN_FLIGHT, open).await;
}
