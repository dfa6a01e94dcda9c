//! Any text that is shown for any search: a byte for the length, a line for the search, then the text.

use crate::{query::SearchQuery, snippet::Snippet};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Some((max_chars, rest)) = bytes.split_first() else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let Some((words, text)) = rest.split_once('\n') else { return };
    let Ok(query) = SearchQuery::parse(words) else { return };
    let max_chars = usize::from(*max_chars);
    let snippet = Snippet::of(text, &query, max_chars);
    check_text(&snippet, text, max_chars);
    check_marks(&snippet);
    check_html(&snippet);
}

/// The piece is a part of the text, in one line.
fn check_text(snippet: &Snippet, text: &str, max_chars: usize) {
    assert!(snippet.text.chars().count() <= max_chars + 2, "{snippet:?}");
    assert!(!snippet.text.contains(|character: char| character.is_ascii_control()));
    let flat = text.replace(|character: char| character.is_ascii_control(), " ");
    // An ellipsis at either end may be of the text itself.
    let whole: Vec<&str> = [Some(&snippet.text[..]), snippet.text.strip_prefix('…')].into_iter().flatten().collect();
    let cut = whole.iter().filter_map(|piece| piece.strip_suffix('…'));
    assert!(whole.iter().copied().chain(cut).any(|piece| flat.contains(piece)), "{snippet:?}");
}

fn check_marks(snippet: &Snippet) {
    assert!(snippet.marks.is_sorted_by(|left, right| left.end < right.start), "{snippet:?}");
    for mark in &snippet.marks {
        assert!(snippet.text.get(mark.clone()).is_some_and(|marked| !marked.is_empty()), "{snippet:?}");
    }
}

/// The HTML has no tag but the marks, and shows the same text.
fn check_html(snippet: &Snippet) {
    let html = snippet.to_html();
    assert_eq!(html.matches("<mark>").count(), snippet.marks.len());
    let escaped = html.replace("<mark>", "").replace("</mark>", "");
    assert!(!escaped.contains(['<', '>', '"', '\'']), "{html}");
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    let shown = entities.iter().fold(escaped, |text, (entity, character)| text.replace(entity, character));
    assert_eq!(shown, snippet.text);
}
