//! Numbers of random cases and rounds: as written in every build, ten times as many with `cargo xtask test --long`.

/// Set to 1 by `cargo xtask test --long`.
const VARIABLE: &str = "KUKURI_TEST_LONG";

/// The usual number, or ten times as many in a long run.
pub fn scaled(usual: u32) -> u32 {
    if std::env::var_os(VARIABLE).is_some_and(|value| value == "1") { usual * 10 } else { usual }
}
