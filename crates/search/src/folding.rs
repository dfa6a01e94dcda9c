//! Text folding before tokens are compared: NFKC, case, Latin accents. Each character keeps its byte range in the original.

use std::ops::Range;

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_script::{Script, UnicodeScript};

/// A folded character and the bytes of the original it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    pub(crate) character: char,
    pub(crate) range: Range<usize>,
}

/// Kana and Han characters, which folding leaves as they are: most of a Japanese text.
pub(crate) fn is_plain_dense(character: char) -> bool {
    matches!(character, 'ぁ'..='ゖ' | 'ァ'..='ヺ' | 'ー' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// Folds a text by clusters: a kana with its voicing mark, a letter with its accents.
pub(crate) fn fold(text: &str) -> Vec<Folded> {
    let mut folded = Vec::with_capacity(text.len());
    let mut rest = text.char_indices();
    let mut following = rest.next();
    while let Some((start, first)) = following {
        let mut end = start + first.len_utf8();
        following = rest.next();
        while let Some((at, next)) = following.filter(|(_, next)| joins(*next)) {
            end = at + next.len_utf8();
            following = rest.next();
        }
        let cluster = &text[start..end];
        // Fast paths.
        let is_alone = end == start + first.len_utf8();
        if is_alone && (first.is_ascii() || is_plain_dense(first)) {
            let character = first.to_ascii_lowercase();
            folded.push(Folded { character, range: start..end });
            continue;
        }
        let lower = cluster.nfkc().flat_map(fold_case).nfkc();
        for character in lower.flat_map(without_accent) {
            folded.push(Folded { character, range: start..end });
        }
    }
    folded
}

/// Whether a character belongs to the cluster of the one before it.
fn joins(character: char) -> bool {
    if character < '\u{300}' || is_plain_dense(character) {
        return false;
    }
    // Half-width voicing marks become combining marks under NFKC; Korean vowels and finals join their consonant.
    matches!(character, '\u{ff9e}' | '\u{ff9f}' | '\u{1160}'..='\u{11ff}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
        || is_combining_mark(character)
}

fn fold_case(character: char) -> impl Iterator<Item = char> {
    // Lower case equals folded case except for these.
    let (first, second) = match character {
        'ß' | 'ẞ' => ('s', Some('s')),
        'ς' => ('σ', None),
        // Unicode does not decompose strokes and ligatures; people type the plain letter.
        'æ' | 'Æ' => ('a', Some('e')),
        'œ' | 'Œ' => ('o', Some('e')),
        'ø' | 'Ø' => ('o', None),
        'ł' | 'Ł' => ('l', None),
        'đ' | 'Đ' => ('d', None),
        'ı' => ('i', None),
        other => (other, None),
    };
    first.to_lowercase().chain(second)
}

/// Removes accents from Latin letters only: the voicing marks of kana are not accents.
fn without_accent(character: char) -> impl Iterator<Item = char> {
    let is_latin = !character.is_ascii() && character.script() == Script::Latin;
    let plain = is_latin.then(|| std::iter::once(character).nfd().filter(|part| !is_combining_mark(*part)));
    let itself = (!is_latin && !is_lone_accent(character)).then_some(character);
    plain.into_iter().flatten().chain(itself)
}

/// An accent that NFKC could not compose with its letter.
fn is_lone_accent(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> String {
        fold(text).iter().map(|folded| folded.character).collect()
    }

    #[test]
    fn width_case_and_accents_are_folded() {
        for (written, compared) in [
            ("ＫＵＫＵＲＩ", "kukuri"),
            ("ｶﾞｷﾞﾊﾟ", "ガギパ"),
            ("か\u{3099}", "が"),
            ("Café", "cafe"),
            ("Cafe\u{301}", "cafe"),
            ("STRASSE Straße", "strasse strasse"),
            ("ΟΔΟΣ οδος", "οδοσ οδοσ"),
            ("Й", "й"),
            ("㍿", "株式会社"),
            ("①２", "12"),
            ("\u{1112}\u{1161}\u{11ab}", "한"),
            ("İstanbul", "istanbul"),
            ("Sørensen Łódź Œuvre", "sorensen lodz oeuvre"),
        ] {
            assert_eq!(folded(written), compared, "{written}");
        }
    }

    #[test]
    fn plain_characters_are_those_that_folding_leaves_as_they_are() {
        for character in ('\u{300}'..=char::MAX).filter(|character| is_plain_dense(*character)) {
            let text = character.to_string();
            let slow: String = text.nfkc().flat_map(fold_case).nfkc().flat_map(without_accent).collect();
            assert_eq!(slow, text);
            assert!(!is_combining_mark(character), "{text}");
        }
    }

    #[test]
    fn characters_keep_their_byte_range() {
        let text = "aｶﾞ東";
        let originals: Vec<_> = fold(text).into_iter().map(|folded| &text[folded.range]).collect();
        assert_eq!(originals, ["a", "ｶﾞ", "東"]);
    }
}
