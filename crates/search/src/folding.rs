//! Text as it is compared: compatibility forms, case and Latin accents folded, each character with its place in the
//! original.

use std::ops::Range;

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_script::{Script, UnicodeScript};

/// A folded character and the bytes of the original it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    pub(crate) character: char,
    pub(crate) place: Range<usize>,
}

/// Folds a text. Characters that belong together (a kana and its voicing, a letter and its accent) are folded together.
pub(crate) fn fold(text: &str) -> Vec<Folded> {
    let mut folded = Vec::with_capacity(text.len());
    let mut rest = text.char_indices().peekable();
    while let Some((start, first)) = rest.next() {
        let mut end = start + first.len_utf8();
        while let Some((at, next)) = rest.next_if(|(_, next)| joins(*next)) {
            end = at + next.len_utf8();
        }
        let cluster = &text[start..end];
        if cluster.len() == 1 {
            // Most text of the web.
            let character = first.to_ascii_lowercase();
            folded.push(Folded { character, place: start..end });
            continue;
        }
        let lower = cluster.nfkc().flat_map(fold_case).nfkc();
        for character in lower.flat_map(without_accent) {
            folded.push(Folded { character, place: start..end });
        }
    }
    folded
}

/// Whether a character forms one with what stands before it.
fn joins(character: char) -> bool {
    // Half-width voicing marks are no combining marks, but become such; Korean vowels and endings join their consonant.
    matches!(character, '\u{ff9e}' | '\u{ff9f}' | '\u{1160}'..='\u{11ff}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
        || is_combining_mark(character)
}

fn fold_case(character: char) -> impl Iterator<Item = char> {
    // Lower case is folded case but for a few.
    let (first, second) = match character {
        'ß' | 'ẞ' => ('s', Some('s')),
        'ς' => ('σ', None),
        // Strokes and ligatures are part of a letter to Unicode, but not to whoever types it.
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

/// A Latin letter without its accents; anything else as it is. Voicing marks of kana and the like are no accents.
fn without_accent(character: char) -> impl Iterator<Item = char> {
    let is_latin = !character.is_ascii() && character.script() == Script::Latin;
    let plain = is_latin.then(|| std::iter::once(character).nfd().filter(|part| !is_combining_mark(*part)));
    let itself = (!is_latin && !is_lone_accent(character)).then_some(character);
    plain.into_iter().flatten().chain(itself)
}

/// A Latin accent that no composed letter exists for.
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
    fn forms_cases_and_accents_of_the_same_text_are_the_same() {
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
    fn every_character_knows_where_it_came_from() {
        let text = "aｶﾞ東";
        let places: Vec<_> = fold(text).into_iter().map(|folded| &text[folded.place]).collect();
        assert_eq!(places, ["a", "ｶﾞ", "東"]);
    }
}
