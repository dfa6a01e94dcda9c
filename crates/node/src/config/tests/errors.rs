//! Each mistake in the configuration is one line: location, key, value, allowed values.

use kukuri_config::Schema;

use super::{Given, from_file};
use crate::config::Settings;

#[test]
fn an_error_in_the_file_is_one_line_with_path_key_and_value() {
    let key = "0".repeat(63);
    let schema = Schema::of::<Settings>();
    let names = |section: &str| {
        let section = schema.sections.iter().find(|info| info.name == section).unwrap();
        section.keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ")
    };
    let (at_the_top, in_limits) = (names(""), names("limits"));
    let sections = schema.sections.iter().skip(1).map(|section| format!("[{}]", section.name));
    let sections = sections.collect::<Vec<_>>().join(", ");
    for (text, expected) in [
        // Types and bounds.
        ("limits.filters = 'many'", r#"limits.filters = "many": must be a whole number"#),
        ("limits.filters = 1.5", "limits.filters = 1.5: must be a whole number"),
        ("limits.filters = -1", "limits.filters = -1: must be a whole number, not negative"),
        ("limits.filters = 0", "limits.filters = 0: must be at least 1"),
        ("limits.filters = true", "limits.filters = true: must be a whole number"),
        ("limits.filters = [1]", "limits.filters = [1]: must be a whole number"),
        ("limits.filters = {a = 1}", "limits.filters = {…}: must be a whole number"),
        ("rates.events_burst = 4294967296", "rates.events_burst = 4294967296: must be at most 4294967295"),
        ("capacity.purging = 256", "capacity.purging = 256: must be a whole number of percent from 0 to 100"),
        ("capacity.purge_to = 0", "capacity.purge_to = 0: must be at least 1"),
        ("capacity.purging = 101", "capacity.purging = 101: must be a whole number of percent from 0 to 100"),
        ("auth.ws_auth_timeout_seconds = 9999", "auth.ws_auth_timeout_seconds = 9999: must be from 1 to 3600"),
        (
            "limits.event_bytes = '1MB'",
            r#"limits.event_bytes = "1MB": must be a number of bytes, or a size such as 512KiB, 64MiB or 2GiB"#,
        ),
        ("limits.message_bytes = 512", "limits.message_bytes = 512: must be at least 1KiB"),
        ("limits.idle = 60", "limits.idle = 60: must be a time such as 10s, 15m, 12h or 30d, at most 36500d"),
        ("limits.idle = '0s'", r#"limits.idle = "0s": must be at least 1s"#),
        (
            "limits.idle = '1 minute'",
            r#"limits.idle = "1 minute": must be a time such as 10s, 15m, 12h or 30d, at most 36500d"#,
        ),
        (
            "retention.regular = 'never'",
            r#"retention.regular = "never": must be forever, or a time such as 12h or 30d, at most 36500d"#,
        ),
        ("topics.open = 'yes'", r#"topics.open = "yes": must be true or false"#),
        ("topics.mode = 'all'", r#"topics.mode = "all": must be required or global"#),
        ("topics.network = ''", r#"topics.network = "": must not be empty"#),
        (
            "topics.reserved = ['kukuri:lobby', 'lobby']",
            r#"topics.reserved = "lobby": must be kukuri:<name> or kukuri:<name>:*, at most 200 bytes"#,
        ),
        ("topics.reserved = 'kukuri:lobby'", r#"topics.reserved = "kukuri:lobby": must be a list"#),
        ("rate_limits = true", "rate_limits = true: must be on or off"),
        ("deletion = 'hard'", r#"deletion = "hard": must be soft or physical"#),
        (
            "log = 'kukuri=loud'",
            r#"log = "kukuri=loud": must be a level (error, warn, info, debug, trace), also by module: info,kukuri_relay=debug"#,
        ),
        (
            "listen = 'localhost'",
            r#"listen = "localhost": must be an IP address and a port, such as 127.0.0.1:7777 or [::]:7777"#,
        ),
        ("listen = 7777", "listen = 7777: must be an IP address and a port, such as 127.0.0.1:7777 or [::]:7777"),
        ("data = ''", r#"data = "": must be a path"#),
        (
            "store = 'postgres://me:secret@db:port/kukuri'",
            r#"store = "postgres://me:***@db:port/kukuri": must be lmdb: and a directory, such as lmdb:/var/lib/kukuri/store, or a URL such as postgres://user@host/database"#,
        ),
        (
            "public_url = 'https://relay.example.com'",
            r#"public_url = "https://relay.example.com": must be a URL that starts with ws:// or wss://"#,
        ),
        ("relay.icon = 'icon.png'", r#"relay.icon = "icon.png": must be a URL that starts with http:// or https://"#),
        ("relay.name = 5", "relay.name = 5: must be text"),
        (
            &format!("relay.pubkey = '{key}'"),
            &format!(r#"relay.pubkey = "{key}": must be a public key of 64 lowercase hex digits"#),
        ),
        ("deny.pubkeys = ['npub1']", r#"deny.pubkeys = "npub1": must be a public key of 64 lowercase hex digits"#),
        (
            "deny.kinds = [4, 65536]",
            "deny.kinds = 65536: must be a kind from 0 to 65535, or a range such as 20000-29999",
        ),
        (
            "deny.kinds = ['9-1']",
            r#"deny.kinds = "9-1": must be a kind from 0 to 65535, or a range such as 20000-29999"#,
        ),
        (
            "deny.ips = ['10.0.0.0/8', '10.0.0.0/40']",
            r#"deny.ips = "10.0.0.0/40": must be an IP address, or a network such as 192.0.2.0/24 or 2001:db8::/32"#,
        ),
        (
            "deny.ips = ['two\\nlines']",
            r#"deny.ips = "two\\nlines": must be an IP address, or a network such as 192.0.2.0/24 or 2001:db8::/32"#,
        ),
        (
            "deny.ips = [\"two\\nlines\"]",
            r#"deny.ips = "two\nlines": must be an IP address, or a network such as 192.0.2.0/24 or 2001:db8::/32"#,
        ),
        (
            "proxy.header = 'x forwarded for'",
            r#"proxy.header = "x forwarded for": must be the name of an HTTP header, such as x-forwarded-for"#,
        ),
        (
            "auth.enforce_at = 2026-03-01",
            r#"auth.enforce_at = "2026-03-01": must be a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds"#,
        ),
        (
            "auth.enforce_at = 'soon'",
            r#"auth.enforce_at = "soon": must be a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds"#,
        ),
        // Unknown names.
        (
            "limits.fitlers = 5",
            &format!("unknown key limits.fitlers; in [limits] there are {in_limits}; did you mean limits.filters?"),
        ),
        ("[limits]\nfoo = 5", &format!("unknown key limits.foo; in [limits] there are {in_limits}")),
        (
            "filters = 5",
            &format!("unknown key filters; before the sections there are {at_the_top}; did you mean limits.filters?"),
        ),
        (
            "lisen = ':80'",
            &format!("unknown key lisen; before the sections there are {at_the_top}; did you mean listen?"),
        ),
        ("[limit]\nfilters = 5", &format!("unknown section [limit]; there are {sections}; did you mean [limits]?")),
        ("[console]", &format!("unknown section [console]; there are {sections}")),
        ("limits = 5", "limits = 5: must be a section, [limits]"),
        // Rules between keys.
        ("capacity.shedding = 70", "capacity.shedding = 70: must be more than capacity.live_only (80)"),
        ("capacity.live_only = 95", "capacity.live_only = 95: must be less than capacity.shedding (90)"),
        ("capacity.purge_to = 100", "capacity.purge_to = 100: must be less than capacity.purging (100)"),
        (
            "capacity = {live_only = 4, shedding = 50}",
            "capacity.live_only = 4: must be more than capacity.leave_below (5)",
        ),
        ("disk.full = '4GiB'", r#"disk.full = "4GiB": must be less than disk.shedding (1GiB)"#),
        ("disk.live_only = 0", "disk.live_only = 0: must be more than disk.shedding (1GiB)"),
        ("backlog.live_only = 500000", "backlog.live_only = 500000: must be less than backlog.shedding (500000)"),
        ("backlog.cutting = 5", "backlog.cutting = 5: must be more than backlog.shedding (500000)"),
        (
            "retention.dedupe = '20d'",
            r#"retention.dedupe = "20d": must not be shorter than the longest finite retention of events"#,
        ),
        (
            "retention.regular = '200d'",
            r#"retention.regular = "200d": retention.dedupe must not be shorter than the longest finite retention of events"#,
        ),
        (
            "retention.requests = '30d'",
            r#"retention.requests = "30d": must not be shorter than the longest retention of events"#,
        ),
        (
            "store = 'postgres://me:secret@db/kukuri'\nsearch.index = 'embedded'",
            r#"search.index = "embedded": must be postgres or off with a store on Postgres"#,
        ),
        // Syntax.
        ("listen = '127.0.0.1:80'\nlimits.filters = ", "line 2: string values must be quoted, expected literal string"),
        ("a = 1\na = 2", "line 2: duplicate key"),
        ("[limits", "line 1: unclosed table, expected `]`"),
        ("name = \"open", r#"line 1: invalid basic string, expected `"`"#),
        ("limits.filters = 99999999999999999999", "line 1: the number is too large"),
    ] {
        let error = from_file(text).map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, format!("kukuri.toml: {expected}"), "{text}");
    }
}

#[test]
fn an_error_in_a_variable_names_the_variable() {
    for (name, value, expected) in [
        ("KUKURI_TOPICS_MODE", "all", r#"KUKURI_TOPICS_MODE = "all": must be required or global"#),
        ("KUKURI_LIMITS_FILTERS", "many", r#"KUKURI_LIMITS_FILTERS = "many": must be a whole number"#),
        ("KUKURI_LIMITS_FILTERS", "-5", "KUKURI_LIMITS_FILTERS = -5: must be a whole number, not negative"),
        ("KUKURI_TOPICS_OPEN", "1", "KUKURI_TOPICS_OPEN = 1: must be true or false"),
        (
            "KUKURI_DENY_KINDS",
            "1,x",
            r#"KUKURI_DENY_KINDS = "x": must be a kind from 0 to 65535, or a range such as 20000-29999"#,
        ),
        ("KUKURI_CAPACITY_SHEDDING", "70", "KUKURI_CAPACITY_SHEDDING = 70: must be more than capacity.live_only (80)"),
        (
            "KUKURI_RETENTION_REQUESTS",
            "1d",
            r#"KUKURI_RETENTION_REQUESTS = "1d": must not be shorter than the longest retention of events"#,
        ),
        ("KUKURI_LIMITS_FITLERS", "", "unknown variable KUKURI_LIMITS_FITLERS; did you mean KUKURI_LIMITS_FILTERS?"),
        ("KUKURI_METRICS", "on", "unknown variable KUKURI_METRICS"),
    ] {
        let error = Given { variables: &[(name, value)], ..Given::default() }.load().map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{name}");
    }
}

#[test]
fn an_error_in_a_flag_names_the_flag() {
    for (key, value, expected) in [
        (
            "listen",
            "7777",
            r#"--listen = "7777": must be an IP address and a port, such as 127.0.0.1:7777 or [::]:7777"#,
        ),
        ("topics.mode", "all", r#"--topics-mode = "all": must be required or global"#),
        ("public_url", "", r#"--public-url = "": must be a URL that starts with ws:// or wss://"#),
    ] {
        let error = Given { flags: &[(key, value)], ..Given::default() }.load().map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expected, "{key}");
    }
}
