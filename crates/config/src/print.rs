//! The configuration as TOML: the effective one, and an example file.

use crate::{Language, Loaded, Schema, Section};

/// The effective configuration: a file that sets the same values, each with its location as a comment.
pub fn effective<S: Section>(loaded: &Loaded<S>) -> String {
    let mut out = String::new();
    for section in loaded.settings.describe() {
        heading(&mut out, section.name);
        for key in &section.keys {
            let line = match &key.value {
                Some(value) => {
                    format!("{} = {value}  # {}\n", key.name(), loaded.layer(key.full).location(key.full))
                }
                None => format!("# {} is not set\n", key.name()),
            };
            out.push_str(&line);
        }
    }
    out
}

/// A file with every key, its text and its default, all commented out.
pub fn example<S: Section>() -> String {
    let mut out =
        "# Everything that can be set. What is commented out has its default, or none and an example.\n\n".to_owned();
    for section in Schema::of::<S>().sections {
        heading(&mut out, section.name);
        comment(&mut out, Language::English.of(&section.doc));
        for key in &section.keys {
            out.push('\n');
            let bounds = key.bounds(Language::English).map(|bounds| format!(" ({bounds})")).unwrap_or_default();
            comment(&mut out, &format!("{}{bounds}", Language::English.of(&key.doc)));
            if let Some(value) = key.value.as_ref().or(key.example.as_ref()) {
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

/// Comment lines of at most 100 characters.
fn comment(out: &mut String, text: &str) {
    out.push('#');
    let mut width = 1;
    for word in text.split_whitespace() {
        let word_width = 1 + word.chars().count();
        if width + word_width > 100 {
            out.push_str("\n#");
            width = 1;
        }
        out.push_str(&format!(" {word}"));
        width += word_width;
    }
    out.push('\n');
}
