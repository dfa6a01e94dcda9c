//! The settings framework. [`section!`] declares a key once: type, default, bounds, text for operators, and whether a
//! change needs a restart. Reading, printing, errors and the reference follow from the declaration.
//!
//! The crate knows no key of kukuri-node: `crates/node/src/config` has the list of keys and passes its type as `S`.
//!
//! # Layout
//!
//! - `section`: the macro [`section!`], and what it makes: [`Section`], [`Schema`], [`KeyInfo`].
//! - `load`: [`load()`] merges the layers (defaults < file < environment < flags) into [`Loaded`] settings.
//! - `layers`: what each [`Layer`] contains, and which of its names are unknown.
//! - `value`: the traits [`Setting`] and [`TextSetting`], which a key's type implements, and `choices!` for enums.
//! - `span`, `size`, `percent`, `datetime`, `kinds`, `net`, `switch`: types for keys.
//! - `print`: the effective configuration and an example file. `reference`: the documentation in Markdown.
//! - `error`: [`ConfigError`], one line for operators. `password`: hides the passwords of URLs.

mod datetime;
mod error;
mod kinds;
mod layers;
mod load;
mod net;
mod password;
mod percent;
pub mod print;
mod reference;
mod section;
mod size;
mod span;
mod switch;
mod value;

pub use toml::Value as TomlValue;

pub use datetime::DateTime;
pub use error::ConfigError;
pub use kinds::KindRange;
pub use layers::{Flags, Layer, Values, flag_of};
pub use load::{Loaded, load, load_from};
pub use net::{HttpUrl, IpNetwork, WebSocketUrl};
pub use password::without_password;
pub use percent::Percent;
pub use reference::reference;
pub use section::{Bounds, Doc, KeyInfo, Language, Schema, Section, SectionInfo};
pub use size::ByteSize;
pub use span::Span;
pub use switch::Switch;
pub use value::{Mismatch, Setting, TextForm, TextSetting, format_text, parse_text};
