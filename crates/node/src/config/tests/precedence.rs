//! Precedence of the layers (file, environment, flags), and which values count as set.

use std::path::PathBuf;

use kukuri_config::Layer;

use super::{Given, from_file};
use crate::config::{Flags, Settings, StorePlace, needs_restart};

const FILE: &str =
    "listen = '127.0.0.1:1'\ndata = 'from-file'\nstore = 'lmdb:from-file'\n[limits]\nfilters = 1\nlimit = 1";

#[test]
fn without_layers_every_key_has_its_default() {
    let loaded = Given::default().load().unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(loaded.layer("listen"), &Layer::Default);
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let given = Given {
        file: Some(FILE),
        variables: &[("KUKURI_DATA", "from-variable"), ("KUKURI_LISTEN", "127.0.0.1:2"), ("KUKURI_LIMITS_LIMIT", "2")],
        flags: &[("listen", "127.0.0.1:3")],
    };
    let loaded = given.load().unwrap();
    let settings = &loaded.settings;
    assert_eq!(settings.listen.port(), 3);
    assert_eq!(settings.data, PathBuf::from("from-variable"));
    assert_eq!(settings.store_place(), StorePlace::Lmdb("from-file".into()));
    assert_eq!((settings.limits.filters, settings.limits.limit), (1, 2), "a section is merged key by key");
    for (key, location) in [
        ("listen", "--listen"),
        ("data", "KUKURI_DATA"),
        ("store", "kukuri.toml"),
        ("limits.filters", "kukuri.toml"),
        ("limits.limit", "KUKURI_LIMITS_LIMIT"),
        ("limits.idle", "default"),
    ] {
        assert_eq!(loaded.layer(key).location(key), location, "{key}");
    }
}

#[test]
fn of_a_flag_given_twice_the_last_one_counts() {
    // Before and after the command.
    let flags = [("listen", "127.0.0.1:1"), ("listen", "127.0.0.1:2")];
    assert_eq!(Given { flags: &flags, ..Given::default() }.load().unwrap().settings.listen.port(), 2);
}

#[test]
fn variables_are_read_in_the_form_of_their_key() {
    let variables = [
        ("KUKURI_TOPICS_OPEN", "false"),
        ("KUKURI_RELAY_NAME", "1000"),
        ("KUKURI_RELAY_CONTACT", "true"),
        ("KUKURI_RELAY_LANGUAGE_TAGS", " ja, en ,"),
        ("KUKURI_DENY_KINDS", "4,20000-29999"),
        ("KUKURI_CAPACITY_MAX_BYTES", "1024"),
        ("KUKURI_AUTH_ENFORCE_AT", "1772323200"),
    ];
    let settings = Given { variables: &variables, ..Given::default() }.load().unwrap().settings;
    assert!(!settings.topics.open);
    assert_eq!(settings.relay.name, "1000");
    assert_eq!(settings.relay.contact.as_deref(), Some("true"));
    assert_eq!(settings.relay.language_tags, ["ja", "en"]);
    assert_eq!(settings.deny.kinds.len(), 2);
    assert_eq!(settings.store_rules().capacity.max_bytes, Some(1_024));
    assert_eq!(settings.auth.enforce_at.unwrap().unix_timestamp(), 1_772_323_200);
}

#[test]
fn empty_variables_and_variables_of_tests_and_other_programs_set_nothing() {
    let variables =
        [("KUKURI_LIMITS_FILTERS", ""), ("KUKURI_CONFIG", ""), ("KUKURI_TEST_CASES", "7"), ("PATH", "/bin")];
    let loaded = Given { variables: &variables, file: Some(FILE), ..Given::default() }.load().unwrap();
    assert_eq!(loaded.settings.limits.filters, 1);
}

#[test]
fn a_time_is_text_a_toml_time_or_a_number() {
    for value in ["'2026-03-01T09:00:00+09:00'", "2026-03-01T00:00:00Z", "2026-03-01 00:00:00Z", "1772323200"] {
        let settings = from_file(&format!("auth.enforce_at = {value}")).unwrap().settings;
        assert_eq!(settings.auth.enforce_at.unwrap().unix_timestamp(), 1_772_323_200, "{value}");
    }
}

#[test]
fn config_flag_wins_over_config_variable() {
    let named = |flag: Option<&str>, variable: &str| {
        let variables = [("KUKURI_CONFIG", variable)];
        let given = Given { file: Some(FILE), variables: &variables, ..Given::default() };
        given.load_with(&Flags { config: flag.map(Into::into), values: Vec::new() })
    };
    assert_eq!(named(Some("kukuri.toml"), "other.toml").unwrap().settings.listen.port(), 1);
    let error = named(None, "other.toml").unwrap_err().to_string();
    assert_eq!(error, "other.toml, named by KUKURI_CONFIG, can't be read: entity not found");
    let error = named(Some("other.toml"), "kukuri.toml").unwrap_err().to_string();
    assert_eq!(error, "other.toml, named by --config, can't be read: entity not found");
}

#[test]
fn a_reload_knows_the_changed_keys_and_which_need_a_restart() {
    let before = from_file("[limits]\nfilters = 5\n[topics]\nnetwork = 'a:'").unwrap();
    let after = from_file("listen = '127.0.0.1:1'\n[topics]\nnetwork = 'b:'").unwrap();
    assert_eq!(before.changed_keys(&after), ["listen", "topics.network", "limits.filters"]);
    assert!(before.changed_keys(&before).is_empty());
    let with_password = |word: &str| from_file(&format!("store = 'postgres://kukuri:{word}@db/kukuri'")).unwrap();
    assert_eq!(
        with_password("old").changed_keys(&with_password("new")),
        ["store"],
        "the hidden password is compared too"
    );
    let written_as_default = from_file("[limits]\nfilters = 5\nidle = '60s'\n[topics]\nnetwork = 'a:'").unwrap();
    assert!(before.changed_keys(&written_as_default).is_empty(), "writing a default into the file changes nothing");

    assert!(needs_restart("listen") && needs_restart("topics.network") && !needs_restart("limits.filters"));
}
