//! Documents as columns.

use std::collections::BTreeMap;

use kukuri_search::{Document, analyzer::tokens};

/// Separates words and counts; occurs in neither.
const SEPARATOR: &str = " ";
const TOPIC_SEPARATOR: &str = "\u{1f}";

/// Documents by column, for `unnest`. Lists are joined to one text each: arrays of arrays must have equal lengths.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) ids: Vec<[u8; 32]>,
    pub(crate) authors: Vec<[u8; 32]>,
    pub(crate) kinds: Vec<i32>,
    pub(crate) created_at: Vec<i64>,
    pub(crate) topics: Vec<String>,
    pub(crate) terms: Vec<String>,
    pub(crate) title_counts: Vec<String>,
    pub(crate) body_counts: Vec<String>,
    pub(crate) lengths: Vec<i32>,
}

impl Rows {
    pub(crate) fn push(&mut self, document: &Document) {
        let body = tokens(&document.text.body);
        let length = body.len();
        let mut counts: BTreeMap<String, (u16, u16)> = BTreeMap::new();
        for token in tokens(&document.text.title) {
            let (in_title, _) = counts.entry(token.text).or_default();
            *in_title = in_title.saturating_add(1);
        }
        for token in body {
            let (_, in_body) = counts.entry(token.text).or_default();
            *in_body = in_body.saturating_add(1);
        }
        let max_count = i16::MAX as u16;
        let joined = |numbers: Vec<u16>| {
            let texts: Vec<String> = numbers.into_iter().map(|number| number.min(max_count).to_string()).collect();
            texts.join(SEPARATOR)
        };
        let topics: Vec<&str> = document.topics.iter().map(|topic| topic.as_str()).collect();
        self.ids.push(*document.id.as_bytes());
        self.authors.push(*document.author.as_bytes());
        self.kinds.push(document.kind.0.into());
        self.created_at.push(signed(document.created_at.0));
        self.topics.push(topics.join(TOPIC_SEPARATOR));
        self.title_counts.push(joined(counts.values().map(|(in_title, _)| *in_title).collect()));
        self.body_counts.push(joined(counts.values().map(|(_, in_body)| *in_body).collect()));
        self.terms.push(counts.into_keys().collect::<Vec<_>>().join(SEPARATOR));
        self.lengths.push(i32::try_from(length).unwrap_or(i32::MAX));
    }
}

/// As a `bigint`; larger values are clamped.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
