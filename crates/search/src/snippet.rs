//! The piece of a text that shows why it was found.

use std::ops::Range;

use crate::{analyzer::tokens, query::SearchQuery};

/// A piece of a text, and where in it what was looked for stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// The piece. Where it begins or ends within the text there is an ellipsis.
    pub text: String,
    /// In ascending order, in bytes, and apart from each other.
    pub marks: Vec<Range<usize>>,
}

const ELLIPSIS: &str = "…";
/// So much of a piece stands before the first match, one in this many characters.
const BEFORE: usize = 4;

impl Snippet {
    /// About `most` characters of a text around the place with the most of what was looked for.
    pub fn of(text: &str, query: &SearchQuery, most: usize) -> Self {
        let found =
            merged(tokens(text).into_iter().filter(|token| query.asks_for(&token.text)).map(|token| token.place));
        let piece = cut(text, best_start(text, &found, most), most);
        let lead = if piece.start > 0 { ELLIPSIS } else { "" };
        let tail = if piece.end < text.len() { ELLIPSIS } else { "" };
        let within = found.into_iter().filter(|mark| mark.start >= piece.start && mark.end <= piece.end);
        let moved = |at: usize| at - piece.start + lead.len();
        let marks = within.map(|mark| moved(mark.start)..moved(mark.end)).collect();
        // Line breaks would tear a list of results apart.
        let flat: String = text[piece].chars().map(|c| if c.is_ascii_control() { ' ' } else { c }).collect();
        Self { text: format!("{lead}{flat}{tail}"), marks }
    }

    /// As HTML: everything escaped, marks in `<mark>`.
    pub fn to_html(&self) -> String {
        let mut html = String::with_capacity(self.text.len() + self.marks.len() * 13);
        let mut at = 0;
        for mark in &self.marks {
            escape(&self.text[at..mark.start], &mut html);
            html.push_str("<mark>");
            escape(&self.text[mark.clone()], &mut html);
            html.push_str("</mark>");
            at = mark.end;
        }
        escape(&self.text[at..], &mut html);
        html
    }
}

/// Places that touch or overlap, as pairs of neighbours do, become one.
fn merged(places: impl Iterator<Item = Range<usize>>) -> Vec<Range<usize>> {
    let mut places: Vec<_> = places.collect();
    places.sort_unstable_by_key(|place| (place.start, place.end));
    let mut merged: Vec<Range<usize>> = Vec::new();
    for place in places {
        match merged.last_mut() {
            Some(last) if place.start <= last.end => last.end = last.end.max(place.end),
            _ => merged.push(place),
        }
    }
    merged
}

/// The match from which the most others are within reach.
fn best_start(text: &str, found: &[Range<usize>], most: usize) -> usize {
    // Bytes for characters, roughly: a window too short still holds its first match.
    let reach = most * text.len() / text.chars().count().max(1);
    let in_reach =
        |first: usize| found[first..].iter().take_while(|place| place.end <= found[first].start + reach).count();
    let best = (0..found.len()).max_by_key(|first| (in_reach(*first), usize::MAX - first));
    best.map_or(0, |first| found[first].start)
}

/// `most` characters, some of them before `start`, from a space on if there is one near.
fn cut(text: &str, start: usize, most: usize) -> Range<usize> {
    let before = text[..start].char_indices().rev().take(most / BEFORE).last().map_or(start, |(at, _)| at);
    // At the end of a text all the room goes to what stands before.
    let rest = text[before..].chars().count();
    let missing = most.saturating_sub(rest);
    let mut first = text[..before].char_indices().rev().take(missing).last().map_or(before, |(at, _)| at);
    if first > 0
        && let Some(space) = text[first..start].find(char::is_whitespace)
    {
        first += space;
        first += text[first..].chars().next().map_or(0, char::len_utf8);
    }
    let end = text[first..].char_indices().nth(most).map_or(text.len(), |(at, _)| first + at);
    first..end
}

fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use super::*;

    fn html(text: &str, query: &str, most: usize) -> String {
        Snippet::of(text, &SearchQuery::parse(query).unwrap(), most).to_html()
    }

    #[test]
    fn what_was_looked_for_is_marked_as_it_is_written() {
        assert_eq!(
            html("Learning Ｒｕｓｔ in 東京都内", "rust 東京都", 100),
            "Learning <mark>Ｒｕｓｔ</mark> in <mark>東京都</mark>内"
        );
        assert_eq!(html("Tea & <b>tea</b>", "tea", 100), "<mark>Tea</mark> &amp; &lt;b&gt;<mark>tea</mark>&lt;/b&gt;");
    }

    #[test]
    fn of_a_long_text_the_piece_with_the_most_matches_is_shown() {
        let text = format!("green {} green tea here {}", "word ".repeat(50), "end ".repeat(50));
        let shown = html(&text, "green tea", 40);
        assert!(shown.contains("<mark>green</mark> <mark>tea</mark> here"), "{shown}");
        assert!(shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        let at_the_end = html(&format!("{}tea", "word ".repeat(50)), "tea", 40);
        assert!(at_the_end.ends_with("word <mark>tea</mark>") && at_the_end.chars().count() > 40, "{at_the_end}");
    }

    #[test]
    fn without_a_match_the_beginning_is_shown() {
        assert_eq!(html("one\ntwo three", "absent", 7), "one two…");
        assert_eq!(html("", "absent", 7), "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_piece_of_it(text in "\\PC{0,80}", query in "\\w{1,5}", most in 1_usize..40) {
            let Ok(query) = SearchQuery::parse(&query) else { return Ok(()) };
            let snippet = Snippet::of(&text, &query, most);
            assert!(snippet.text.chars().count() <= most + 2);
            for mark in &snippet.marks {
                assert!(snippet.text.get(mark.clone()).is_some_and(|marked| !marked.is_empty()));
            }
        }
    }
}
