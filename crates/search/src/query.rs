//! The words of a search.

use std::collections::HashSet;

use crate::analyzer::query_tokens;

/// Maximum length of a search, in characters.
pub const MAX_QUERY_CHARS: usize = 512;
/// Maximum number of tokens of a search.
pub const MAX_QUERY_TOKENS: usize = 64;

/// A parsed search text. A match has every token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    tokens: Vec<String>,
}

/// Why a text can't be searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum QueryError {
    #[error("a search needs at least one word")]
    Empty,
    #[error("a search has at most {MAX_QUERY_CHARS} characters")]
    TooLong,
    #[error("a search has at most {MAX_QUERY_TOKENS} words or pairs of characters")]
    TooMany,
}

impl SearchQuery {
    /// Parses a NIP-50 search text. Extensions such as `language:en` are ignored: none is supported.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.chars().nth(MAX_QUERY_CHARS).is_some() {
            return Err(QueryError::TooLong);
        }
        let words = text.split_whitespace().filter(|word| !is_extension(word));
        let mut tokens: Vec<String> = words.flat_map(query_tokens).map(|token| token.text).collect();
        tokens.sort_unstable();
        tokens.dedup();
        match tokens.len() {
            0 => Err(QueryError::Empty),
            count if count > MAX_QUERY_TOKENS => Err(QueryError::TooMany),
            _ => Ok(Self { tokens }),
        }
    }

    /// The tokens, each once, in ascending order.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Whether a text with these tokens matches.
    pub fn is_in(&self, words: &HashSet<String>) -> bool {
        self.tokens.iter().all(|token| words.contains(token))
    }

    /// Whether the query has this token.
    pub fn asks_for(&self, token: &str) -> bool {
        self.tokens.binary_search_by(|own| own.as_str().cmp(token)).is_ok()
    }
}

/// `key:value`, but no URL and no time of day.
fn is_extension(word: &str) -> bool {
    word.split_once(':').is_some_and(|(key, value)| {
        let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_key && !value.is_empty() && !value.starts_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzer::tokens;

    fn asked(text: &str) -> Result<Vec<String>, QueryError> {
        SearchQuery::parse(text).map(|query| query.tokens)
    }

    #[test]
    fn query_has_each_word_once() {
        assert_eq!(asked("Rust rust 東京都").unwrap(), ["rust", "京都", "東京"]);
        assert_eq!(asked("  spaced\u{3000}out ").unwrap(), ["out", "spaced"]);
    }

    #[test]
    fn extensions_are_ignored_but_urls_and_times_are_not() {
        // NIP-50
        assert_eq!(asked("best apps language:en include:spam").unwrap(), ["apps", "best"]);
        assert_eq!(asked("https://example.com/apps 10:30 Re:").unwrap(), ["10", "30", "apps", "com", "example", "re"]);
    }

    #[test]
    fn empty_long_and_wordy_queries_are_refused() {
        for nothing in ["", " ", "!?…", "🎉", "language:en", "nostr:npub1qqqqqq", ".*", "\u{0}\u{7}"] {
            assert_eq!(asked(nothing), Err(QueryError::Empty), "{nothing:?}");
        }
        assert_eq!(asked(&"a ".repeat(5_000)), Err(QueryError::TooLong));
        let many: Vec<String> = (0..=MAX_QUERY_TOKENS).map(|number| number.to_string()).collect();
        assert_eq!(asked(&many.join(" ")), Err(QueryError::TooMany));
    }

    #[test]
    fn every_word_must_match() {
        let text = tokens("東京でRustの勉強会").into_iter().map(|token| token.text).collect();
        let matches = |question: &str| SearchQuery::parse(question).unwrap().is_in(&text);
        assert!(matches("rust 東京") && matches("勉強会") && matches("京") && matches("ＲＵＳＴ"));
        assert!(!matches("rust 大阪") && !matches("rus"));
    }
}
