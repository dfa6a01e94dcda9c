//! Requests that read much and find little.

use std::fmt::Write as _;

use crate::attack::{
    attacker::{Attacker, TOPIC, publication, stranger},
    prepared::COMMON_WORD,
};

const CONNECTIONS: usize = 5;
const IN_FLIGHT: usize = 4;
/// The most filters of one request.
const FILTERS: usize = 20;

fn message(word: &str, id: u64, filter: impl Fn(usize) -> String) -> String {
    let mut message = format!(r#"["{word}","s{}""#, id % 16);
    for index in 0..FILTERS {
        let _ = write!(message, ",{}", filter(index));
    }
    message + "]"
}

/// Counts everything, many times over.
pub(super) async fn count(attacker: Attacker) {
    let filter = |index: usize| format!(r##"{{"#t":["{TOPIC}"],"since":{index}}}"##);
    attacker.flood(CONNECTIONS, IN_FLIGHT, |n| message("COUNT", n, filter)).await;
}

/// Searches for a word that is in every post, with a condition that none of them meets.
pub(super) async fn search(attacker: Attacker) {
    let filter =
        |index: usize| format!(r##"{{"#t":["{TOPIC}"],"search":"{COMMON_WORD}","#x":["none {index}"],"limit":1}}"##);
    attacker.flood(CONNECTIONS, IN_FLIGHT, |n| message("REQ", n, filter)).await;
}

/// Publishes long posts, and searches before they are indexed.
pub(super) async fn lag(attacker: Attacker) {
    let text = format!("{COMMON_WORD} report, long form. ").repeat(60 * 1024 / 27);
    let posts = attacker.flood(1, IN_FLIGHT, |n| publication(&stranger(n, 1).tag(["t", TOPIC]).content(&text).sign()));
    let searches = attacker.flood(CONNECTIONS, IN_FLIGHT, |n| {
        message("REQ", n, |index| format!(r##"{{"#t":["{TOPIC}"],"search":"nothing{index} has this","limit":5}}"##))
    });
    tokio::join!(posts, searches);
}

/// Opens reconciliations of everything, as one who has nothing.
pub(super) async fn neg(attacker: Attacker) {
    // Version 1, one range up to infinity, a list of no ids.
    let opening = "6100000200";
    let open = |n: u64| format!(r##"["NEG-OPEN","n{}",{{"#t":["{TOPIC}"]}},"{opening}"]"##, n % 4);
    attacker.flood(CONNECTIONS, IN_FLIGHT, open).await;
}
