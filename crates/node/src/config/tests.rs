//! Tests of the configuration as operators use it: layers, errors, printing.

mod errors;
mod precedence;
mod reference;
mod round_trip;

use std::{io, path::Path};

use kukuri_config::{ConsoleValues, load_from};

use super::{ConfigError, Flags, Loaded, check::check};

/// The layers above the defaults.
#[derive(Default)]
struct Given<'a> {
    file: Option<&'a str>,
    variables: &'a [(&'a str, &'a str)],
    flags: &'a [(&'static str, &'a str)],
}

impl Given<'_> {
    fn load(&self) -> Result<Loaded, ConfigError> {
        let flags = self.flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        self.load_with(&Flags { config: None, values: flags })
    }

    fn load_with(&self, flags: &Flags) -> Result<Loaded, ConfigError> {
        let variables = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let loaded = load_from(flags, &ConsoleValues::new(), variables, |path| match self.file {
            Some(text) if path == Path::new("kukuri.toml") => Ok(text.to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        });
        check(loaded?)
    }
}

fn from_file(text: &str) -> Result<Loaded, ConfigError> {
    Given { file: Some(text), ..Given::default() }.load()
}
