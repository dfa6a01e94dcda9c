//! The operator's commands about people: accounts, invites, policies, plans, requests, admission.

use std::fs;

use kukuri_control::{
    Control, Database,
    metric::Metric,
    request::{self, NewRequest, RequestLimits, RequestStatus, Service, TopicRequest},
    sign_in, usage,
};
use kukuri_domain::{PublicKey, Timestamp, TopicId, nip19::npub};
use kukuri_testing::{eventually, now};
use nostr_sdk::Keys;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Node, TOPIC, run};

/// A node that has run once, and is stopped.
async fn stopped_node() -> Node {
    let mut node = Node::start("required");
    node.stop(Signal::TERM).await;
    node
}

fn new_key() -> PublicKey {
    PublicKey::from_bytes(Keys::generate().public_key().to_bytes())
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The one error line, without the program's name.
fn error(node: &Node, arguments: &[&str]) -> String {
    let error = node.run(arguments).refusal();
    let line = error.strip_prefix("kukuri-node: ").unwrap_or_else(|| panic!("{error}"));
    assert_eq!(line.lines().count(), 1, "{line}");
    line.trim_end().to_owned()
}

/// The node's control database, opened beside it.
pub(crate) async fn control(node: &Node) -> Control {
    let database = Database::open_sqlite(&node.place("data/control.db")).await.unwrap();
    Control::open(database, Timestamp(now())).await.unwrap()
}

/// Signs a person in who has no account yet.
pub(crate) async fn join(control: &Control, key: &PublicKey) {
    let time = Timestamp(now());
    sign_in::first_visit(control.database(), &control.secrets(), key, None, time).await.unwrap();
}

async fn ask(control: &Control, key: &PublicKey, reason: &str) -> TopicRequest {
    let asked = NewRequest {
        topic: TopicId::new_unchecked(TOPIC),
        topic_name: None,
        services: vec![Service::Index],
        reason: Some(reason.to_owned()),
    };
    request::create(control.database(), key, &asked, RequestLimits::default(), Timestamp(now())).await.unwrap()
}

#[tokio::test]
async fn invite_is_created_listed_and_revoked() {
    let node = stopped_node().await;
    let said = node.run(&["invite", "create", "--uses", "3", "--days", "7"]).ok();
    let field = |label: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_else(|| panic!("{said}"));
        line.trim().to_owned()
    };
    let (code, id) = (field("code "), field("id "));
    assert_eq!((code.len(), field("uses ").as_str()), (32, "3"));
    assert!(field("expires ").ends_with("UTC") && said.contains("not shown again"), "{said}");
    let unlimited = node.run(&["invite", "create"]).ok();
    assert!(unlimited.contains("expires  never") && unlimited.contains("uses     1"), "{unlimited}");

    let listed = node.run(&["invite", "list"]).ok();
    let row = listed.lines().find(|line| line.starts_with(&id)).unwrap_or_else(|| panic!("{listed}"));
    assert!(row.contains("open") && row.contains("0 of 3") && !listed.contains(&code), "{listed}");
    assert_eq!(error(&node, &["invite", "revoke", "0123456789ab"]), "there is no such invite");
    assert_eq!(error(&node, &["invite", "create", "--uses", "0"]), "`uses`: must be 1 to 10000");
    assert_eq!(error(&node, &["invite", "create", "--days", "0"]), "`days`: the invite would have expired already");
    let revoked = node.run(&["invite", "revoke", &id]).ok();
    assert_eq!(revoked, format!("invite {id} is revoked; it was used 0 of 3 times\n"));
    assert_eq!(error(&node, &["invite", "revoke", &code]), "the invite is revoked already");
    let objects = json_lines(&node.run(&["invite", "list", "--json"]).ok());
    let states: Vec<_> =
        objects.iter().map(|object| (object["id"] == *id, object["state"].as_str().unwrap())).collect();
    assert_eq!(states.len(), 2, "{objects:?}");
    assert!(states.contains(&(true, "revoked")) && states.contains(&(false, "open")), "{states:?}");
}

#[tokio::test]
async fn policy_is_drafted_published_and_shown() {
    let node = stopped_node().await;
    let [ja, en] =
        [("ja.md", "# 利用規約\n\nなかよく。\n"), ("en.md", "# Terms of use\n\nBe kind.")].map(|(name, text)| {
            let file = node.place(name);
            fs::write(&file, text).unwrap();
            file.to_str().unwrap().to_owned()
        });
    let draft = |locale, file| node.run(&["policy", "draft", "terms", "1", "--locale", locale, "--file", file]);
    assert_eq!(draft("ja", &ja).ok(), "terms 1 (ja) is drafted: 利用規約\n");
    assert_eq!(draft("en", &en).ok(), "terms 1 (en) is drafted: Terms of use\n");
    let missing = draft("en", "missing.md").refusal();
    assert!(missing.starts_with("kukuri-node: missing.md: ") && missing.lines().count() == 1, "{missing}");
    assert!(draft("English", &en).refusal().contains("`locale`: must be a language"), "no locale");
    for (arguments, expected) in [
        (["policy", "show", "rule", "1"], "TYPE rule: must be one of terms, privacy, rules"),
        (["policy", "show", "terms", "2"], "there is no terms 2"),
        (["policy", "publish", "privacy", "1"], "there is no privacy 1"),
        (["policy", "publish", "terms", "a b"], "`version`: must have 1 to 32 letters, digits, dots or hyphens"),
    ] {
        assert_eq!(error(&node, &arguments), expected);
    }
    let listed = node.run(&["policy", "list"]).ok();
    assert!(listed.lines().any(|line| line.contains("ja") && line.contains("draft")), "{listed}");

    let publish = |time| node.run(&["policy", "publish", "terms", "1", "--effective", time]);
    assert!(publish("1000").refusal().contains("`effective`: a policy can't take effect in the past"));
    assert!(publish("soon").refusal().contains("--effective soon: must be a time with its offset"));
    let published = publish("2100-01-01T00:00:00Z").ok();
    assert!(published.starts_with("terms 1 is published and takes effect at 2100-01-01 00:00:00 UTC\n"), "{published}");
    assert!(draft("en", &en).refusal().contains("terms 1 is published: write a new version"));
    let shown = node.run(&["policy", "show", "terms", "1", "--locale", "en-GB"]).ok();
    assert!(shown.contains("locale          en\n"), "the closest one: {shown}");
    assert!(shown.contains("in effect from  2100-01-01 00:00:00 UTC\n"), "{shown}");
    assert!(shown.ends_with("\n\n# Terms of use\n\nBe kind.\n"), "{shown}");
    assert!(node.run(&["policy", "show", "terms", "1"]).ok().contains("なかよく。"));
    let objects = json_lines(&node.run(&["policy", "list", "--json"]).ok());
    let states: Vec<_> =
        objects.iter().map(|object| (&object["locale"], &object["state"], &object["effective_at"])).collect();
    let effective_at = &json!(4_102_444_800_u64);
    assert_eq!(
        states,
        [(&json!("en"), &json!("coming"), effective_at), (&json!("ja"), &json!("coming"), effective_at)]
    );
}

#[tokio::test]
async fn plan_is_set_and_assigned_to_accounts_only() {
    let node = stopped_node().await;
    let control = control(&node).await;
    let (member, stranger) = (new_key(), new_key());
    join(&control, &member).await;
    let set = ["plan", "set", "gold", "index.search_requests", "day", "5000"];
    assert_eq!(node.run(&set).ok(), "plan gold: index.search_requests per day is 5000, was unlimited\n");
    let unlimited = node.run(&["plan", "set", "free", "max_topics", "level", "unlimited"]).ok();
    assert_eq!(unlimited, "plan free: max_topics per level is unlimited, was 1\n");
    for (arguments, expected) in [
        (["free", "topics", "day", "1"], "METRIC topics: must be one of max_topics, index.search_requests, "),
        (["free", "max_topics", "day", "1"], "WINDOW day: must be level for max_topics"),
        (["free", "max_topics", "level", "-1"], "LIMIT -1: must be a whole number or unlimited"),
        (["free", "max_topics", "level", "99999999999999999999"], "must be a whole number or unlimited"),
        (["Free", "max_topics", "level", "1"], "`plan`: must have 1 to 40 lowercase letters"),
    ] {
        let [plan, metric, window, limit] = arguments;
        let said = error(&node, &["plan", "set", "--", plan, metric, window, limit]);
        assert!(said.contains(expected), "{said}");
    }
    let assign = |key: &PublicKey, plan| [npub(key), String::from(plan)];
    let [key, plan] = &assign(&member, "gold");
    assert_eq!(node.run(&["plan", "assign", key, plan]).ok(), format!("{key} has the plan gold, had free\n"));
    assert_eq!(error(&node, &["plan", "assign", key, "silver"]), "there is no plan `silver`");
    let [key, plan] = &assign(&stranger, "gold");
    assert_eq!(error(&node, &["plan", "assign", key, plan]), "this key has no account here");

    let listed = node.run(&["plan", "list"]).ok();
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<Vec<String>> = listed.lines().map(cells).collect();
    for row in [["gold", "index.search_requests", "day", "5000"], ["free", "max_topics", "level", "unlimited"]] {
        assert!(rows.iter().any(|found| *found == row), "{row:?} in {listed}");
    }
    let objects = json_lines(&node.run(&["plan", "list", "--json"]).ok());
    let gold = objects.iter().find(|object| object["plan_id"] == "gold").unwrap();
    assert_eq!(gold["limits"], json!([{ "metric": "index.search_requests", "window": "day", "limit": 5000 }]));

    let time = Timestamp(now());
    let used = usage::DailyUse { person: member, metric: Metric::SearchRequests, day: usage::day_of(time), units: 12 };
    usage::add_all(control.database(), &[used]).await.unwrap();
    let hex = member.to_string();
    let used = node.run(&["usage", "show", &hex, "--days", "2"]).ok();
    assert!(used.lines().any(|line| cells(line)[1..] == ["index.search_requests", "12", "5000"]), "{used}");
    let objects = json_lines(&node.run(&["usage", "show", &hex, "--json"]).ok());
    assert_eq!((objects.len(), &objects[0]["count"], &objects[0]["limit"]), (1, &json!(12), &json!(5000)));
    assert_eq!(error(&node, &["usage", "show", &stranger.to_string()]), "this key has no account here");
}

#[tokio::test]
async fn account_is_disabled_and_banned_beside_a_running_node() {
    let node = Node::start("required");
    let control = control(&node).await;
    let (member, stranger) = (new_key(), new_key());
    join(&control, &member).await;
    let (hex, name) = (member.to_string(), npub(&member));
    let disabled = node.run(&["account", "disable", &name, "--reason", "spam"]).ok();
    assert_eq!(disabled, format!("the account of {name} is disabled\n"));
    let shown = node.run(&["account", "show", &hex.to_uppercase()]).ok();
    for line in [format!("npub    {name}"), format!("hex     {hex}"), "status  disabled: spam".to_owned()] {
        assert!(shown.lines().any(|found| found == line), "{line} in {shown}");
    }
    let listed = node.run(&["account", "list"]).ok();
    assert!(listed.lines().any(|line| line.starts_with(&hex) && line.contains("disabled")), "{listed}");
    let objects = json_lines(&node.run(&["account", "list", "--json"]).ok());
    assert_eq!((&objects[0]["npub"], &objects[0]["reason"]), (&json!(name), &json!("spam")));
    node.run(&["account", "enable", &hex]).ok();
    assert!(node.run(&["account", "show", &name]).ok().contains("status  active\n"));

    // A ban needs no account.
    let (hex, name) = (stranger.to_string(), npub(&stranger));
    for command in ["show", "disable", "enable"] {
        assert_eq!(error(&node, &["account", command, &hex]), "this key has no account here");
    }
    let banned = node.run(&["account", "ban", &hex, "--reason", "spam", "--until", "2100-01-01T09:00:00+09:00"]).ok();
    assert_eq!(banned, format!("{name} is banned until 2100-01-01 00:00:00 UTC\n"));
    let shown = node.run(&["account", "show", &hex]).ok();
    assert!(shown.contains("status  no account\n"), "{shown}");
    assert!(shown.contains("ban     banned until 2100-01-01 00:00:00 UTC: spam\n"), "{shown}");
    assert_eq!(node.run(&["account", "unban", &name]).ok(), format!("{name} is no longer banned\n"));
    assert_eq!(error(&node, &["account", "unban", &name]), "this key is not banned");

    let secret = Keys::generate().secret_key().to_secret_hex();
    let mistyped = format!("{}q", &name[..name.len() - 1]);
    let mistyped = if mistyped == name { format!("{}p", &name[..name.len() - 1]) } else { mistyped };
    for (arguments, expected) in [
        (["ban", "alice", "--reason", "spam"], "KEY: a public key is 64 hex digits, or begins with npub1"),
        (["ban", &secret[1..], "--reason", "spam"], "KEY: a public key is 64 hex digits, or begins with npub1"),
        (["ban", &mistyped, "--reason", "spam"], "KEY: this npub is mistyped: its checksum is wrong"),
        (["ban", &hex, "--reason", " "], "`reason`: must have 1 to 500 characters"),
    ] {
        let [command, key, flag, reason] = arguments;
        assert_eq!(error(&node, &["account", command, key, flag, reason]), expected);
    }
    let past = error(&node, &["account", "ban", &hex, "--reason", "spam", "--until", "1000"]);
    assert_eq!(past, "`until`: the ban would be over already");
    let no_time = error(&node, &["account", "ban", &hex, "--reason", "spam", "--until", "2100-01-01"]);
    assert!(no_time.starts_with("--until 2100-01-01: must be a time with its offset"), "{no_time}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_approved_or_rejected() {
    let node = Node::start("required");
    let control = control(&node).await;
    let (first, second) = (new_key(), new_key());
    join(&control, &first).await;
    join(&control, &second).await;
    let approved = ask(&control, &first, "\u{1b}[2Jtea\nand cake").await;
    let rejected = ask(&control, &second, "more tea").await;
    let listed = node.run(&["request", "list", "--status", "pending"]).ok();
    assert!(!listed.contains('\u{1b}'), "a person can not control the terminal: {listed:?}");
    let row = listed.lines().find(|line| line.starts_with(&approved.id)).unwrap_or_else(|| panic!("{listed}"));
    for part in ["pending", &first.to_string(), "relay,index", TOPIC, "tea and cake"] {
        assert!(row.contains(part), "{part} in {row}");
    }

    let (said, ()) = tokio::join!(
        async {
            tokio::task::block_in_place(|| node.run(&["request", "approve", &approved.id, "--note", "welcome"])).ok()
        },
        async {
            let find = async || request::find(control.database(), &approved.id).await.unwrap().unwrap().status;
            eventually("it is approved", async || find().await != RequestStatus::Pending).await;
            request::taken_in(control.database(), &approved.topic).await.unwrap();
        }
    );
    let lines: Vec<&str> = said.lines().collect();
    let decided = |request: &TopicRequest, key: &PublicKey, status: &str| {
        format!("request {} of {} for {TOPIC} is {status}", request.id, npub(key))
    };
    assert_eq!(lines, [&decided(&approved, &first, "approved"), "The node has taken the topic in."]);
    let said = node.run(&["request", "reject", &rejected.id]).ok();
    assert_eq!(said.trim_end(), decided(&rejected, &second, "rejected"));
    assert_eq!(error(&node, &["request", "approve", &rejected.id]), "the request is rejected, not pending");
    assert_eq!(error(&node, &["request", "reject", "nonsense"]), "there is no such request");
    assert_eq!(
        error(&node, &["request", "list", "--status", "open"]),
        "--status open: must be one of pending, approved, rejected, active, cancelled"
    );
    let objects = json_lines(&node.run(&["request", "list", "--json"]).ok());
    let active = objects.iter().find(|object| object["id"] == approved.id).unwrap();
    assert_eq!((objects.len(), &active["status"], &active["review_note"]), (2, &json!("active"), &json!("welcome")));
    assert_eq!((&active["reviewed_by"], &active["npub"]), (&json!("command"), &json!(npub(&first))));
    let shown = node.run(&["account", "show", &first.to_string()]).ok();
    assert!(shown.contains(&format!("topic   {TOPIC} (relay, index), since ")), "{shown}");
}

#[tokio::test]
async fn admission_is_shown_and_set() {
    let node = stopped_node().await;
    let key = new_key();
    let (hex, name) = (key.to_string(), npub(&key));
    assert_eq!(node.run(&["admission", "show"]).ok(), "open: every key gets an account\n");
    let said = node.run(&["admission", "allowlist"]).ok();
    assert!(said.starts_with("admission is allowlist, was open: "), "{said}");
    assert!(node.run(&["admission", "show"]).ok().starts_with("allowlist: "));
    for (command, says) in
        [("allow", "is on the list of allowed keys"), ("allow", "was on the list of allowed keys already")]
    {
        assert_eq!(node.run(&["admission", command, &hex]).ok(), format!("{name} {says}\n"));
    }
    assert_eq!(node.run(&["admission", "list"]).ok(), format!("{hex}\n"));
    let objects = json_lines(&node.run(&["admission", "list", "--json"]).ok());
    assert_eq!(objects, [json!({ "pubkey": hex, "npub": name })]);
    for says in ["is no longer on the list of allowed keys", "was not on the list of allowed keys"] {
        assert_eq!(node.run(&["admission", "disallow", &name]).ok(), format!("{name} {says}\n"));
    }
    assert_eq!(node.run(&["admission", "list"]).ok(), "");
}

#[test]
fn command_about_people_creates_no_database() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().join("nowhere");
    for command in [&["account", "list"][..], &["admission", "invite"], &["invite", "create"]] {
        let refusal = run(&nowhere, command).refusal();
        assert!(refusal.contains("there is none yet; a node creates it when it starts"), "{refusal}");
    }
    assert!(!nowhere.exists());
}

#[tokio::test]
async fn authentication_is_required_and_switched_off_by_command() {
    // W-7, A-7, K-7
    let mut node = stopped_node().await;
    let status = |node: &Node| serde_json::from_str::<Value>(&node.run(&["auth", "status", "--json"]).ok()).unwrap();
    assert_eq!((&status(&node)["phase"], &status(&node)["set_in"]["mode"]), (&json!("off"), &json!("default")));
    assert_eq!(status(&node)["grace_seconds"], json!(900));
    let said = node.run(&["auth", "require", "--grace", "60"]).ok();
    assert!(said.contains("mode set in") && said.contains("console"), "{said}");
    assert_eq!(status(&node)["grace_seconds"], json!(60));
    let enforce_at = status(&node)["enforce_at"].as_u64().unwrap();
    assert!((now()..now() + 3).contains(&(enforce_at + 1)) || enforce_at.abs_diff(now()) < 3, "{enforce_at}");
    assert_eq!(status(&node)["disconnect_at"], json!(enforce_at + 60));
    let shown = node.run(&["config"]).ok();
    assert!(shown.contains("mode = \"required\"  # console\n"), "{shown}");
    eventually("it is in force", async || status(&node)["phase"] == "grace").await;
    assert!(error(&node, &["auth", "require"]).starts_with("clients have to authenticate already"));
    assert!(error(&node, &["auth", "require", "--at", "1000"]).starts_with("--at: the time is in the past"));
    assert!(error(&node, &["auth", "require", "--grace", "99999999999"]).contains("auth.grace_seconds = "));
    assert!(error(&node, &["auth", "require", "--at", "soon"]).contains("--at soon: must be a time"));
    // A node that starts finds it, and hears of a change while it runs.
    node.start_again();
    assert_eq!(node.information()["limitation"]["auth_required"], json!(true));
    let said = node.run(&["auth", "off"]).ok();
    assert!(said.starts_with("authentication  off: "), "{said}");
    let is_off = async || node.information()["limitation"]["auth_required"] == json!(false);
    eventually("the running node hears of it", is_off).await;
    // What the file sets is changed there.
    fs::write(node.config_file(), "[auth]\nmode = \"off\"\n").unwrap();
    assert_eq!(error(&node, &["auth", "require"]), "auth.mode is set in kukuri.toml; change it there");
    assert_eq!(error(&node, &["auth", "off"]), "auth.mode is set in kukuri.toml; change it there");
    // Other keys of the file do not keep the mode from being changed.
    fs::write(node.config_file(), "[auth]\ngrace_seconds = 7\n").unwrap();
    node.run(&["auth", "require"]).ok();
    assert_eq!(
        (status(&node)["grace_seconds"].clone(), status(&node)["set_in"]["grace_seconds"].clone()),
        (json!(7), json!("kukuri.toml"))
    );
    assert!(node.run(&["auth", "off"]).ok().starts_with("authentication  off: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_carries_accounts_and_keys_and_a_restored_node_has_them() {
    let mut node = Node::start("required");
    let member = new_key();
    join(&control(&node).await, &member).await;
    node.run(&["plan", "set", "free", "max_topics", "level", "7"]).ok();
    let backup = node.place("backup");
    let backup = backup.to_str().unwrap();
    node.run(&["backup", backup]).ok();
    let said = node.run(&["check"]).ok();
    assert!(said.contains("accounts and settings: ") && said.matches("all is well").count() == 2, "{said}");
    node.stop(Signal::TERM).await;

    let restored = Node::place_for("required", "");
    fs::create_dir(restored.place("data")).unwrap();
    fs::write(restored.place("data/control.db"), "somebody's").unwrap();
    assert!(restored.run(&["restore", backup]).refusal().contains("there is a control database here already"));
    fs::remove_file(restored.place("data/control.db")).unwrap();
    restored.run(&["restore", backup]).ok();
    assert!(restored.run(&["account", "show", &npub(&member)]).ok().contains("status  active\n"));
    assert!(restored.run(&["plan", "list"]).ok().contains('7'));
    for file in ["node.key", "gossip.key"] {
        let read = |node: &Node| fs::read(node.place("data").join(file)).unwrap();
        assert_eq!(read(&restored), read(&node), "{file}");
    }
}
