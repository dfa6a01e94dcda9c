//! What is printed can be read, and means the same.

use super::{Given, from_file};
use crate::config::{Settings, print};

/// Every key set to something else than its default.
const EVERYTHING: &str = r#"
listen = "[::]:80"
public_url = "wss://relay.example.com"
data = "/var/lib/kukuri"
store = "lmdb:/srv/store"
rate_limits = "off"
deletion = "physical"
log = "warn,kukuri_relay=debug"
[relay]
name = "名前 \"quoted\" # no comment"
description = "two\nlines"
contact = "mailto:a@example.com"
pubkey = "0000000000000000000000000000000000000000000000000000000000000001"
icon = "https://example.com/i.png"
language_tags = ["ja", "en"]
posting_policy = "https://example.com/p"
[topics]
mode = "global"
network = "kukuri:dev:"
reserved = ["kukuri:lobby", "kukuri:room:*"]
open = false
max = 1
idle = "90m"
opened_per_hour = 0
[auth]
mode = "required"
enforce_at = 2030-01-31T12:00:00Z
grace_seconds = 0
ws_auth_timeout_seconds = 1
[limits]
event_bytes = 1000
tag_count = 1
tags_bytes = "1MiB"
tag_bytes = 0
topics_per_event = 1
content_bytes = 1
created_at_ahead = "1h"
message_bytes = "1MiB"
filters = 1
filter_values = 1
subscriptions = 1
limit = 1
answer_bytes = "1MiB"
in_flight = 1
idle = "5s"
connections = 1
sync_sessions = 0
sync_events = 1
[rates]
connections_per_ip = 1
new_connections_per_minute = 1
events_per_minute = 1
events_burst = 1
requests_per_minute = 1
requests_burst = 1
backfill_per_minute = 1
backfill_burst = 1
[deny]
pubkeys = ["0000000000000000000000000000000000000000000000000000000000000002"]
kinds = [4, "20000-29999"]
ips = ["192.0.2.1", "2001:db8::/32"]
[proxy]
header = "X-Real-IP"
trusted = []
[retention]
regular = "1d"
current = "90d"
replaced = "12h"
requests = "90d"
dedupe = "forever"
outbox = "1d"
[capacity]
max_events = 1000
max_bytes = "1TiB"
live_only = 50
shedding = 60
purging = 70
leave_below = 1
purge_to = 60
[disk]
live_only = "30GiB"
shedding = "20GiB"
full = 12345
[backlog]
live_only = 1
shedding = 2
cutting = 3
[postgres]
readers = 1
migrate = "off"
query_timeout = "1s"
[search]
index = "off"
kinds = [1, "30000-39999"]
[gossip]
enabled = "off"
listen = "0.0.0.0:7778"
addresses = ["192.0.2.1:7778"]
peers = "known"
known = ["ae58ff8833241ac82d6ff7611046ed67b5072d142c588d0063e942d9a75502b6@192.0.2.2:7778"]
relays = ["https://relay.example.com"]
max_topics = 1
max_peers = 1
peer_messages_per_second = 1
peer_bytes_per_second = "1MiB"
received_messages_per_second = 1
received_bytes_per_second = "1MiB"
topic_messages_per_second = 1
topic_bytes_per_second = "1MiB"
sent_messages_per_second = 1
sent_bytes_per_second = "1MiB"
catch_up_every = "5m"
catch_up_events_per_second = 100
catch_up_bytes_per_second = "1MiB"
"#;

#[test]
fn the_effective_configuration_is_a_file_that_sets_the_same() {
    for text in ["", EVERYTHING] {
        let loaded = from_file(text).unwrap();
        let printed = print::effective(&loaded);
        let again = from_file(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(again.settings, loaded.settings, "{printed}");
    }
}

#[test]
fn everything_above_differs_from_its_default() {
    // So that the test before this one leaves nothing out.
    let changed = from_file(EVERYTHING).unwrap().changed_keys(&from_file("").unwrap());
    assert_eq!(changed, crate::config::section::keys().map(|key| key.full).collect::<Vec<_>>());
}

#[test]
fn each_value_is_printed_with_its_source() {
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
fn a_password_is_printed_by_nothing() {
    let loaded = from_file("store = 'postgresql://kukuri:secret@db.example.com/kukuri'").unwrap();
    let printed = print::effective(&loaded);
    let line = "store = \"postgresql://kukuri:***@db.example.com/kukuri\"  # kukuri.toml";
    assert!(printed.lines().any(|printed| printed == line), "{printed}");
    assert!(!printed.contains("secret") && !format!("{loaded:?}").contains("secret"));
}

#[test]
fn the_example_file_sets_nothing_until_a_line_is_uncommented() {
    let example = print::example();
    assert_eq!(from_file(&example).unwrap().settings, Settings::default());
    assert!(example.lines().all(|line| line.chars().count() <= 100));

    // A setting is commented out without a space. The unset keys take their examples.
    let uncommented: Vec<_> = example
        .lines()
        .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
        .collect();
    let loaded = from_file(&uncommented.join("\n")).unwrap();
    let unset: Vec<_> =
        crate::config::section::keys().filter(|key| key.default.is_none()).map(|key| key.full).collect();
    assert_eq!(loaded.changed_keys(&from_file("").unwrap()), unset);
}
