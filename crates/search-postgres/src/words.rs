//! The words of a document as columns.

use std::collections::BTreeMap;

use kukuri_search::{Text, analyzer::tokens};

/// Separates words and counts; occurs in neither.
const SEPARATOR: &str = " ";
pub(crate) const TOPIC_SEPARATOR: &str = "\u{1f}";

/// Lists are joined to one text each: arrays of arrays must have equal lengths.
pub(crate) struct Words {
    pub(crate) terms: String,
    /// How often each term occurs.
    pub(crate) title_counts: String,
    pub(crate) body_counts: String,
    /// Words in the body.
    pub(crate) length: i32,
}

impl Words {
    pub(crate) fn of(text: &Text) -> Self {
        let (title, body) = (tokens(&text.title), tokens(&text.body));
        let length = i32::try_from(body.len()).unwrap_or(i32::MAX);
        let mut counts: BTreeMap<String, [i16; 2]> = BTreeMap::new();
        for (part, tokens) in [title, body].into_iter().enumerate() {
            for token in tokens {
                let count = &mut counts.entry(token.text).or_default()[part];
                *count = count.saturating_add(1);
            }
        }
        let [title_counts, body_counts] =
            [0, 1].map(|part| joined(counts.values().map(|counts| counts[part]), SEPARATOR));
        Self { terms: joined(counts.keys(), SEPARATOR), title_counts, body_counts, length }
    }
}

pub(crate) fn joined<T: ToString>(values: impl Iterator<Item = T>, separator: &str) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(separator)
}

/// One value of each row.
pub(crate) fn column<'r, T, U>(rows: &'r [T], value: impl Fn(&'r T) -> U) -> Vec<U> {
    rows.iter().map(value).collect()
}
