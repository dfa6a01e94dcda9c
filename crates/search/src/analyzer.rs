//! Text to tokens, the same for every index and for live matching.
//!
//! Scripts with spaces give words. Scripts without give overlapping bigrams, so that 東京 is found in 東京都庁, and single
//! characters for queries of one. `nostr:…` references are dropped; of a URL host and path are kept; a `#` before a word is
//! ignored.

use std::ops::Range;

use unicode_script::{Script, UnicodeScript};

use crate::folding::{Folded, fold, is_plain_dense};

/// Changes with the tokens of any text: an index of another version is rebuilt.
pub const VERSION: u32 = 2;
/// Maximum length of a word, in characters: longer ones are keys, hashes or noise.
const MAX_WORD_CHARS: usize = 48;
const REFERENCE: &str = "nostr:";

/// A searchable piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The folded text, as it is compared.
    pub text: String,
    /// Byte range in the original text.
    pub range: Range<usize>,
}

/// Why a text is tokenized.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is indexed.
    Document,
    /// It is searched for: a run of several characters gives bigrams only.
    Query,
}

/// The tokens of a text to be indexed, in order.
pub fn tokens(text: &str) -> Vec<Token> {
    collect(text, Purpose::Document)
}

/// Visits the tokens of a text to be indexed, in order, without an allocation for each.
pub fn for_each_token(text: &str, visit: impl FnMut(&str, Range<usize>)) {
    tokenize(text, Purpose::Document, visit);
}

/// The tokens that a match of this query has.
pub(crate) fn query_tokens(text: &str) -> Vec<Token> {
    collect(text, Purpose::Query)
}

fn collect(text: &str, purpose: Purpose) -> Vec<Token> {
    let mut tokens = Vec::new();
    tokenize(text, purpose, |text, range| tokens.push(Token { text: text.to_owned(), range }));
    tokens
}

fn tokenize(text: &str, purpose: Purpose, visit: impl FnMut(&str, Range<usize>)) {
    let folded = fold(text);
    let classes = folded.iter().map(|folded| Class::of(folded.character)).collect();
    let mut scan = Scan { folded: &folded, classes, at: 0, purpose, text: String::new(), visit };
    while let Some(class) = scan.class_at(scan.at) {
        match class {
            Class::Other => scan.at += 1,
            Class::Dense => scan.take_run(),
            Class::Word if scan.spells(scan.at, REFERENCE) => {
                scan.at = scan.end_of(Class::Word, scan.at + REFERENCE.len());
            }
            Class::Word => match scan.after_scheme() {
                Some(host) => scan.take_url(host),
                None => scan.take_word(),
            },
        }
    }
}

struct Scan<'t, V> {
    folded: &'t [Folded],
    /// The class of each folded character.
    classes: Vec<Class>,
    at: usize,
    purpose: Purpose,
    /// The text of the last token.
    text: String,
    visit: V,
}

impl<V: FnMut(&str, Range<usize>)> Scan<'_, V> {
    /// A run of characters without spaces between words.
    fn take_run(&mut self) {
        let end = self.end_of(Class::Dense, self.at);
        let is_single = end - self.at == 1;
        // コーヒー・マシン is also written without the dot: index the bigram across it.
        if self.purpose == Purpose::Document && self.joins_katakana(end) {
            self.push(end - 1..end + 2);
        }
        for first in self.at..end {
            if self.purpose == Purpose::Document || is_single {
                self.push(first..first + 1);
            }
            if first + 1 < end {
                self.push(first..first + 2);
            }
        }
        self.at = end;
    }

    fn take_word(&mut self) {
        let start = self.at;
        let (mut end, mut part) = (start, start);
        loop {
            end = self.end_of(Class::Word, end);
            // Ana is found in Ana's, été in l'été.
            if self.purpose == Purpose::Document && end - part > 1 && (part > start || self.is_within_word(end)) {
                self.push(part..end);
            }
            if !self.is_within_word(end) {
                break;
            }
            end += 1;
            part = end;
        }
        if end - start <= MAX_WORD_CHARS {
            self.push(start..end);
        }
        self.at = end;
    }

    /// The index after `://`, if a scheme begins here.
    fn after_scheme(&self) -> Option<usize> {
        let end = self.end_of(Class::Word, self.at);
        self.spells(end, "://").then_some(end + 3)
    }

    /// Takes host and path; query and fragment are skipped.
    fn take_url(&mut self, host: usize) {
        let is_end = |character: char| {
            character.is_whitespace() || "<>\"()[]{}|".contains(character) || Class::of(character) == Class::Dense
        };
        let rest = self.folded.get(host..).unwrap_or_default();
        let end = rest.iter().position(|folded| is_end(folded.character)).unwrap_or(rest.len());
        let path_end = rest.iter().take(end).position(|folded| "?#".contains(folded.character)).unwrap_or(end);
        self.at = if self.spells(host, "www.") { host + 4 } else { host };
        while self.at < host + path_end {
            match self.class_at(self.at) {
                Some(Class::Word) => self.take_word(),
                _ => self.at += 1,
            }
        }
        self.at = host + end;
    }

    fn push(&mut self, characters: Range<usize>) {
        let Some(some) = self.folded.get(characters.clone()) else { return };
        let (Some(first), Some(last)) = (some.first(), some.last()) else { return };
        let range = first.range.start..last.range.end;
        self.text.clear();
        let classes = &self.classes[characters];
        let letters = some.iter().zip(classes).filter(|(_, class)| **class != Class::Other);
        self.text.extend(letters.map(|(folded, _)| folded.character));
        (self.visit)(&self.text, range);
    }

    fn class_at(&self, at: usize) -> Option<Class> {
        self.classes.get(at).copied()
    }

    /// Whether there is an apostrophe with a letter after it.
    fn is_within_word(&self, at: usize) -> bool {
        let is_apostrophe = self.folded.get(at).is_some_and(|folded| matches!(folded.character, '\'' | '’'));
        is_apostrophe && self.class_at(at + 1) == Some(Class::Word)
    }

    /// Whether there is a middle dot between katakana.
    fn joins_katakana(&self, at: usize) -> bool {
        let is_katakana = |at: usize| {
            let folded = self.folded.get(at).filter(|_| self.class_at(at) == Some(Class::Dense));
            folded.is_some_and(|folded| folded.character.script_extension().contains_script(Script::Katakana))
        };
        self.spells(at, "・") && is_katakana(at - 1) && is_katakana(at + 1)
    }

    fn spells(&self, at: usize, text: &str) -> bool {
        let mut rest = self.folded.get(at..).unwrap_or_default().iter().map(|folded| folded.character);
        text.chars().all(|character| rest.next() == Some(character))
    }

    /// End of the run of a class from `at` on.
    fn end_of(&self, class: Class, at: usize) -> usize {
        let rest = self.classes.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|other| **other == class).count()
    }
}

/// How a character forms tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Part of a word; words have separators.
    Word,
    /// Of a script without spaces between words.
    Dense,
    /// Separator: space, punctuation, symbol.
    Other,
}

impl Class {
    fn of(character: char) -> Self {
        if character.is_ascii() {
            return if character.is_ascii_alphanumeric() { Self::Word } else { Self::Other };
        }
        if is_plain_dense(character) { Self::Dense } else { Self::by_script(character) }
    }

    fn by_script(character: char) -> Self {
        // Vowel signs of Thai and similar scripts are marks, not letters.
        let is_dense = is_dense(character);
        let is_mark = is_dense && unicode_normalization::char::is_combining_mark(character);
        match (character.is_alphanumeric() || is_mark, is_dense) {
            (false, _) => Self::Other,
            (true, true) => Self::Dense,
            (true, false) => Self::Word,
        }
    }
}

fn is_dense(character: char) -> bool {
    use Script::{Bopomofo, Han, Hangul, Hiragana, Katakana, Khmer, Lao, Myanmar, Thai, Tibetan};
    let dense = [Han, Hiragana, Katakana, Bopomofo, Hangul, Thai, Lao, Khmer, Myanmar, Tibetan];
    // Script extensions cover shared characters such as ー.
    let scripts = character.script_extension();
    !scripts.is_common() && dense.into_iter().any(|script| scripts.contains_script(script))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    fn asked(text: &str) -> Vec<String> {
        query_tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn plain_characters_are_dense() {
        for character in ('\u{80}'..=char::MAX).filter(|character| is_plain_dense(*character)) {
            assert_eq!(Class::by_script(character), Class::Dense, "{character}");
        }
    }

    #[test]
    fn scripts_with_spaces_give_words() {
        assert_eq!(
            texts("Hello, World! foo_bar e-mail don’t 3.14"),
            ["hello", "world", "foo", "bar", "e", "mail", "don", "dont", "3", "14"]
        );
        assert_eq!(texts("Привет мир"), ["привет", "мир"]);
        assert_eq!(texts("rock'n'roll 'quoted'"), ["rock", "roll", "rocknroll", "quoted"]);
        assert_eq!(asked("don't Ana’s"), ["dont", "anas"]);
        assert_eq!(texts("Ana’s l'été"), ["ana", "anas", "ete", "lete"]);
    }

    #[test]
    fn scripts_without_spaces_give_bigrams_and_characters() {
        assert_eq!(texts("東京都"), ["東", "東京", "京", "京都", "都"]);
        assert_eq!(asked("東京都"), ["東京", "京都"]);
        assert_eq!(asked("猫"), ["猫"]);
        assert_eq!(asked("ラーメン"), ["ラー", "ーメ", "メン"]);
        assert_eq!(asked("ﾗｰﾒﾝ"), asked("ラーメン"));
        assert!(texts("コーヒー・マシン").contains(&"ーマ".to_owned()), "with the dot or without");
        assert_eq!(asked("リンゴ・ミカン"), ["リン", "ンゴ", "ミカ", "カン"]);
        assert_eq!(asked("한국어"), ["한국", "국어"]);
        assert_eq!(asked("ไทย"), ["ไท", "ทย"]);
    }

    #[test]
    fn mixed_scripts_are_split_where_the_script_changes() {
        assert_eq!(asked("Rustで書く"), ["rust", "で書", "書く"]);
        assert_eq!(asked("第3回"), ["第", "3", "回"]);
        assert_eq!(asked("iPhone15"), ["iphone15"]);
    }

    #[test]
    fn hashtags_give_words_urls_host_and_path_and_references_nothing() {
        assert_eq!(texts("#Rust #日本"), ["rust", "日", "日本", "本"]);
        assert_eq!(texts("by nostr:npub1qqqsyqcyq5rqwzqf now"), ["by", "now"]);
        assert_eq!(texts("see https://www.Example.com/a-page?utm=1#top."), ["see", "example", "com", "a", "page"]);
        assert_eq!(texts("https://example.com/を見て"), ["example", "com", "を", "を見", "見", "見て", "て"]);
        assert_eq!(texts("https://"), Vec::<String>::new());
        assert_eq!(texts(&"a".repeat(64)), Vec::<String>::new());
    }

    #[test]
    fn symbols_give_no_tokens() {
        assert_eq!(texts("!?… ─ 🎉 \u{0} \u{200b}"), Vec::<String>::new());
    }

    #[test]
    fn tokens_keep_their_byte_range() {
        let text = "Ｒｕｓｔ と ｶﾞ";
        let originals: Vec<_> = tokens(text).into_iter().map(|token| &text[token.range]).collect();
        assert_eq!(originals, ["Ｒｕｓｔ", "と", "ｶﾞ"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_matches_itself(text in "\\PC{0,60}") {
            let of_document: std::collections::HashSet<String> = texts(&text).into_iter().collect();
            for token in query_tokens(&text) {
                assert!(of_document.contains(&token.text), "{}", token.text);
                assert!(text.get(token.range.clone()).is_some_and(|piece| !piece.is_empty()));
            }
        }

        #[test]
        fn part_of_a_text_without_spaces_matches_the_whole(
            before in "[ぁ-んァ-ヶ一-龠]{0,5}",
            part in "[ぁ-んァ-ヶ一-龠]{1,5}",
            after in "[ぁ-んァ-ヶ一-龠]{0,5}",
        ) {
            let whole = texts(&format!("{before}{part}{after}"));
            let of_document: std::collections::HashSet<String> = whole.into_iter().collect();
            assert!(asked(&part).iter().all(|token| of_document.contains(token)));
        }
    }
}
