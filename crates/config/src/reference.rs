//! The documentation of all keys in Markdown.

use std::collections::BTreeSet;

use crate::{KeyInfo, Language, Schema, flag_of, variable_of};

/// A heading for each section, an entry for each key. `flags`: the flags of the command line.
pub fn reference(schema: &Schema, flags: &BTreeSet<String>, language: Language) -> String {
    let mut out = String::new();
    for section in &schema.sections {
        let title = match (section.name, language) {
            ("", Language::English) => "Before the sections".to_owned(),
            ("", Language::Japanese) => "セクションの前".to_owned(),
            (name, _) => format!("`[{name}]`"),
        };
        out.push_str(&format!("\n### {title}\n\n{}\n\n", language.of(&section.doc)));
        for key in &section.keys {
            out.push_str(&entry(key, flags, language));
        }
    }
    out
}

fn entry(key: &KeyInfo, flags: &BTreeSet<String>, language: Language) -> String {
    let [default, not_set, example, restart, reloaded, open, close] = match language {
        Language::English => ["default", "not set", "not set; for example", "restart", "reloaded", " (", ")"],
        Language::Japanese => ["既定値", "未設定", "未設定、例", "要再起動", "再読み込み可", "（", "）"],
    };
    let mut facts = vec![match (&key.value, &key.example) {
        (Some(value), _) => format!("{default} `{value}`"),
        (None, Some(value)) => format!("{example} `{value}`"),
        (None, None) => not_set.to_owned(),
    }];
    facts.extend(key.bounds(language));
    facts.push(format!("`{}`", variable_of(key.full)));
    facts.extend(flags.get(&flag_of(key.full)).map(|flag| format!("`{flag}`")));
    facts.push(if key.needs_restart { restart } else { reloaded }.to_owned());
    format!("- **`{}`**{open}{}{close}<br>\n  {}\n", key.full, facts.join(" · "), language.of(&key.doc))
}
