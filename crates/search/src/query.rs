//! What somebody looks for.

use std::collections::HashSet;

use crate::analyzer::{Token, query_tokens};

/// The longest question, in characters.
pub const LONGEST_QUERY: usize = 512;
/// The most tokens of a question.
pub const MOST_TOKENS: usize = 64;

/// A question: every token must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchQuery {
    tokens: Vec<String>,
}

/// Why a text is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// There is nothing in it that a text could have.
    #[error("a search needs at least one word")]
    Empty,
    /// It is too long.
    #[error("a search has at most {LONGEST_QUERY} characters")]
    TooLong,
    /// It has too many words.
    #[error("a search has at most {MOST_TOKENS} words or pairs of characters")]
    TooMany,
}

impl SearchQuery {
    /// Reads a question as NIP-50 has it: words, and extensions such as `language:en`, none of which is known here.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.chars().nth(LONGEST_QUERY).is_some() {
            return Err(QueryError::TooLong);
        }
        let words = text.split_whitespace().filter(|word| !is_extension(word));
        let mut tokens: Vec<String> = words.flat_map(query_tokens).map(|token| token.text).collect();
        tokens.sort_unstable();
        tokens.dedup();
        match tokens.len() {
            0 => Err(QueryError::Empty),
            count if count > MOST_TOKENS => Err(QueryError::TooMany),
            _ => Ok(Self { tokens }),
        }
    }

    /// The tokens, each once, in ascending order.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Whether a text with these tokens is what is looked for.
    pub fn matches<'t>(&self, tokens: impl IntoIterator<Item = &'t Token>) -> bool {
        let found: HashSet<&str> = tokens.into_iter().map(|token| token.text.as_str()).collect();
        self.tokens.iter().all(|token| found.contains(token.as_str()))
    }

    /// The same for tokens that several questions are compared with.
    pub fn is_in(&self, words: &HashSet<String>) -> bool {
        self.tokens.iter().all(|token| words.contains(token))
    }

    /// Whether a token is one of those looked for.
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
    fn a_question_is_its_words_each_once() {
        assert_eq!(asked("Rust rust 東京都").unwrap(), ["rust", "京都", "東京"]);
        assert_eq!(asked("  spaced\u{3000}out ").unwrap(), ["out", "spaced"]);
    }

    #[test]
    fn extensions_are_passed_over_and_what_only_looks_like_one_is_not() {
        // NIP-50
        assert_eq!(asked("best apps language:en include:spam").unwrap(), ["apps", "best"]);
        assert_eq!(asked("https://example.com/apps 10:30 Re:").unwrap(), ["10", "30", "apps", "com", "example", "re"]);
    }

    #[test]
    fn what_can_not_be_looked_for_is_said() {
        for nothing in ["", " ", "!?…", "🎉", "language:en", "nostr:npub1qqqqqq", ".*", "\u{0}\u{7}"] {
            assert_eq!(asked(nothing), Err(QueryError::Empty), "{nothing:?}");
        }
        assert_eq!(asked(&"a ".repeat(5_000)), Err(QueryError::TooLong));
        let many: Vec<String> = (0..=MOST_TOKENS).map(|number| number.to_string()).collect();
        assert_eq!(asked(&many.join(" ")), Err(QueryError::TooMany));
    }

    #[test]
    fn every_word_must_be_there() {
        let text = tokens("東京でRustの勉強会");
        let matches = |question: &str| SearchQuery::parse(question).unwrap().matches(&text);
        assert!(matches("rust 東京") && matches("勉強会") && matches("京") && matches("ＲＵＳＴ"));
        assert!(!matches("rust 大阪") && !matches("rus"));
    }
}
