//! The settings framework. [`section!`] declares a key once: type, default, bounds, text for operators, and whether a
//! change needs a restart. Reading, printing, errors and the reference follow from the declaration.
//!
//! The crate knows no key of kukuri-node: `crates/node/src/config` has the list of keys and passes its type as `S`.
//!
//! # Layout
//!
//! - `section`: the macro [`section!`], and what it makes: [`Section`], [`Schema`], [`KeyInfo`].
//! - `load`: [`load()`] merges the layers (defaults < console < file < environment < flags) into [`Loaded`] settings.
//! - `layers`: what each [`Layer`] contains, and which of its names are unknown.
//! - `value`: the traits [`Setting`] and [`TextSetting`], which a key's type implements, `choices!` for enums and
//!   `checked_text!` for text.
//! - `units`, `datetime`, `kinds`, `net`: types for keys.
//! - `print`: the effective configuration and an example file. `reference`: the documentation in Markdown.
//! - `error`: [`ConfigError`], one line for operators. `password`: hides the passwords of URLs.

mod datetime;
mod error;
mod kinds;
mod layers;
mod load;
mod net;
mod password;
pub mod print;
mod reference;
mod section;
mod units;
mod value;

pub use time::OffsetDateTime;
pub use toml::Value as TomlValue;

pub use error::ConfigError;
pub use layers::{ConsoleValues, Flags, Layer, Values, flag_of, variable_of};
pub use load::{Loaded, load, load_from};
pub use net::{HttpUrl, WebSocketUrl};
pub use password::without_password;
pub use reference::reference;
pub use section::{KeyInfo, Language, Schema, Section, SectionInfo};
pub use units::{ByteSize, Percent};
pub use value::{Mismatch, Setting, Switch, TextForm, TextSetting, format_text, parse_text};
