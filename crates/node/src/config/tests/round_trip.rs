//! The printed configuration, loaded again, sets the same values.

use kukuri_config::{Schema, TomlValue};

use super::{Given, from_file};
use crate::config::{Settings, print};

/// TOML values of all types that keys have, and within the bounds of each key.
const CANDIDATES: &[&str] = &[
    "3",
    "70",
    "85",
    "97",
    "1500000",
    "false",
    r#""名前 \"quoted\" # no comment""#,
    r#""two\nlines""#,
    r#""5m""#,
    r#""90d""#,
    r#""3MiB""#,
    r#""1536MiB""#,
    r#""off""#,
    r#""required""#,
    r#""global""#,
    r#""physical""#,
    r#""known""#,
    r#""retired""#,
    r#""[::]:80""#,
    r#""warn,kukuri_relay=debug""#,
    r#"[4, "20000-29999"]"#,
    r#"["192.0.2.1:7778"]"#,
    r#"["192.0.2.1", "2001:db8::/32"]"#,
    r#"["kukuri:lobby", "kukuri:room:*"]"#,
    r#"["https://relay.example.com"]"#,
    r#"["0000000000000000000000000000000000000000000000000000000000000002"]"#,
    r#"["ae58ff8833241ac82d6ff7611046ed67b5072d142c588d0063e942d9a75502b6@192.0.2.2:7778"]"#,
];

#[test]
fn the_effective_configuration_is_a_file_that_sets_the_same() {
    let default = from_file("").unwrap();
    assert_eq!(from_file(&print::effective(&default)).unwrap().settings, default.settings);
    for key in Schema::of::<Settings>().keys() {
        let example = key.example.iter().map(TomlValue::to_string);
        let candidates = example.chain(CANDIDATES.iter().map(ToString::to_string));
        // `retention.requests` may be finite only if `retention.current` is.
        let files = candidates.flat_map(|value| {
            ["", "retention.current = \"30d\"\n"].map(|before| format!("{before}{} = {value}", key.full))
        });
        let loaded = files.filter_map(|file| from_file(&file).ok());
        let changed: Vec<_> = loaded.filter(|loaded| loaded.changed_keys(&default).contains(&key.full)).collect();
        assert!(!changed.is_empty(), "{}: no candidate is another value than its default; add one", key.full);
        for loaded in changed {
            let printed = print::effective(&loaded);
            let again = from_file(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
            assert_eq!(again.settings, loaded.settings, "{printed}");
        }
    }
}

#[test]
fn each_value_is_printed_with_its_location() {
    let given = Given {
        file: Some("[limits]\nfilters = 7"),
        variables: &[("KUKURI_TOPICS_MODE", "global")],
        flags: &[("listen", "127.0.0.1:80")],
    };
    let printed = print::effective(&given.load().unwrap());
    for line in [
        "listen = \"127.0.0.1:80\"  # --listen",
        "# public_url is not set",
        "data = \"data\"  # default",
        "[topics]",
        "mode = \"global\"  # KUKURI_TOPICS_MODE",
        "filters = 7  # kukuri.toml",
        "trusted = [\"127.0.0.0/8\", \"::1/128\"]  # default",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}\n{printed}");
    }
}

#[test]
fn a_password_is_never_printed() {
    let loaded = from_file("store = 'postgresql://kukuri:secret@db.example.com/kukuri'").unwrap();
    let printed = print::effective(&loaded);
    let line = "store = \"postgresql://kukuri:***@db.example.com/kukuri\"  # kukuri.toml";
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
    assert!(!printed.contains("secret") && !format!("{loaded:?}").contains("secret"));
}

#[test]
fn the_example_file_sets_nothing_until_a_line_is_uncommented() {
    let example = print::example::<Settings>();
    assert_eq!(from_file(&example).unwrap().settings, Settings::default());
    assert!(example.lines().all(|line| line.chars().count() <= 100));

    // A setting is commented out without a space. The unset keys take their examples.
    let uncommented: Vec<_> = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect();
    let loaded = from_file(&uncommented.join("\n")).unwrap();
    let schema = Schema::of::<Settings>();
    let unset: Vec<_> = schema.keys().filter(|key| key.value.is_none()).map(|key| key.full).collect();
    assert_eq!(loaded.changed_keys(&from_file("").unwrap()), unset);
}
