//! Errors in a configuration: location, key, value, allowed values.

use std::{io, path::Path};

use crate::{Layer, Schema, TomlValue, without_password};

/// Why a configuration can't be used, in one line for operators.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{0} can't be read: {1}")]
    Unreadable(String, #[source] io::Error),
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// The schema has no such section, key or variable.
    #[error("{0}")]
    UnknownName(String),
    /// The value of this environment variable is not UTF-8.
    #[error("{0}: must be UTF-8")]
    NotUtf8(String),
    /// The value of a key is not allowed.
    #[error("{0}")]
    Value(String),
}

impl ConfigError {
    pub(crate) fn value(layer: &Layer, key: &str, value: &TomlValue, why: impl AsRef<str>) -> Self {
        let (location, value, why) = (layer.location(key), in_one_line(value), why.as_ref());
        Self::Value(match layer {
            // The name of the variable or the flag tells the key.
            Layer::Variable | Layer::Flag => format!("{location} = {value}: {why}"),
            Layer::Default | Layer::Console | Layer::File(_) => format!("{location}: {key} = {value}: {why}"),
        })
    }

    pub(crate) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let message = match error.message().split_whitespace().collect::<Vec<_>>().join(" ") {
            // Any type is allowed at this stage, so only an integer that does not fit gets here.
            message if message.starts_with("invalid type: integer") => "the number is too large".to_owned(),
            message => message,
        };
        Self::Syntax(format!("{}: line {line}: {message}", path.display()))
    }

    pub(crate) fn unknown_section(schema: &Schema, path: &Path, name: &str) -> Self {
        let names = schema.sections.iter().map(|section| section.name).filter(|name| !name.is_empty());
        let known: Vec<_> = names.clone().map(|name| format!("[{name}]")).collect();
        let meant = nearest(name, names).map(|name| format!("[{name}]"));
        let known = known.join(", ");
        Self::unknown(format!("{}: unknown section [{name}]; there are {known}", path.display()), meant.as_deref())
    }

    pub(crate) fn unknown_key(schema: &Schema, path: &Path, section: &str, name: &str) -> Self {
        let (key, place) = match section {
            "" => (name.to_owned(), "before the sections".to_owned()),
            section => (format!("{section}.{name}"), format!("in [{section}]")),
        };
        let keys = schema.sections.iter().filter(|info| info.name == section).flat_map(|info| &info.keys);
        let known: Vec<_> = keys.map(|key| key.name()).collect();
        // The likeliest mistakes: a misspelt name, then a key in the wrong section.
        let near = nearest(&key, schema.keys().map(|key| key.full));
        let elsewhere = || schema.keys().find(|key| key.name() == name).map(|key| key.full);
        let known = known.join(", ");
        let what = format!("{}: unknown key {key}; {place} there are {known}", path.display());
        Self::unknown(what, near.or_else(elsewhere))
    }

    /// `meant`: the name that was probably meant.
    pub(crate) fn unknown(what: String, meant: Option<&str>) -> Self {
        Self::UnknownName(meant.map(|name| format!("{what}; did you mean {name}?")).unwrap_or(what))
    }
}

/// A value in one line, without the password of a URL: errors end up in logs.
fn in_one_line(value: &TomlValue) -> String {
    match value {
        TomlValue::String(text) => format!("{:?}", without_password(text)),
        TomlValue::Array(entries) => format!("[{}]", entries.iter().map(in_one_line).collect::<Vec<_>>().join(", ")),
        TomlValue::Table(_) => "{…}".to_owned(),
        other => other.to_string(),
    }
}

/// The name that was probably meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (name.len() / 3).min(2);
    let with_distance = known.map(|candidate| (strsim::osa_distance(name, candidate), candidate));
    let near = with_distance.filter(|(distance, _)| *distance <= max_distance);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}
