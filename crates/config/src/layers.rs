//! The layers above the defaults: console, file, environment, flags. The last three refuse names that are not in the schema.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use crate::{ConfigError, KeyInfo, Language, Schema, Section, Setting, TextForm, TomlValue, error::nearest};

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
    /// Set while the node runs, by a command or in the console.
    Console,
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
            Self::Console => "console".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Variable => variable_of(key),
            Self::Flag => flag_of(key),
        }
    }
}

/// The environment variable of a key.
pub fn variable_of(key: &str) -> String {
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

    /// Reads a key of the section `S`; `None`: no layer sets it.
    pub fn read<S: Section, T: Setting>(
        &self,
        key: &str,
        is_in_bounds: impl Fn(&T) -> bool,
    ) -> Result<Option<T>, ConfigError> {
        let Some((layer, value)) = self.0.get(key) else { return Ok(None) };
        match T::from_toml(value) {
            Ok(read) if is_in_bounds(&read) => Ok(Some(read)),
            Ok(_) => {
                let bounds = Schema::of::<S>().key(key).and_then(|key| key.bounds(Language::English));
                let why = format!("must be {}", bounds.unwrap_or_default());
                Err(ConfigError::value(layer, key, value, why))
            }
            Err(mismatch) => Err(ConfigError::value(layer, key, &mismatch.value, mismatch.to_string())),
        }
    }

    pub(crate) fn into_layers(self) -> BTreeMap<&'static str, Layer> {
        self.0.into_iter().map(|(key, (layer, _))| (key, layer)).collect()
    }
}

/// Keys that were set while the node runs, each with its value as TOML.
pub type ConsoleValues = BTreeMap<String, String>;

/// A key that this version does not have is left out: another version of the node has set it.
pub(crate) fn read_console(schema: &Schema, console: &ConsoleValues) -> Result<Entries, ConfigError> {
    let mut entries = Vec::new();
    for (name, text) in console {
        let Some(key) = schema.key(name) else { continue };
        let value = text.parse().map_err(|_| {
            ConfigError::value(&Layer::Console, key.full, &TomlValue::from(text.as_str()), "must be a value in TOML")
        })?;
        entries.push((key.full, without_datetime(value)));
    }
    Ok(entries)
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

/// The values of the `KUKURI_` variables, and the file that one of them names.
pub(crate) fn read_environment(
    schema: &Schema,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(Entries, Option<PathBuf>), ConfigError> {
    let keys = schema.keys().map(|key| (variable_of(key.full), Some(key)));
    let known: BTreeMap<String, Option<&KeyInfo>> = keys.chain([(FILE_VARIABLE.to_owned(), None)]).collect();
    let (mut entries, mut file) = (Vec::new(), None);
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX) && !name.starts_with(TEST_PREFIX)) else {
            continue;
        };
        match known.get(name) {
            // An error even if it is empty: its name is misspelt.
            None => {
                let meant = nearest(name, known.keys().map(String::as_str));
                return Err(ConfigError::unknown(format!("unknown variable {name}"), meant));
            }
            Some(_) if value.is_empty() => {}
            Some(None) => file = Some(value.into()),
            Some(Some(key)) => {
                let text = value.into_string().map_err(|_| ConfigError::NotUtf8(name.to_owned()))?;
                entries.push((key.full, from_text(&text, key.form)));
            }
        }
    }
    Ok((entries, file))
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
    by_flag: Option<&Path>,
    by_variable: Option<&Path>,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<Option<(PathBuf, Entries)>, ConfigError> {
    let (path, named_by) = match (by_flag, by_variable) {
        (Some(path), _) => (path, Some("--config")),
        (None, Some(path)) => (path, Some(FILE_VARIABLE)),
        (None, None) => (Path::new(DEFAULT_FILE), None),
    };
    match read(path) {
        Ok(text) => Ok(Some((path.to_owned(), parse_file(schema, path, &text)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named_by.is_none() => Ok(None),
        Err(error) => {
            let named = named_by.map(|name| format!(", named by {name},")).unwrap_or_default();
            Err(ConfigError::Unreadable(format!("{}{named}", path.display()), error))
        }
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
