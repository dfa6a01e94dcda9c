//! The node's configuration: its keys, on the framework of `kukuri-config`.
//!
//! # Layout
//!
//! - [`settings`]: one file per section: its keys, and the part's configuration made from them.
//! - `check`: rules between keys. `types`, [`place`]: types of keys that only the node has.
//! - `tests/reference.rs` writes docs/configuration.md and docs/configuration.ja.md.

mod check;
pub(crate) mod place;
pub(crate) mod settings;
mod types;

#[cfg(test)]
mod tests;

use kukuri_config::{ConsoleValues, Schema};

pub(crate) use kukuri_config::{ByteSize, ConfigError, Flags, Switch, format_text, parse_text, print};
pub(crate) use place::StorePlace;
pub(crate) use settings::Settings;
pub(crate) use types::{AuthMode, Foreign, IndexPlace};

pub(crate) type Loaded = kukuri_config::Loaded<Settings>;

/// Reads file and environment at each call, so that a reload is another call. `console`: what the control database has; it names no
/// key that is needed to open that database.
pub(crate) fn load(flags: &Flags, console: &ConsoleValues) -> Result<Loaded, ConfigError> {
    check::check(kukuri_config::load(flags, console)?)
}

/// Whether a reload leaves the old value of this key in effect.
pub(crate) fn needs_restart(key: &str) -> bool {
    Schema::of::<Settings>().key(key).is_some_and(|key| key.needs_restart)
}
