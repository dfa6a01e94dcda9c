//! Where values come from: the file, the environment, flags. Each is read as text and knows the keys there are.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
};

use figment::{
    Figment, Metadata, Profile, Provider,
    value::{Dict, Map, Value},
};

use super::{
    error::{self, ConfigError},
    section::{self, Key, keys},
    value::Form,
};

/// Read from the current directory if no other file is named.
const DEFAULT_FILE: &str = "kukuri.toml";
/// Every variable that is meant for us.
const PREFIX: &str = "KUKURI_";
/// Those are for tests of the node, not for the node.
const FOR_TESTS: &str = "KUKURI_TEST_";
/// Names the file.
const FILE_VARIABLE: &str = "KUKURI_CONFIG";

/// Where a value came from; later ones win.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Variable,
    Flag,
}

impl Source {
    /// As an operator would look for it.
    pub(crate) fn of(&self, key: &str) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::File(path) => path.display().to_string(),
            Self::Variable => section::variable(key),
            Self::Flag => section::flag(key),
        }
    }
}

/// The source of each key that is set.
pub(crate) fn of_keys(figment: &Figment, file: Option<&Path>) -> BTreeMap<&'static str, Source> {
    let source = |key: &Key| match &*figment.find_metadata(key.full)?.name {
        File::NAME => file.map(|path| Source::File(path.to_owned())),
        Environment::NAME => Some(Source::Variable),
        _ => Some(Source::Flag),
    };
    keys().filter_map(|key| Some((key.full, source(key)?))).collect()
}

/// What was given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// Names the file.
    pub(crate) config: Option<PathBuf>,
    /// Keys and their values as text; later ones win.
    pub(crate) values: Vec<(&'static str, String)>,
}

impl Provider for &Flags {
    fn metadata(&self) -> Metadata {
        Metadata::named("flags")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(nested(self.values.iter().filter_map(|(name, text)| {
            let key = keys().find(|key| key.full == *name)?;
            Some((key, text.as_str()))
        })))
    }
}

/// The variables that are set.
pub(crate) struct Environment {
    values: Vec<(&'static Key, String)>,
    config: Option<PathBuf>,
}

impl Environment {
    const NAME: &str = "environment";

    pub(crate) fn new(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Self, ConfigError> {
        let known: BTreeMap<_, _> = keys().map(|key| (key.variable(), key)).collect();
        let mut found = Self { values: Vec::new(), config: None };
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX) && !name.starts_with(FOR_TESTS))
            else {
                continue;
            };
            let is_file = name == FILE_VARIABLE;
            let key = known.get(name);
            // Unknown ones are errors even if they are empty: a slip is a slip.
            if !is_file && key.is_none() {
                return Err(error::unknown_variable(name, known.keys().map(String::as_str).chain([FILE_VARIABLE])));
            }
            if value.is_empty() {
                continue;
            }
            if is_file {
                found.config = Some(value.into());
            } else if let Some(key) = key {
                let text = value.into_string().map_err(|_| ConfigError::new(format!("{name}: must be UTF-8")))?;
                found.values.push((key, text));
            }
        }
        Ok(found)
    }
}

impl Provider for Environment {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(nested(self.values.iter().map(|(key, text)| (*key, text.as_str()))))
    }
}

/// Texts as values in their sections.
fn nested<'a>(values: impl Iterator<Item = (&'static Key, &'a str)>) -> Map<Profile, Dict> {
    let mut top = Dict::new();
    for (key, text) in values {
        let value = from_text(text, key.form);
        if key.section().is_empty() {
            top.insert(key.name().to_owned(), value);
            continue;
        }
        let section = top.entry(key.section().to_owned()).or_insert_with(|| Dict::new().into());
        if let Value::Dict(_, section) = section {
            section.insert(key.name().to_owned(), value);
        }
    }
    Profile::Default.collect(top)
}

/// What does not have the form stays text, and is refused as such by whoever reads it.
fn from_text(text: &str, form: Form) -> Value {
    match form {
        Form::Text => text.into(),
        Form::Bare => match (text.parse::<i64>(), text.parse::<bool>()) {
            (Ok(number), _) => number.into(),
            (_, Ok(answer)) => answer.into(),
            _ => text.into(),
        },
        Form::List => {
            let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
            entries.map(Value::from).collect::<Vec<_>>().into()
        }
    }
}

/// The file, parsed; every key in it is known.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    values: Dict,
}

impl File {
    const NAME: &str = "file";

    /// The file that is named, or the one in the current directory if it is there.
    pub(crate) fn find(
        flags: &Flags,
        environment: &Environment,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let by_flag = flags.config.as_ref().map(|path| (path, "--config"));
        let by_variable = || environment.config.as_ref().map(|path| (path, FILE_VARIABLE));
        let (path, named_by) = match by_flag.or_else(by_variable) {
            Some((path, name)) => (path.as_path(), Some(name)),
            None => (Path::new(DEFAULT_FILE), None),
        };
        match read(path) {
            Ok(text) => Self::parse(path, &text).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named_by.is_none() => Ok(None),
            Err(error) => Err(error::unreadable(path, named_by, &error)),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = toml::from_str(text).map_err(|error| error::of_syntax(path, text, &error))?;
        for (name, value) in &table {
            let is_section = section::sections().iter().any(|section| section.name == name);
            match value {
                toml::Value::Table(entries) if is_section => {
                    let unknown = entries.keys().find(|key| !is_key(&format!("{name}.{key}")));
                    if let Some(key) = unknown {
                        return Err(error::unknown_key(path, name, key));
                    }
                }
                _ if is_section => return Err(error::no_section(path, name, &from_toml(value.clone()))),
                _ if is_key(name) => {}
                toml::Value::Table(_) => return Err(error::unknown_section(path, name)),
                _ => return Err(error::unknown_key(path, "", name)),
            }
        }
        Ok(Self { path: path.to_owned(), values: dict(table) })
    }
}

fn is_key(full: &str) -> bool {
    keys().any(|key| key.full == full)
}

impl Provider for File {
    fn metadata(&self) -> Metadata {
        Metadata::named(Self::NAME)
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
}

fn dict(table: toml::Table) -> Dict {
    table.into_iter().map(|(key, value)| (key, from_toml(value))).collect()
}

/// Times become text: there is one way to read them, wherever they come from.
fn from_toml(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Boolean(answer) => answer.into(),
        toml::Value::Datetime(moment) => moment.to_string().into(),
        toml::Value::Array(entries) => entries.into_iter().map(from_toml).collect::<Vec<_>>().into(),
        toml::Value::Table(table) => dict(table).into(),
    }
}
