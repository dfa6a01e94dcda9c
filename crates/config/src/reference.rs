//! The documentation of all keys in Markdown.

use std::collections::BTreeSet;

use crate::{KeyInfo, Language, Schema, flag_of};

/// A heading for each section, an entry for each key. `flags`: the flags of the command line.
pub fn reference(schema: &Schema, flags: &BTreeSet<String>, language: Language) -> String {
    let mut out = String::new();
    for section in &schema.sections {
        let title = match (section.name, language) {
            ("", Language::English) => "Before the sections".to_owned(),
            ("", Language::Japanese) => "セクションの前".to_owned(),
            (name, _) => format!("`[{name}]`"),
        };
        out.push_str(&format!("\n### {title}\n\n{}\n\n", section.doc.text(language)));
        for key in &section.keys {
            out.push_str(&entry(key, flags, language));
        }
    }
    out
}

fn entry(key: &KeyInfo, flags: &BTreeSet<String>, language: Language) -> String {
    let words = Words::of(language);
    let mut facts = vec![match (&key.default, &key.example) {
        (Some(value), _) => format!("{} `{value}`", words.default),
        (None, Some(value)) => format!("{} `{value}`", words.not_set_example),
        (None, None) => words.not_set.to_owned(),
    }];
    facts.extend(key.bounds.in_words(language));
    facts.push(format!("`{}`", key.variable()));
    facts.extend(flags.get(&flag_of(key.full)).map(|flag| format!("`{flag}`")));
    facts.push(if key.needs_restart { words.restart } else { words.reloaded }.to_owned());
    let [open, close] = words.parentheses;
    format!("- **`{}`**{open}{}{close}<br>\n  {}\n", key.full, facts.join(" · "), key.doc.text(language))
}

struct Words {
    default: &'static str,
    not_set: &'static str,
    not_set_example: &'static str,
    restart: &'static str,
    reloaded: &'static str,
    parentheses: [&'static str; 2],
}

impl Words {
    fn of(language: Language) -> Self {
        match language {
            Language::English => Self {
                default: "default",
                not_set: "not set",
                not_set_example: "not set; for example",
                restart: "restart",
                reloaded: "reloaded",
                parentheses: [" (", ")"],
            },
            Language::Japanese => Self {
                default: "既定値",
                not_set: "未設定",
                not_set_example: "未設定、例",
                restart: "要再起動",
                reloaded: "再読み込み可",
                parentheses: ["（", "）"],
            },
        }
    }
}
