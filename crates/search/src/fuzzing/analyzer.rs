//! Any text that is indexed or searched for.

use std::collections::HashSet;

use crate::{
    analyzer::{Token, query_tokens, tokens},
    query::{MAX_QUERY_CHARS, MAX_QUERY_TOKENS, SearchQuery},
};

/// Characters that one character folds to, at most (U+FDFA).
const MAX_FOLDED_CHARS: usize = 18;

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let indexed = tokens(text);
    check_tokens(text, &indexed);
    let indexed: HashSet<String> = indexed.into_iter().map(|token| token.text).collect();
    let asked = query_tokens(text);
    check_tokens(text, &asked);
    for token in &asked {
        assert!(indexed.contains(&token.text), "{} is not found in its own text", token.text);
    }
    check_query(text);
}

fn check_tokens(text: &str, tokens: &[Token]) {
    // A character, a bigram, and one across a middle dot.
    assert!(tokens.len() <= 3 * MAX_FOLDED_CHARS * text.chars().count());
    for token in tokens {
        assert!(!token.text.is_empty());
        assert!(!token.text.contains(char::is_whitespace), "{:?}", token.text);
        assert!(text.get(token.range.clone()).is_some_and(|piece| !piece.is_empty()), "{token:?}");
    }
}

fn check_query(text: &str) {
    let Ok(query) = SearchQuery::parse(text) else { return };
    assert!(text.chars().count() <= MAX_QUERY_CHARS);
    assert!((1..=MAX_QUERY_TOKENS).contains(&query.tokens().len()));
    assert!(query.tokens().is_sorted_by(|left, right| left < right));
    assert!(query.tokens().iter().all(|token| query.asks_for(token)));
    assert!(!query.asks_for(""));
}
