//! A network of one's own, which can be cut: the test program runs itself in a new network namespace.

use std::process::Command;

const INSIDE: &str = "KUKURI_TEST_NAMESPACE";

/// Whether this is the program inside of the namespace. If not, the test of this name is run there, and has passed.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        // Routes to this machine are looked up first of all: now there is a place before them.
        ip("rule add pref 100 lookup local");
        ip("rule del pref 0");
        return true;
    }
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new("unshare");
    command.arg(if is_root { "-n" } else { "-rn" }).arg(std::env::current_exe().unwrap());
    let status = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status();
    assert!(status.expect("util-linux's unshare").success(), "see above");
    false
}

/// From now on nothing passes between these addresses and those.
pub(crate) fn cut(these: &[&str], those: &[&str]) {
    for (one, other) in pairs(these, those) {
        ip(&format!("rule add pref 10 from {one} to {other} blackhole"));
        ip(&format!("rule add pref 10 from {other} to {one} blackhole"));
    }
}

/// From now on everything passes again.
pub(crate) fn heal(these: &[&str], those: &[&str]) {
    for _ in pairs(these, those) {
        ip("rule del pref 10");
        ip("rule del pref 10");
    }
}

fn pairs<'a>(these: &'a [&'a str], those: &'a [&'a str]) -> impl Iterator<Item = (&'a str, &'a str)> {
    these.iter().flat_map(move |one| those.iter().map(move |other| (*one, *other)))
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2's ip");
    assert!(status.success(), "ip {arguments}");
}
