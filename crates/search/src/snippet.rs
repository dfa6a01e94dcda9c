//! The piece of a text that matches a search, with the matches marked.

use std::ops::Range;

use crate::{analyzer::tokens, query::SearchQuery};

/// A piece of a text and the matches in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// The piece, with an ellipsis where text was cut off.
    pub text: String,
    /// Byte ranges of the matches: ascending, disjoint, not adjacent.
    pub marks: Vec<Range<usize>>,
}

const ELLIPSIS: &str = "…";
/// One in this many characters of a piece stands before its first match.
const LEAD_DIVISOR: usize = 4;

impl Snippet {
    /// About `max_chars` characters around the densest group of matches.
    pub fn of(text: &str, query: &SearchQuery, max_chars: usize) -> Self {
        let found =
            merged(tokens(text).into_iter().filter(|token| query.asks_for(&token.text)).map(|token| token.range));
        let piece = cut(text, best_start(text, &found, max_chars), max_chars);
        let lead = if piece.start > 0 { ELLIPSIS } else { "" };
        let tail = if piece.end < text.len() { ELLIPSIS } else { "" };
        let within = found.into_iter().filter(|mark| mark.start >= piece.start && mark.end <= piece.end);
        let moved = |at: usize| at - piece.start + lead.len();
        let marks = within.map(|mark| moved(mark.start)..moved(mark.end)).collect();
        // A result takes one line.
        let flat: String = text[piece].chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect();
        Self { text: format!("{lead}{flat}{tail}"), marks }
    }

    /// HTML: the text escaped, matches in `<mark>`.
    pub fn to_html(&self) -> String {
        let (mut html, mut at) = (String::new(), 0);
        for mark in &self.marks {
            let (before, marked) = (&self.text[at..mark.start], &self.text[mark.clone()]);
            html += &format!("{}<mark>{}</mark>", escape(before), escape(marked));
            at = mark.end;
        }
        html + &escape(&self.text[at..])
    }
}

/// Merges ranges that touch or overlap, as bigrams do.
fn merged(ranges: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut ranges: Vec<_> = ranges.collect();
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Start of the match with the most matches within `max_chars` after it.
fn best_start(text: &str, found: &[Range<usize>], max_chars: usize) -> usize {
    // Characters as bytes, by the text's average: a short window still holds its first match.
    let reach = max_chars * text.len() / text.chars().count().max(1);
    let in_reach =
        |first: usize| found[first..].iter().take_while(|range| range.end <= found[first].start + reach).count();
    let best = (0..found.len()).max_by_key(|first| (in_reach(*first), usize::MAX - first));
    best.map_or(0, |first| found[first].start)
}

/// `max_chars` characters around `start`, beginning after a space if there is one before `start`.
fn cut(text: &str, start: usize, max_chars: usize) -> Range<usize> {
    let before = text[..start].char_indices().rev().take(max_chars / LEAD_DIVISOR).last().map_or(start, |(at, _)| at);
    // Near the end of a text the piece is filled with text before `start`.
    let rest = text[before..].chars().count();
    let missing = max_chars.saturating_sub(rest);
    let mut first = text[..before].char_indices().rev().take(missing).last().map_or(before, |(at, _)| at);
    if first > 0
        && let Some(space) = text[first..start].find(char::is_whitespace)
    {
        first += space;
        first += text[first..].chars().next().map_or(0, char::len_utf8);
    }
    let end = text[first..].char_indices().nth(max_chars).map_or(text.len(), |(at, _)| first + at);
    first..end
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str, query: &str, max_chars: usize) -> String {
        Snippet::of(text, &SearchQuery::parse(query).unwrap(), max_chars).to_html()
    }

    #[test]
    fn matches_are_marked_in_their_original_spelling() {
        assert_eq!(
            html("Learning Ｒｕｓｔ in 東京都内", "rust 東京都", 100),
            "Learning <mark>Ｒｕｓｔ</mark> in <mark>東京都</mark>内"
        );
        assert_eq!(html("Tea & <b>tea</b>", "tea", 100), "<mark>Tea</mark> &amp; &lt;b&gt;<mark>tea</mark>&lt;/b&gt;");
    }

    #[test]
    fn long_text_is_cut_around_the_most_matches() {
        let text = format!("green {} green tea here {}", "word ".repeat(50), "end ".repeat(50));
        let shown = html(&text, "green tea", 40);
        assert!(shown.contains("<mark>green</mark> <mark>tea</mark> here"), "{shown}");
        assert!(shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        let at_the_end = html(&format!("{}tea", "word ".repeat(50)), "tea", 40);
        assert!(at_the_end.ends_with("word <mark>tea</mark>") && at_the_end.chars().count() > 40, "{at_the_end}");
    }

    #[test]
    fn text_without_a_match_is_cut_at_its_beginning() {
        assert_eq!(html("one\ntwo three", "absent", 7), "one two…");
        assert_eq!(html("", "absent", 7), "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_bounded_piece_with_valid_marks(
            text in "\\PC{0,80}",
            query in "\\w{1,5}",
            max_chars in 1_usize..40,
        ) {
            let Ok(query) = SearchQuery::parse(&query) else { return Ok(()) };
            let snippet = Snippet::of(&text, &query, max_chars);
            assert!(snippet.text.chars().count() <= max_chars + 2);
            for mark in &snippet.marks {
                assert!(snippet.text.get(mark.clone()).is_some_and(|marked| !marked.is_empty()));
            }
        }
    }
}
