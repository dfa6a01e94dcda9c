//! What is wrong, in one line: where it stands, the key, the value, what is allowed.

use std::{collections::BTreeMap, fmt, io, path::Path};

use figment::{Figment, error::Kind, value::Value};

use super::{
    place::without_password,
    section::{keys, sections},
    sources::Source,
};

/// A configuration that is not taken.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(line: impl Into<String>) -> Self {
        Self(line.into())
    }

    /// The value of a key is not what it must be.
    pub(crate) fn of_key(source: &Source, key: &str, value: impl fmt::Display, why: impl fmt::Display) -> Self {
        let place = source.of(key);
        Self(match source {
            // A variable and a flag say which key it is.
            Source::Variable | Source::Flag => format!("{place} = {value}: {why}"),
            Source::Default | Source::File(_) => format!("{place}: {key} = {value}: {why}"),
        })
    }
}

/// An error that was found while values were read into the settings.
pub(crate) fn of_value(
    error: &figment::Error,
    figment: &Figment,
    sources: &BTreeMap<&'static str, Source>,
) -> ConfigError {
    // The path of an entry in a list ends with its number.
    let (key, entry) = match error.path.split_last() {
        Some((last, list)) if last.parse::<usize>().is_ok() => (list.join("."), last.parse().ok()),
        _ => (error.path.join("."), None),
    };
    let why = match &error.kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) => format!("must be {expected}"),
        other => other.to_string(),
    };
    let value = figment.find_value(&key).ok();
    let value = match (&value, entry) {
        (Some(Value::Array(_, entries)), Some(entry)) => entries.get::<usize>(entry),
        (value, _) => value.as_ref(),
    };
    ConfigError::of_key(
        sources.get(&*key).unwrap_or(&Source::Default),
        &key,
        value.map_or_else(String::new, shown),
        why,
    )
}

/// A value in one line, without the password of a URL: errors end up in logs.
fn shown(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{:?}", without_password(text)),
        Value::Bool(_, answer) => answer.to_string(),
        Value::Num(_, number) => match (number.to_i128(), number.to_f64()) {
            (Some(number), _) => number.to_string(),
            (None, float) => float.map_or_else(String::new, |float| float.to_string()),
        },
        Value::Array(_, entries) => format!("[{}]", entries.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Value::Dict(..) => "{…}".to_owned(),
        Value::Char(_, character) => format!("{:?}", character.to_string()),
        Value::Empty(..) => "nothing".to_owned(),
    }
}

pub(crate) fn unreadable(path: &Path, named_by: Option<&str>, error: &io::Error) -> ConfigError {
    let named = named_by.map(|name| format!(", named by {name},")).unwrap_or_default();
    ConfigError(format!("{}{named} can't be read: {error}", path.display()))
}

pub(crate) fn of_syntax(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let message = match error.message().split_whitespace().collect::<Vec<_>>().join(" ") {
        // It is all values to the parser: no other type can be wrong.
        message if message.starts_with("invalid type: integer") => "the number is too large".to_owned(),
        message => message,
    };
    ConfigError(format!("{}: line {line}: {message}", path.display()))
}

pub(crate) fn no_section(path: &Path, section: &str, value: &Value) -> ConfigError {
    let source = Source::File(path.to_owned());
    ConfigError::of_key(&source, section, shown(value), format!("must be a section, [{section}]"))
}

pub(crate) fn unknown_section(path: &Path, name: &str) -> ConfigError {
    let names = sections().iter().map(|section| section.name).filter(|name| !name.is_empty());
    let listed: Vec<_> = names.clone().map(|name| format!("[{name}]")).collect();
    let meant = nearest(name, names).map(|name| format!("; did you mean [{name}]?")).unwrap_or_default();
    ConfigError(format!("{}: unknown section [{name}]; there are {}{meant}", path.display(), listed.join(", ")))
}

pub(crate) fn unknown_key(path: &Path, section: &str, name: &str) -> ConfigError {
    let full = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
    let siblings: Vec<_> = keys().filter(|key| key.section() == section).map(|key| key.name()).collect();
    // A key that stands in the wrong section is the likeliest slip, after one of spelling.
    let near = nearest(&full, keys().map(|key| key.full));
    let elsewhere = || keys().find(|key| key.name() == name).map(|key| key.full);
    let meant = near.or_else(elsewhere).map(|key| format!("; did you mean {key}?")).unwrap_or_default();
    let place = if section.is_empty() { "before the sections".to_owned() } else { format!("in [{section}]") };
    let listed = siblings.join(", ");
    ConfigError(format!("{}: unknown key {full}; {place} there are {listed}{meant}", path.display()))
}

pub(crate) fn unknown_variable<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> ConfigError {
    let meant = nearest(name, known).map(|name| format!("; did you mean {name}?"));
    ConfigError(format!("unknown variable {name}{}", meant.unwrap_or_default()))
}

/// The name that was probably meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.len() / 3).min(2);
    let with_distance = known.map(|candidate| (strsim::osa_distance(name, candidate), candidate));
    with_distance.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}
