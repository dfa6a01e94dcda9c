//! The layers above the defaults: file, environment, flags. Each refuses names that are not in the schema.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use crate::{Bounds, ConfigError, KeyInfo, Language, Schema, Setting, TextForm, TomlValue};

/// Read from the current directory unless `--config` or `KUKURI_CONFIG` names another file.
const DEFAULT_FILE: &str = "kukuri.toml";
const PREFIX: &str = "KUKURI_";
/// Read by tests of the node, not by the node.
const TEST_PREFIX: &str = "KUKURI_TEST_";
const FILE_VARIABLE: &str = "KUKURI_CONFIG";

/// Where a value came from. A higher layer wins over a lower one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The declaration of the key.
    Default,
    /// This file.
    File(PathBuf),
    /// The environment.
    Variable,
    /// The command line.
    Flag,
}

impl Layer {
    /// The place where an operator finds the value of `key`.
    pub fn location(&self, key: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Variable => variable_of(key),
            Self::Flag => flag_of(key),
        }
    }
}

/// The environment variable of a key.
pub(crate) fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "_").to_uppercase())
}

/// The flag of a key, if the command line has one for it.
pub fn flag_of(key: &str) -> String {
    format!("--{}", key.replace(['.', '_'], "-"))
}

type Entries = Vec<(&'static str, TomlValue)>;

/// The values that are set, each from the highest layer that sets it.
#[derive(Default)]
pub struct Values(BTreeMap<&'static str, (Layer, TomlValue)>);

impl Values {
    /// Adds a layer over those added before.
    pub(crate) fn add(&mut self, layer: &Layer, entries: Entries) {
        self.0.extend(entries.into_iter().map(|(key, value)| (key, (layer.clone(), value))));
    }

    /// Reads a key; `None`: no layer sets it.
    pub fn read<T: Setting>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some((layer, value)) = self.0.get(key) else { return Ok(None) };
        let read = T::from_toml(value).map(Some);
        read.map_err(|mismatch| ConfigError::value(layer, key, &mismatch.value, mismatch.to_string()))
    }

    /// The error about a value below or above its bounds.
    pub fn out_of_bounds(&self, key: &str, bounds: &Bounds) -> ConfigError {
        let default = (Layer::Default, TomlValue::from(""));
        let (layer, value) = self.0.get(key).unwrap_or(&default);
        ConfigError::value(
            layer,
            key,
            value,
            format!("must be {}", bounds.in_words(Language::English).unwrap_or_default()),
        )
    }

    pub(crate) fn into_layers(self) -> BTreeMap<&'static str, Layer> {
        self.0.into_iter().map(|(key, (layer, _))| (key, layer)).collect()
    }
}

/// The flags on the command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// Keys and their values as text; the last one wins.
    pub values: Vec<(&'static str, String)>,
}

impl Flags {
    pub(crate) fn entries(&self, schema: &Schema) -> Entries {
        let entry = |(key, text): &(&str, String)| schema.key(key).map(|key| (key.full, from_text(text, key.form)));
        self.values.iter().filter_map(entry).collect()
    }
}

/// The `KUKURI_` variables.
#[derive(Default)]
pub(crate) struct Environment {
    pub(crate) values: Entries,
    config: Option<PathBuf>,
}

impl Environment {
    pub(crate) fn new(
        schema: &Schema,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let known: BTreeMap<String, &KeyInfo> = schema.keys().map(|key| (key.variable(), key)).collect();
        let mut found = Self::default();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX))
            else {
                continue;
            };
            let key = known.get(name);
            // An unknown variable is an error even if it is empty: its name is misspelt.
            if name != FILE_VARIABLE && key.is_none() {
                let names = known.keys().map(String::as_str).chain([FILE_VARIABLE]);
                return Err(ConfigError::unknown_variable(name, names));
            }
            if value.is_empty() {
                continue;
            }
            let Some(key) = key else {
                found.config = Some(value.into());
                continue;
            };
            let text = value.into_string().map_err(|_| ConfigError::NotUtf8(name.to_owned()))?;
            found.values.push((key.full, from_text(&text, key.form)));
        }
        Ok(found)
    }
}

/// Text that does not have the form stays a string, which the key's type then refuses.
fn from_text(text: &str, form: TextForm) -> TomlValue {
    match form {
        TextForm::Text => text.into(),
        TextForm::Bare => match (text.parse::<i64>(), text.parse::<bool>()) {
            (Ok(number), _) => number.into(),
            (_, Ok(answer)) => answer.into(),
            _ => text.into(),
        },
        TextForm::List => {
            let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
            entries.map(TomlValue::from).collect::<Vec<_>>().into()
        }
    }
}

/// Reads the file named by a flag or a variable, or else the default file if it exists.
pub(crate) fn read_file(
    schema: &Schema,
    flags: &Flags,
    environment: &Environment,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<Option<(PathBuf, Entries)>, ConfigError> {
    let by_flag = flags.config.as_ref().map(|path| (path, "--config"));
    let by_variable = || environment.config.as_ref().map(|path| (path, FILE_VARIABLE));
    let (path, named_by) = match by_flag.or_else(by_variable) {
        Some((path, name)) => (path.as_path(), Some(name)),
        None => (Path::new(DEFAULT_FILE), None),
    };
    match read(path) {
        Ok(text) => Ok(Some((path.to_owned(), parse_file(schema, path, &text)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named_by.is_none() => Ok(None),
        Err(error) => Err(ConfigError::unreadable(path, named_by, error)),
    }
}

fn parse_file(schema: &Schema, path: &Path, text: &str) -> Result<Entries, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|error| ConfigError::syntax(path, text, &error))?;
    let mut entries = Vec::new();
    for (name, value) in table {
        let is_section = !name.is_empty() && schema.sections.iter().any(|section| section.name == name);
        match (schema.key(&name), value) {
            (_, TomlValue::Table(table)) if is_section => {
                for (inner, value) in table {
                    let key = schema.key(&format!("{name}.{inner}"));
                    let key = key.ok_or_else(|| ConfigError::unknown_key(schema, path, &name, &inner))?;
                    entries.push((key.full, without_datetime(value)));
                }
            }
            (_, value) if is_section => {
                let why = format!("must be a section, [{name}]");
                return Err(ConfigError::value(&Layer::File(path.to_owned()), &name, &without_datetime(value), why));
            }
            (Some(key), value) => entries.push((key.full, without_datetime(value))),
            (None, TomlValue::Table(_)) => return Err(ConfigError::unknown_section(schema, path, &name)),
            (None, _) => return Err(ConfigError::unknown_key(schema, path, "", &name)),
        }
    }
    Ok(entries)
}

/// A date becomes text, so that a key's type reads it in one form from every layer.
fn without_datetime(value: TomlValue) -> TomlValue {
    match value {
        TomlValue::Datetime(datetime) => datetime.to_string().into(),
        TomlValue::Array(entries) => entries.into_iter().map(without_datetime).collect::<Vec<_>>().into(),
        other => other,
    }
}
