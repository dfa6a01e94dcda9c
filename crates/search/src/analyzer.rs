//! Text to tokens, the same for every index and for live matching.
//!
//! Scripts with spaces give words. Scripts without give pairs of neighbours, so that 東京 is found in 東京都庁, and single
//! characters for those who ask for one. References to keys and events (`nostr:…`) say nothing to a reader and are left
//! out; of a URL the host and the path are kept. A `#` before a word makes no difference.

use std::ops::Range;

use unicode_script::{Script, UnicodeScript};

use crate::folding::{Folded, fold};

/// Changes whenever texts are taken apart in another way: an index of another version has to be built anew.
pub const VERSION: u32 = 2;
/// A longer word is a key, a hash or noise.
const LONGEST_WORD: usize = 48;
const REFERENCE: &str = "nostr:";

/// A piece of a text that can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it is compared by.
    pub text: String,
    /// Where it stands in the text, in bytes.
    pub place: Range<usize>,
}

/// For what a text is taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is to be found.
    Document,
    /// It is looked for: a run of several characters by its pairs alone.
    Query,
}

/// The tokens by which a text is found, in order.
pub fn tokens(text: &str) -> Vec<Token> {
    take_apart(text, Purpose::Document)
}

/// The tokens that a text must have to be found by this one.
pub(crate) fn query_tokens(text: &str) -> Vec<Token> {
    take_apart(text, Purpose::Query)
}

fn take_apart(text: &str, purpose: Purpose) -> Vec<Token> {
    let folded = fold(text);
    let mut scan = Scan { folded: &folded, at: 0, purpose, tokens: Vec::new() };
    while scan.at < folded.len() {
        scan.step();
    }
    scan.tokens
}

struct Scan<'t> {
    folded: &'t [Folded],
    at: usize,
    purpose: Purpose,
    tokens: Vec<Token>,
}

impl Scan<'_> {
    fn step(&mut self) {
        let Some(Folded { character, .. }) = self.folded.get(self.at) else { return };
        match Class::of(*character) {
            Class::Other => self.at += 1,
            Class::Dense => self.take_run(),
            Class::Word if self.begins_with(REFERENCE) => {
                self.at = self.end_of(self.at + REFERENCE.len(), |class| class == Class::Word);
            }
            Class::Word => match self.after_scheme() {
                Some(host) => self.take_url(host),
                None => self.take_word(),
            },
        }
    }

    /// A run of characters without spaces between words.
    fn take_run(&mut self) {
        let end = self.end_of(self.at, |class| class == Class::Dense);
        let is_single = end - self.at == 1;
        // コーヒー・マシン is also written without the dot.
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
            end = self.end_of(end, |class| class == Class::Word);
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
        if end - start <= LONGEST_WORD {
            self.push(start..end);
        }
        self.at = end;
    }

    /// What follows `://`, if a scheme begins here.
    fn after_scheme(&self) -> Option<usize> {
        let end = self.end_of(self.at, |class| class == Class::Word);
        self.spells(end, "://").then_some(end + 3)
    }

    /// Host and path; what follows them is made by machines.
    fn take_url(&mut self, host: usize) {
        let is_end = |folded: &Folded| folded.character.is_whitespace() || "<>\"()[]{}|".contains(folded.character);
        let length = |from: usize, until: &dyn Fn(&Folded) -> bool| {
            let rest = self.folded.get(from..).unwrap_or_default();
            rest.iter().position(until).unwrap_or(rest.len())
        };
        let end = host + length(host, &|folded| is_end(folded) || Class::of(folded.character) == Class::Dense);
        let path_end = (host + length(host, &|folded| "?#".contains(folded.character))).min(end);
        self.at = host;
        if self.begins_with("www.") {
            self.at += 4;
        }
        while self.at < path_end {
            match self.class_at(self.at) {
                Some(Class::Word) => self.take_word(),
                _ => self.at += 1,
            }
        }
        self.at = end;
    }

    fn push(&mut self, places: Range<usize>) {
        let Some(some) = self.folded.get(places) else { return };
        let (Some(first), Some(last)) = (some.first(), some.last()) else { return };
        let text = some.iter().map(|folded| folded.character).filter(|character| Class::of(*character) != Class::Other);
        self.tokens.push(Token { text: text.collect(), place: first.place.start..last.place.end });
    }

    fn class_at(&self, at: usize) -> Option<Class> {
        self.folded.get(at).map(|folded| Class::of(folded.character))
    }

    /// Whether here is an apostrophe with a letter after it.
    fn is_within_word(&self, at: usize) -> bool {
        let is_apostrophe = self.folded.get(at).is_some_and(|folded| matches!(folded.character, '\'' | '’'));
        is_apostrophe && self.class_at(at + 1) == Some(Class::Word)
    }

    /// Whether here is a dot between words of katakana.
    fn joins_katakana(&self, at: usize) -> bool {
        let is_katakana = |at: usize| {
            self.folded.get(at).is_some_and(|folded| {
                Class::of(folded.character) == Class::Dense
                    && folded.character.script_extension().contains_script(Script::Katakana)
            })
        };
        self.spells(at, "・") && is_katakana(at - 1) && is_katakana(at + 1)
    }

    fn begins_with(&self, text: &str) -> bool {
        self.spells(self.at, text)
    }

    fn spells(&self, at: usize, text: &str) -> bool {
        let mut rest = self.folded.get(at..).unwrap_or_default().iter().map(|folded| folded.character);
        text.chars().all(|character| rest.next() == Some(character))
    }

    /// Where a run of a class ends that goes on at a place.
    fn end_of(&self, at: usize, is_in: impl Fn(Class) -> bool) -> usize {
        let rest = self.folded.get(at..).unwrap_or_default();
        let length = rest.iter().position(|folded| !is_in(Class::of(folded.character)));
        at + length.unwrap_or(rest.len())
    }
}

/// How a character is written with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// In words with something between them.
    Word,
    /// One after the other.
    Dense,
    /// Not at all: spaces, punctuation, signs.
    Other,
}

impl Class {
    fn of(character: char) -> Self {
        if character.is_ascii() {
            return if character.is_ascii_alphanumeric() { Self::Word } else { Self::Other };
        }
        // Vowel signs of Thai and the like are marks, not letters.
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
    // The extension tells where shared characters belong, such as ー.
    let scripts = character.script_extension();
    let dense = [
        Script::Han,
        Script::Hiragana,
        Script::Katakana,
        Script::Bopomofo,
        Script::Hangul,
        Script::Thai,
        Script::Lao,
        Script::Khmer,
        Script::Myanmar,
        Script::Tibetan,
    ];
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
    fn words_of_spaced_scripts() {
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
    fn pairs_and_characters_of_dense_scripts() {
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
    fn scripts_that_mix() {
        assert_eq!(asked("Rustで書く"), ["rust", "で書", "書く"]);
        assert_eq!(asked("第3回"), ["第", "3", "回"]);
        assert_eq!(asked("iPhone15"), ["iphone15"]);
    }

    #[test]
    fn hashtags_are_words_references_are_nothing_and_urls_are_host_and_path() {
        assert_eq!(texts("#Rust #日本"), ["rust", "日", "日本", "本"]);
        assert_eq!(texts("by nostr:npub1qqqsyqcyq5rqwzqf now"), ["by", "now"]);
        assert_eq!(texts("see https://www.Example.com/a-page?utm=1#top."), ["see", "example", "com", "a", "page"]);
        assert_eq!(texts("https://example.com/を見て"), ["example", "com", "を", "を見", "見", "見て", "て"]);
        assert_eq!(texts("https://"), Vec::<String>::new());
        assert_eq!(texts(&"a".repeat(64)), Vec::<String>::new());
    }

    #[test]
    fn nothing_is_found_in_signs() {
        assert_eq!(texts("!?… ─ 🎉 \u{0} \u{200b}"), Vec::<String>::new());
    }

    #[test]
    fn tokens_know_their_place() {
        let text = "Ｒｕｓｔ と ｶﾞ";
        let places: Vec<_> = tokens(text).into_iter().map(|token| &text[token.place]).collect();
        assert_eq!(places, ["Ｒｕｓｔ", "と", "ｶﾞ"]);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_apart_and_found_by_itself(text in "\\PC{0,60}") {
            let of_document: std::collections::HashSet<String> = texts(&text).into_iter().collect();
            for token in query_tokens(&text) {
                assert!(of_document.contains(&token.text), "{}", token.text);
                assert!(text.get(token.place.clone()).is_some_and(|piece| !piece.is_empty()));
            }
        }

        #[test]
        fn a_part_of_dense_text_finds_the_whole(
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
