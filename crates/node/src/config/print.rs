//! The configuration as text: the effective one, and an example file.

use super::{
    Loaded,
    section::{Section, sections},
};

/// The effective configuration: a file that would set it, each value with where it came from.
pub(crate) fn effective(loaded: &Loaded) -> String {
    let values = loaded.settings.values();
    let mut out = String::new();
    for about in sections() {
        heading(&mut out, about.name);
        for key in &about.keys {
            let value = values.iter().find(|(full, _)| *full == key.full).and_then(|(_, value)| value.as_ref());
            let line = match value {
                Some(value) => format!("{} = {value}  # {}\n", key.name(), loaded.source(key.full).of(key.full)),
                None => format!("# {} is not set\n", key.name()),
            };
            out.push_str(&line);
        }
    }
    out
}

/// A file in which nothing is set yet, and everything is explained.
pub(crate) fn example() -> String {
    let mut out =
        "# Everything that can be set. What is commented out has its default, or none and an example.\n\n".to_owned();
    for about in sections() {
        heading(&mut out, about.name);
        comment(&mut out, &about.doc);
        for key in &about.keys {
            out.push('\n');
            let bounds = key.bounds.as_ref().map(|bounds| format!(" ({bounds})")).unwrap_or_default();
            comment(&mut out, &format!("{}{bounds}", key.doc));
            if let Some(value) = key.default.as_ref().or(key.example.as_ref()) {
                out.push_str(&format!("#{} = {value}\n", key.name()));
            }
        }
    }
    out
}

fn heading(out: &mut String, section: &str) {
    if !section.is_empty() {
        out.push_str(&format!("\n[{section}]\n"));
    }
}

/// Text as comment lines of a bearable width.
fn comment(out: &mut String, text: &str) {
    let mut line = "#".to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            out.push_str(&line);
            out.push('\n');
            line = "#".to_owned();
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}
