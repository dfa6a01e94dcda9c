//! Network partitions: the test program runs itself in a new network namespace, whose addresses can be separated.

use std::process::Command;

const INSIDE: &str = "KUKURI_TEST_NAMESPACE";

/// Whether this process runs inside the namespace. If not, the test of this name (`module::function`) has run there and
/// passed.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        // The local routing table has preference 0 by default; at 100, rules can go before it.
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

/// Drops all packets between these addresses and those.
pub(crate) fn cut(these: &[&str], those: &[&str]) {
    for (one, other) in pairs(these, those) {
        ip(&format!("rule add pref 10 from {one} to {other} blackhole"));
        ip(&format!("rule add pref 10 from {other} to {one} blackhole"));
    }
}

/// Ends a `cut`.
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
