//! What can be set, and where each value comes from: defaults, then the file, the environment, flags.
//!
//! # Layout
//!
//! - [`settings`]: every key, with its default and its text for operators. `domain`: the same as the rules want it.
//! - [`section`]: the macro that makes a section of keys from such a list.
//! - [`value`], [`span`], [`size`], [`percent`], [`names`], [`place`], [`net`], [`moment`], [`kinds`]: what a value
//!   can be.
//! - `sources`: file, environment and flags. `check`: what must hold between keys. `error`: one line that says what is
//!   wrong.
//! - `print`: the effective configuration and an example file. The reference in `docs/configuration.md` is written by
//!   `tests/reference.rs`.

mod check;
mod domain;
mod error;
pub(crate) mod kinds;
pub(crate) mod moment;
pub(crate) mod names;
pub(crate) mod net;
pub(crate) mod percent;
pub(crate) mod place;
pub(crate) mod print;
mod section;
pub(crate) mod settings;
pub(crate) mod size;
mod sources;
pub(crate) mod span;
mod value;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, ffi::OsString, io, path::Path};

use figment::Figment;

pub(crate) use error::ConfigError;
pub(crate) use names::{AuthMode, IndexPlace, Switch};
pub(crate) use place::StorePlace;
use section::{Section, Shown};
pub(crate) use settings::Settings;
pub(crate) use size::Size;
pub(crate) use sources::{Flags, Source};
pub(crate) use span::{Keeping, Span};

/// The settings, and where each came from.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) settings: Settings,
    sources: BTreeMap<&'static str, Source>,
}

/// Reads everything again each time it is called, so a reload is another call.
pub(crate) fn load(flags: &Flags) -> Result<Loaded, ConfigError> {
    load_from(flags, std::env::vars_os(), |path| std::fs::read_to_string(path))
}

fn load_from(
    flags: &Flags,
    variables: impl Iterator<Item = (OsString, OsString)>,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<Loaded, ConfigError> {
    let environment = sources::Environment::new(variables)?;
    let file = sources::File::find(flags, &environment, read)?;
    let path = file.as_ref().map(|file| file.path.clone());
    let mut figment = Figment::new();
    if let Some(file) = file {
        figment = figment.merge(file);
    }
    figment = figment.merge(environment).merge(flags);
    let sources = sources::of_keys(&figment, path.as_deref());
    let settings = figment.extract().map_err(|error| error::of_value(&error, &figment, &sources))?;
    let loaded = Loaded { settings, sources };
    check::check(&loaded)?;
    Ok(loaded)
}

impl Loaded {
    /// Where the value of a key came from.
    pub(crate) fn source(&self, key: &str) -> &Source {
        self.sources.get(key).unwrap_or(&Source::Default)
    }

    /// The keys whose values differ, in the order of the documentation.
    pub(crate) fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        let (ours, theirs) = (self.settings.values(), other.settings.values());
        // What is shown of the store leaves its password out.
        let is_hidden = |key: &str| key == "store" && self.settings.store != other.settings.store;
        let differs = |(our, their): &(Shown, Shown)| our != their || is_hidden(our.0);
        ours.into_iter().zip(theirs).filter(differs).map(|((key, _), _)| key).collect()
    }
}

/// Whether a changed value is heeded only by a node that starts anew.
pub(crate) fn needs_restart(key: &str) -> bool {
    section::keys().any(|known| known.full == key && known.needs_restart)
}

impl Settings {
    /// Where events are stored.
    pub(crate) fn store_place(&self) -> StorePlace {
        self.store.clone().unwrap_or_else(|| StorePlace::Lmdb(self.data.join("store")))
    }

    /// Where the index for search is.
    pub(crate) fn index_place(&self) -> IndexPlace {
        self.search.index.unwrap_or_else(|| match self.store_place() {
            StorePlace::Lmdb(_) => IndexPlace::Embedded,
            StorePlace::Postgres(_) => IndexPlace::Postgres,
        })
    }
}

/// A value that stands alone, read as in a configuration; the error ends the sentence "it must be …".
pub(crate) fn read<T: value::Spelled>(text: &str) -> Result<T, String> {
    T::parse(text).ok_or_else(|| format!("must be {}", T::ALLOWED))
}

/// The same shown.
pub(crate) fn show<T: value::Spelled>(value: &T) -> String {
    value::bare(&value.spell())
}
