//! `docs/configuration.md` says what the code does.

use std::{collections::BTreeSet, path::Path};

use clap::CommandFactory;

use super::from_file;
use crate::{
    config::section::{Key, flag, keys, sections},
    options::Cli,
};

const REWRITE: &str = "KUKURI_TEST_WRITE_DOCS";
const MARK: &str = "<!-- From here on made from crates/node/src/config/settings.rs. To write it anew: \
    KUKURI_TEST_WRITE_DOCS=1 cargo test -p kukuri-node reference -->\n";

#[test]
fn the_reference_in_the_documentation_is_the_one_made_from_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (prose, _) = text.split_once(MARK).expect("the mark is there");
    let expected = format!("{prose}{MARK}{}", reference());
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, expected).unwrap();
    } else {
        assert!(
            text == expected,
            "docs/configuration.md is out of date: {REWRITE}=1 cargo test -p kukuri-node reference"
        );
    }
}

#[test]
fn the_example_in_the_documentation_is_a_configuration() {
    let text = include_str!("../../../../../docs/configuration.md");
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let loaded = from_file(example).unwrap();
    assert!(!loaded.changed_keys(&from_file("").unwrap()).is_empty());
}

#[test]
fn no_two_keys_share_a_variable() {
    let variables: BTreeSet<_> = keys().map(Key::variable).collect();
    assert_eq!(variables.len(), keys().count());
}

#[test]
fn every_flag_sets_a_key_and_is_told_to_whoever_asks_for_help() {
    let flags = flags();
    for key in ["listen", "public_url", "data", "store", "topics.mode", "rate_limits"] {
        assert!(flags.contains(&flag(key)), "{key}");
    }
    let of_keys: BTreeSet<_> = keys().map(|key| flag(key.full)).collect();
    for name in flags.iter().filter(|name| *name != "--config") {
        assert!(of_keys.contains(name), "{name}");
    }
    Cli::command().debug_assert();
}

/// The flags of `serve`.
fn flags() -> BTreeSet<String> {
    let command = Cli::command();
    command.get_arguments().filter_map(|argument| argument.get_long()).map(|name| format!("--{name}")).collect()
}

/// A heading for each section, an entry for each key.
fn reference() -> String {
    let mut out = String::new();
    let flags = flags();
    for about in sections() {
        let title =
            if about.name.is_empty() { "Before the sections".to_owned() } else { format!("`[{}]`", about.name) };
        out.push_str(&format!("\n### {title}\n\n{}\n\n", about.doc));
        for key in &about.keys {
            out.push_str(&entry(key, &flags));
        }
    }
    out
}

fn entry(key: &Key, flags: &BTreeSet<String>) -> String {
    let mut facts = vec![match (&key.default, &key.example) {
        (Some(value), _) => format!("default `{value}`"),
        (None, Some(value)) => format!("not set; for example `{value}`"),
        (None, None) => panic!("{} has neither a default nor an example", key.full),
    }];
    facts.extend(key.bounds.clone());
    facts.push(format!("`{}`", key.variable()));
    facts.extend(flags.get(&flag(key.full)).map(|flag| format!("`{flag}`")));
    facts.push(if key.needs_restart { "restart" } else { "reloaded" }.to_owned());
    format!("- **`{}`** ({})<br>\n  {}\n", key.full, facts.join(" · "), key.doc)
}
