//! The operator's commands, with and without a running node.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::support::{
    Node, TOPIC, bare,
    events::{deletion, note, topic},
    run,
};
use kukuri_testing::{Client, TIMEOUT, eventually};
use nostr_sdk::{EventBuilder, Keys};
use rustix::process::Signal;
use serde_json::{Value, json};

const EVERYTHING: &str =
    r##"{"#t":["kukuri:0101010101010101010101010101010101010101010101010101010101010101"],"limit":500}"##;

fn everything() -> Value {
    serde_json::from_str(EVERYTHING).unwrap()
}

#[tokio::test]
async fn enabling_and_disabling_a_topic_takes_effect_on_a_running_node_within_two_seconds() {
    // T-8
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    assert!(client.publish(&note(&keys, "opens it")).await.0);
    let mut number = 0;
    let mut refused = async |client: &mut Client| {
        number += 1;
        !client.publish(&note(&keys, &format!("note {number}"))).await.0
    };
    // On a busy machine an attempt may be held up, but not each.
    let mut took: Vec<Duration> = Vec::new();
    while took.last().is_none_or(|time| *time > Duration::from_secs(2)) {
        assert!(took.len() < 5, "it took longer than two seconds: {took:?}");
        assert!(node.run(&["topic", "disable", TOPIC]).ok().contains("is disabled"));
        let changed = Instant::now();
        eventually("it is disabled", async || refused(&mut client).await).await;
        let disabled = changed.elapsed();
        assert!(!client.request("r", &[everything()]).await.is_empty(), "what it holds stays readable");
        node.run(&["topic", "enable", TOPIC]).ok();
        let changed = Instant::now();
        eventually("it is enabled", async || !refused(&mut client).await).await;
        took.push(disabled.max(changed.elapsed()));
    }

    let set = ["topic", "set", TOPIC, "--keep-regular", "90d", "--priority", "0", "--max-events", "1000"];
    assert!(node.run(&set).ok().contains("regular 90d, at most 1000 events, priority 0"));
    let too_long = node.run(&["topic", "set", TOPIC, "--keep-regular", "181d"]).refusal();
    assert!(too_long.contains("retention.dedupe must not be shorter"), "{too_long}");
    let nonsense = node.run(&["topic", "set", TOPIC, "--max-bytes", "lots"]).refusal();
    assert!(nonsense.starts_with("kukuri-node: --max-bytes lots: must be"), "{nonsense}");
    let unknown = node.run(&["topic", "enable", "kukuri:nonsense"]).refusal();
    assert!(unknown.contains("is no topic id"), "{unknown}");

    node.stop(Signal::TERM).await;
    node.run(&["topic", "disable", "a name"]).ok();
    let listed = node.run(&["topic", "list"]).ok();
    assert!(
        listed.lines().any(|line| line.starts_with(TOPIC) && line.contains("yes") && line.contains("90d")),
        "{listed}"
    );
    let id = node.run(&["topic", "id", " A  Name "]).ok();
    assert!(listed.lines().any(|line| line.starts_with(id.trim()) && line.contains("no")), "{listed}");
    let lines = node.run(&["topic", "list", "--json"]).ok();
    let parsed: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(parsed.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_restores_to_a_consistent_node_that_refuses_deleted_events() {
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let gone = note(&keys, "deleted before the backup");
    assert!(client.publish(&gone).await.0);
    assert!(client.publish(&deletion(&keys, &gone)).await.0);
    let mut acknowledged = BTreeSet::new();
    for number in 0..50 {
        let event = note(&keys, &format!("before {number}"));
        assert!(client.publish(&event).await.0);
        acknowledged.insert(event.id.to_hex());
    }
    let mut writer = node.client().await;
    let writing = tokio::spawn({
        let keys = keys.clone();
        async move {
            for number in 0.. {
                writer.publish(&note(&keys, &format!("meanwhile {number}"))).await;
            }
        }
    });
    let backup = node.place("backup");
    let backup = backup.to_str().unwrap();
    let said = tokio::task::block_in_place(|| node.run(&["backup", backup])).ok();
    assert!(said.contains("events"), "{said}");
    assert!(node.run(&["backup", backup]).refusal().contains("this directory is not empty"));
    writing.abort();
    // Y-5: the changes of a restored node are not those that its followers have read.
    let changes = format!("/v1/topics/{}/changes", TOPIC.replace(':', "%3A"));
    let position = node.get(&changes).1["next"].as_str().unwrap().to_owned();
    assert_eq!(node.get(&format!("{changes}?after={position}")).0, 200);

    let mut restored = Node::start("required");
    assert!(restored.run(&["restore", backup]).refusal().contains("there is a store here already"));
    restored.stop(Signal::TERM).await;
    fs::remove_dir_all(restored.place("data")).unwrap();
    let said = restored.run(&["restore", backup]).ok();
    assert!(said.contains("all is well") && said.contains("restored"), "{said}");
    let same_key = |node: &Node| node.run(&["key", "show"]).ok().lines().next().unwrap().to_owned();
    assert_eq!(same_key(&restored), same_key(&node), "a restored node is the same node");
    restored.start_again();
    assert_eq!(restored.get(&format!("{changes}?after={position}")).0, 410);
    let mut client = restored.client().await;
    assert_eq!(client.publish(&gone).await, (false, "blocked: deleted by its author".to_owned()));
    // By id: more events may have arrived than one answer returns.
    let mut wanted = everything();
    wanted["ids"] = acknowledged.iter().cloned().collect();
    let there: BTreeSet<String> = client.request("r", &[wanted]).await.into_iter().collect();
    assert_eq!(there, acknowledged, "what was acknowledged before the backup is in it");

    // A file that is not what the backup wrote is refused before anything is installed.
    let data = node.place("backup").join("store/data.mdb");
    let (whole, manifest) = (fs::read(&data).unwrap(), node.place("backup").join("backup.json"));
    let mut rotten = whole.clone();
    rotten[whole.len() / 2] ^= 1;
    for (content, expected) in [(&whole[..whole.len() / 2], "the backup had"), (&rotten[..], "its content has changed")]
    {
        fs::write(&data, content).unwrap();
        let refusal = run(&node.place("elsewhere"), &["restore", backup]).refusal();
        assert!(refusal.contains("data.mdb") && refusal.contains(expected), "{refusal}");
        assert!(!node.place("elsewhere").exists());
    }
    fs::write(&data, whole).unwrap();
    // As version 0.1 wrote it.
    let mut former: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    former.as_object_mut().unwrap().remove("files").unwrap();
    fs::write(&manifest, former.to_string()).unwrap();
    let said = run(&node.place("elsewhere"), &["restore", backup]);
    assert!(said.is_success && said.error.contains("no digests"), "{said:?}");

    fs::remove_file(manifest).unwrap();
    fs::remove_dir_all(node.place("elsewhere")).unwrap();
    assert!(run(&node.place("elsewhere"), &["restore", backup]).refusal().contains("incomplete"));
}

#[tokio::test]
async fn exported_events_can_be_imported_and_errors_name_their_line() {
    let node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let gone = note(&keys, "gone");
    assert!(client.publish(&gone).await.0);
    assert!(client.publish(&deletion(&keys, &gone)).await.0);
    for number in 0..20 {
        assert!(client.publish(&note(&keys, &format!("note {number}"))).await.0);
    }
    let plain = node.run(&["export"]).ok();
    assert_eq!(plain.lines().count(), 20, "requests are left out");
    assert_eq!(node.run(&["export", "--all"]).ok().lines().count(), 21);
    assert_eq!(node.run(&["export", "--all", "--kind", "5"]).ok().lines().count(), 1);
    assert_eq!(node.run(&["export", "--topic", "another"]).ok().lines().count(), 0);
    assert_eq!(node.run(&["export", "--filter", r#"{"limit":"x"}"#]).refusal().lines().count(), 1);
    let file = node.place("events.jsonl");
    let file = file.to_str().unwrap();
    node.run(&["export", "--all", "--output", file]).ok();
    assert!(node.run(&["export", "--output", file]).refusal().contains("exists"), "it overwrites nothing");

    let other = Node::start("required");
    let mut listener = other.client().await;
    assert!(listener.request("r", &[everything()]).await.is_empty());
    let said = other.run(&["import", file]).ok();
    assert!(said.contains("21 lines: 21 stored, 0 known, 0 refused"), "{said}");
    for _ in 0..21 {
        assert_eq!(listener.hear().await[0], "EVENT", "what is imported is live too");
    }
    let again = other.run(&["import", file]).ok();
    assert!(again.contains("0 stored, 21 known"), "an interrupted import can be started again: {again}");
    assert!(other.run(&["import", file, "--skip", "20"]).ok().contains("0 stored, 1 known"));
    assert_eq!(listener.publish(&gone).await, (false, "blocked: deleted by its author".to_owned()));

    let first = fs::read_to_string(file).unwrap().lines().next().unwrap().replace("note", "forged");
    let broken = other.place("broken.jsonl");
    fs::write(&broken, format!("{first}\nnonsense\n\n{{\"id\":1}}\n")).unwrap();
    let refused = other.run(&["import", broken.to_str().unwrap()]);
    assert!(refused.out.contains("4 lines: 0 stored"), "{refused:?}");
    let error = refused.refusal();
    for line in ["line 2: invalid:", "line 4: invalid:"] {
        assert!(error.contains(line), "{error}");
    }
    assert!(other.run(&["import", "missing.jsonl"]).refusal().contains("missing.jsonl"));
}

#[tokio::test]
async fn explain_says_why_an_event_is_or_is_not_visible() {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    let (kept, gone) = (note(&keys, "kept"), note(&keys, "gone"));
    let request = deletion(&keys, &gone);
    let profile = |name: &str, at: u64| {
        let content = json!({ "name": name }).to_string();
        let event = EventBuilder::new(nostr_sdk::Kind::Metadata, content).tag(topic());
        event.custom_created_at(at.into()).sign_with_keys(&keys).unwrap()
    };
    let (old, new) = (profile("old", 1_700_000_000), profile("new", 1_700_000_001));
    for event in [&kept, &gone, &request, &old, &new] {
        assert!(client.publish(event).await.0);
    }
    client.publish(&kept).await;
    let address = format!("0:{}:", keys.public_key().to_hex());
    let id = |event: &nostr_sdk::Event| event.id.to_hex();
    let unknown = "ab".repeat(32);
    for is_running in [true, false] {
        for (what, says) in [
            (id(&kept), vec!["is visible", "from a client", TOPIC]),
            (id(&gone), vec!["is not visible", "deleted it (NIP-09", &id(&request)]),
            (id(&old), vec!["is not visible: a newer version is known (E-3", &id(&new)]),
            (address.clone(), vec![&id(&new), "nothing older comes back (D-9)"]),
            (unknown.clone(), vec!["is not known"]),
        ] {
            let said = node.run(&["explain", &what]).ok();
            for part in says {
                assert!(said.contains(part), "{part} in {said}");
            }
        }
        if is_running {
            node.stop(Signal::TERM).await;
        }
    }
    assert!(node.run(&["explain", &id(&kept)]).ok().contains("arrived 2 times"), "counts are written at the stop");
    assert!(node.run(&["explain", "nonsense"]).refusal().contains("neither an event's id"));
}

#[tokio::test]
async fn sighup_reloads_the_configuration_and_a_mistake_changes_nothing() {
    let node = Node::start("required");
    assert_eq!(node.information()["name"], "kukuri-node");
    let keys = Keys::generate();
    let mut client = node.client().await;
    assert!(client.publish(&note(&keys, "before")).await.0);
    let denied = format!("[deny]\npubkeys = [\"{}\"]\n", keys.public_key().to_hex());
    let text = format!("deletion = \"physical\"\n[relay]\nname = \"別の名前\"\n[limits]\nlimit = 7\n{denied}");
    fs::write(node.config_file(), text).unwrap();
    node.signal(Signal::HUP);
    eventually("the new name", async || node.information()["name"] == "別の名前").await;
    assert_eq!(node.information()["limitation"]["max_limit"], 7);
    let (accepted, message) = client.publish(&note(&keys, "after")).await;
    assert!(!accepted && message.starts_with("blocked:"), "lists too: {message}");
    eventually("the warning", async || node.log().contains("take effect at the next restart")).await;

    fs::write(node.config_file(), "[relay]\nnmae = \"misspelt\"\n").unwrap();
    node.signal(Signal::HUP);
    eventually("the error", async || node.log().contains("unknown key relay.nmae")).await;
    assert_eq!(node.information()["name"], "別の名前", "the old configuration stays in effect");
}

#[tokio::test]
async fn commands_work_beside_a_running_node_or_say_that_they_need_it_stopped() {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    for number in 0..10 {
        assert!(client.publish(&note(&keys, &format!("note {number}"))).await.0);
    }
    assert!(node.run(&["compact"]).refusal().contains("can't work beside a running node"));
    assert!(node.run(&["salvage"]).refusal().contains("stop the node"));
    assert!(node.run(&["serve", "--listen", "127.0.0.1:0"]).refusal().contains("another node runs"));
    assert!(node.run(&["check"]).ok().contains("all is well"));
    let stats: Value = serde_json::from_str(&node.run(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(stats["visible"], 10);
    assert!(node.run(&["stats"]).ok().contains("visible events"));
    let tail = node.run(&["outbox", "tail", "--lines", "3", "--json"]).ok();
    let rows: Vec<Value> = tail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [8, 9, 10]);
    assert!(node.run(&["outbox", "offsets"]).ok().contains("index-v1"));
    assert!(node.run(&["retention", "run", "--dry-run"]).ok().contains("would be purged"));
    assert!(node.run(&["retention", "run"]).ok().contains("purged"));

    node.stop(Signal::TERM).await;
    assert!(node.run(&["compact"]).ok().contains("became"));
    assert!(node.run(&["check"]).ok().contains("all is well"));
    node.start_again();
    let mut client = node.client().await;
    assert_eq!(client.request("r", &[everything()]).await.len(), 10);
}

#[tokio::test]
async fn a_first_start_creates_the_key_and_prints_urls_and_paths() {
    let node = Node::start("global");
    let key = node.place("data").join("node.key");
    assert_eq!(fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = node.run(&["key", "show"]).ok();
    assert!(shown.contains(node.information()["self"].as_str().unwrap()), "{shown}");
    let help = node.run(&["--help"]).ok();
    for command in
        ["serve", "config", "topic", "import", "export", "stats", "outbox", "retention", "explain", "backup", "restore"]
    {
        assert!(help.contains(&format!("  {command}")), "{command} in {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(node.run(&["completions", shell]).ok().contains("kukuri-node"), "{shell}");
    }
    assert!(node.run(&["config"]).ok().contains("# --data"), "values tell where they come from");
    let slip = bare().env("KUKURI_LISTNE", "x").arg("config").output().unwrap();
    let slip = String::from_utf8(slip.stderr).unwrap();
    assert!(slip.contains("KUKURI_LISTNE") && slip.lines().count() == 1, "{slip}");
}

#[test]
fn new_files_are_durable_and_the_admin_socket_is_never_open_to_others() {
    let mut node = Node::place_for("required", "");
    let log = node.place("trace");
    let calls = "trace=bind,mkdir,mkdirat,rename,renameat,renameat2,fsync";
    let trace = format!("umask 0; exec strace -D -f -qq -y -e {calls} -o {} \"$@\"", log.display());
    node.start_under(&["sh", "-c", &trace, "sh"]);
    node.start_again();
    node.kill();

    let trace = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = trace.lines().collect();
    let data = node.place("data");
    let data = data.to_str().unwrap();
    let place =
        |what: &str| lines.iter().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {trace}"));
    let is_synced_after = |at: usize, directory: &str| {
        lines[at..].iter().any(|line| line.contains("fsync(") && line.contains(&format!("<{directory}>")))
    };
    // The socket is bound where only its owner can reach it.
    let private = place("admin.part\", 0700");
    let sockets: Vec<_> = lines.iter().enumerate().filter(|(_, line)| line.contains("AF_UNIX")).collect();
    let [(bound, line)] = sockets[..] else { panic!("{sockets:?}") };
    assert!(bound > private && line.contains("admin.part/s\""), "{line}");
    assert_eq!(fs::metadata(format!("{data}/admin.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!node.place("data/admin.part").exists());
    // A name is durable when its directory is synced.
    assert!(is_synced_after(place("data\", 0700"), data.strip_suffix("/data").unwrap()), "{trace}");
    assert!(is_synced_after(place("data/store\", 0700"), data), "{trace}");
    assert!(is_synced_after(place("data/node.key\")"), data), "{trace}");
}

#[test]
fn too_few_open_files_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("sh");
    let script = format!(
        "ulimit -n 200; exec {} --listen 127.0.0.1:0 --data {}",
        bare().get_program().to_str().unwrap(),
        dir.path().join("data").display()
    );
    let mut child = shell.args(["-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("ulimit -n") && said.contains("limits.connections"), "{said}");
}

#[tokio::test]
async fn the_store_file_is_not_replaced_while_a_command_reads_it() {
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    for number in 0..10 {
        assert!(client.publish(&note(&keys, &format!("note {number}"))).await.0);
    }
    let data = node.place("data");
    let mut reader =
        bare().arg("--data").arg(&data).args(["outbox", "tail", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(reader.stdout.take().unwrap()), &mut line).unwrap();
    assert!(line.contains("upsert"), "{line}");
    node.stop(Signal::TERM).await;
    assert!(node.run(&["compact"]).refusal().contains("another program reads this store"));
    reader.kill().unwrap();
    reader.wait().unwrap();
    node.run(&["compact"]).ok();
    assert_eq!(fs::metadata(data.join("store/data.mdb")).unwrap().permissions().mode() & 0o077, 0, "nobody else's");
    node.start_again();
    let mut client = node.client().await;
    assert_eq!(client.request("r", &[everything()]).await.len(), 10);
}

#[tokio::test]
async fn a_wrong_path_creates_no_store_and_a_retention_too_short_for_a_topic_prevents_the_start() {
    // P-5
    let mut node = Node::start("required");
    let nowhere = node.place("nowhere");
    for command in [&["topic", "enable", "x"][..], &["retention", "run"], &["stats"], &["compact"]] {
        assert!(run(&nowhere, command).refusal().contains("there is no store here"), "{command:?}");
    }
    assert!(!nowhere.exists());

    fs::write(node.config_file(), "[retention]\ndedupe = \"400d\"\n").unwrap();
    node.signal(Signal::HUP);
    eventually("the new retention", async || node.log().contains("retention.dedupe")).await;
    node.run(&["topic", "set", "kukuri:global", "--keep-regular", "365d"]).ok();
    fs::write(node.config_file(), "").unwrap();
    node.signal(Signal::HUP);
    eventually("a word on it", async || node.log().contains("longer than the configuration allows")).await;
    node.stop(Signal::TERM).await;
    let refusal = node.run(&["serve", "--listen", "127.0.0.1:0"]).refusal();
    assert!(refusal.contains("retention.dedupe must not be shorter"), "{refusal}");
}

#[tokio::test]
async fn a_vanish_request_takes_effect_when_imported_without_a_running_node() {
    // D-12
    let mut node = Node::start("required");
    let keys = Keys::generate();
    let mut client = node.client().await;
    assert!(client.publish(&note(&keys, "gone soon")).await.0);
    let vanish =
        EventBuilder::new(nostr_sdk::Kind::Custom(62), "").tag(nostr_sdk::Tag::parse(["relay", &node.url()]).unwrap());
    let file = node.place("vanish.jsonl");
    fs::write(&file, serde_json::to_string(&vanish.sign_with_keys(&keys).unwrap()).unwrap()).unwrap();
    let listen = node.url().replace("ws://", "");
    node.stop(Signal::TERM).await;
    fs::write(node.place("kukuri.toml"), format!("listen = \"{listen}\"\n")).unwrap();
    assert!(node.run(&["import", file.to_str().unwrap()]).ok().contains("1 stored"));
    node.start_again();
    assert!(node.client().await.request("r", &[everything()]).await.is_empty());
}

#[test]
fn an_import_that_waits_for_its_input_can_be_stopped() {
    let node = Node::start("required");
    let mut import = bare();
    import.arg("--data").arg(node.place("data")).args(["import", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = import.stdout(Stdio::null()).spawn().unwrap();
    // Standard input stays open, so that the import waits for more lines.
    let _input = child.stdin.take();
    let end = std::time::Instant::now() + TIMEOUT;
    while !handles_interrupts(child.id()) {
        assert!(std::time::Instant::now() < end, "it does not begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("--skip 0"), "{said}");
}

/// Whether a process has a handler for SIGINT.
fn handles_interrupts(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    let interrupt = 1 << (Signal::INT.as_raw() - 1);
    u64::from_str_radix(caught, 16).unwrap() & interrupt != 0
}
