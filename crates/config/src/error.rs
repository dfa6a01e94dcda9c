//! Errors in a configuration, in one line each: location, key, value, allowed values.

use std::{io, path::Path, path::PathBuf};

use crate::{Layer, Schema, TomlValue, without_password};

/// A configuration that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("{}{} can't be read: {source}", path.display(), named(*named_by))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The flag or variable that names it.
        named_by: Option<&'static str>,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}: line {line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The message of the parser.
        message: String,
    },
    /// The file has a section that the schema does not have.
    #[error("{}: unknown section [{name}]; there are {known}{}", path.display(), did_you_mean(meant))]
    UnknownSection {
        /// The file.
        path: PathBuf,
        /// The name in the file.
        name: String,
        /// The sections of the schema.
        known: String,
        /// The section that was probably meant.
        meant: Option<String>,
    },
    /// The file has a key that the schema does not have.
    #[error("{}: unknown key {key}; {known}{}", path.display(), did_you_mean(meant))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key in the file.
        key: String,
        /// The keys of its section, as a clause.
        known: String,
        /// The key that was probably meant.
        meant: Option<String>,
    },
    /// No key has this environment variable.
    #[error("unknown variable {name}{}", did_you_mean(meant))]
    UnknownVariable {
        /// The variable.
        name: String,
        /// The variable that was probably meant.
        meant: Option<String>,
    },
    /// The value of an environment variable is not UTF-8.
    #[error("{variable}: must be UTF-8")]
    NotUtf8 {
        /// The variable.
        variable: String,
    },
    /// The value of a key is not allowed.
    #[error("{assignment}: {why}")]
    Value {
        /// The location, the key and its value.
        assignment: String,
        /// The allowed values.
        why: String,
    },
}

impl ConfigError {
    pub(crate) fn value(layer: &Layer, key: &str, value: &TomlValue, why: impl Into<String>) -> Self {
        let location = layer.location(key);
        let value = in_one_line(value);
        let assignment = match layer {
            // The name of the variable or the flag tells the key.
            Layer::Variable | Layer::Flag => format!("{location} = {value}"),
            Layer::Default | Layer::File(_) => format!("{location}: {key} = {value}"),
        };
        Self::Value { assignment, why: why.into() }
    }

    pub(crate) fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let message = match error.message().split_whitespace().collect::<Vec<_>>().join(" ") {
            // Any type is allowed at this stage, so only an integer that does not fit gets here.
            message if message.starts_with("invalid type: integer") => "the number is too large".to_owned(),
            message => message,
        };
        Self::Syntax { path: path.to_owned(), line: before.matches('\n').count() + 1, message }
    }

    pub(crate) fn unknown_section(schema: &Schema, path: &Path, name: &str) -> Self {
        let names = schema.sections.iter().map(|section| section.name).filter(|name| !name.is_empty());
        let known = names.clone().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", ");
        let meant = nearest(name, names).map(|name| format!("[{name}]"));
        Self::UnknownSection { path: path.to_owned(), name: name.to_owned(), known, meant }
    }

    pub(crate) fn unknown_key(schema: &Schema, path: &Path, section: &str, name: &str) -> Self {
        let key = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
        let siblings: Vec<_> = schema.keys().filter(|key| key.section() == section).map(|key| key.name()).collect();
        // The likeliest mistakes: a misspelt name, then a key in the wrong section.
        let near = nearest(&key, schema.keys().map(|key| key.full));
        let elsewhere = || schema.keys().find(|key| key.name() == name).map(|key| key.full);
        let meant = near.or_else(elsewhere).map(str::to_owned);
        let place = if section.is_empty() { "before the sections".to_owned() } else { format!("in [{section}]") };
        let known = format!("{place} there are {}", siblings.join(", "));
        Self::UnknownKey { path: path.to_owned(), key, known, meant }
    }

    pub(crate) fn unknown_variable<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self::UnknownVariable { name: name.to_owned(), meant: nearest(name, known).map(str::to_owned) }
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

fn named(by: Option<&str>) -> String {
    by.map(|name| format!(", named by {name},")).unwrap_or_default()
}

fn did_you_mean(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default()
}

/// The name that was probably meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (name.len() / 3).min(2);
    let with_distance = known.map(|candidate| (strsim::osa_distance(name, candidate), candidate));
    let near = with_distance.filter(|(distance, _)| *distance <= max_distance);
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}
