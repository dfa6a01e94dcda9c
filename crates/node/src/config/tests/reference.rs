//! docs/configuration.md and docs/configuration.ja.md describe the keys of the code.

use std::{collections::BTreeSet, path::Path};

use clap::CommandFactory;
use kukuri_config::{Language, Schema, flag_of, reference, variable_of};

use super::from_file;
use crate::{config::Settings, options::Cli};

const REWRITE: &str = "KUKURI_TEST_WRITE_DOCS";
const MARK: &str = "<!-- From here on generated from crates/node/src/config/settings. To regenerate: \
    KUKURI_TEST_WRITE_DOCS=1 cargo test -p kukuri-node reference -->\n";

#[test]
fn the_reference_in_the_documentation_is_generated_from_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (file, language) in [("configuration.md", Language::English), ("configuration.ja.md", Language::Japanese)] {
        let path = docs.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let (prose, _) = text.split_once(MARK).expect("the mark is there");
        let expected = format!("{prose}{MARK}{}", reference(&Schema::of::<Settings>(), &flags(), language));
        if std::env::var_os(REWRITE).is_some() {
            std::fs::write(&path, expected).unwrap();
        } else {
            assert!(text == expected, "docs/{file} is out of date: {REWRITE}=1 cargo test -p kukuri-node reference");
        }
    }
}

#[test]
fn the_example_in_the_documentation_can_be_loaded() {
    for text in
        [include_str!("../../../../../docs/configuration.md"), include_str!("../../../../../docs/configuration.ja.md")]
    {
        let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let loaded = from_file(example).unwrap();
        assert!(!loaded.changed_keys(&from_file("").unwrap()).is_empty());
    }
}

#[test]
fn every_key_has_a_variable_of_its_own_and_a_default_or_an_example() {
    let schema = Schema::of::<Settings>();
    let variables: BTreeSet<_> = schema.keys().map(|key| variable_of(key.full)).collect();
    assert_eq!(variables.len(), schema.keys().count());
    for key in schema.keys() {
        assert!(key.value.is_some() || key.example.is_some(), "{}", key.full);
    }
}

#[test]
fn every_flag_sets_a_key_and_is_in_the_help() {
    let flags = flags();
    for key in ["listen", "public_url", "data", "store", "topics.mode", "rate_limits"] {
        assert!(flags.contains(&flag_of(key)), "{key}");
    }
    let of_keys: BTreeSet<_> = Schema::of::<Settings>().keys().map(|key| flag_of(key.full)).collect();
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
