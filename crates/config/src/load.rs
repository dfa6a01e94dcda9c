//! Merges the layers into settings, and reports values that do not go together.

use std::{collections::BTreeMap, ffi::OsString, io, path::Path};

use crate::{
    ConfigError, ConsoleValues, Flags, Layer, Schema, Section, Setting, TomlValue,
    layers::{Values, read_console, read_environment, read_file},
    value::unquoted,
};

/// Settings, with the layer that each value came from.
#[derive(Clone, Debug)]
pub struct Loaded<S> {
    /// The effective values.
    pub settings: S,
    layers: BTreeMap<&'static str, Layer>,
}

/// Reads file and environment at each call, so that a reload is another call.
pub fn load<S: Section>(flags: &Flags, console: &ConsoleValues) -> Result<Loaded<S>, ConfigError> {
    load_from(flags, console, std::env::vars_os(), |path| std::fs::read_to_string(path))
}

/// [`load()`] with an environment and a file system of the caller.
pub fn load_from<S: Section>(
    flags: &Flags,
    console: &ConsoleValues,
    variables: impl Iterator<Item = (OsString, OsString)>,
    read: impl Fn(&Path) -> io::Result<String>,
) -> Result<Loaded<S>, ConfigError> {
    let schema = Schema::of::<S>();
    let (variables, file) = read_environment(&schema, variables)?;
    let mut values = Values::default();
    // The lowest layer first.
    values.add(&Layer::Console, read_console(&schema, console)?);
    if let Some((path, entries)) = read_file(&schema, flags.config.as_deref(), file.as_deref(), read)? {
        values.add(&Layer::File(path), entries);
    }
    values.add(&Layer::Variable, variables);
    values.add(&Layer::Flag, flags.entries(&schema));
    Ok(Loaded { settings: S::read(&values)?, layers: values.into_layers() })
}

impl<S: Section> Loaded<S> {
    /// The layer that the value of a key came from.
    pub fn layer(&self, key: &str) -> &Layer {
        self.layers.get(key).unwrap_or(&Layer::Default)
    }

    /// The keys whose values differ, in the order of the declaration.
    pub fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        self.settings.changed_keys(&other.settings)
    }

    /// An error about the value of a key: `why` completes "key = value: …".
    pub fn reject(&self, key: &str, why: impl AsRef<str>) -> ConfigError {
        let schema = Schema { sections: self.settings.describe() };
        let value = schema.key(key).and_then(|key| key.value.clone()).unwrap_or_else(|| TomlValue::from(""));
        ConfigError::value(self.layer(key), key, &value, why)
    }

    /// Each value must be less than the next. Of two that are not, the error names the one from the higher layer.
    pub fn require_ascending<T: Setting + PartialOrd>(&self, values: &[(&str, T)]) -> Result<(), ConfigError> {
        let text = |value: &T| value.to_toml().map(|value| unquoted(&value)).unwrap_or_default();
        for pair in values.windows(2) {
            let [(low, low_value), (high, high_value)] = pair else { continue };
            if low_value < high_value {
                continue;
            }
            return Err(if self.layer(high) > self.layer(low) {
                self.reject(high, format!("must be more than {low} ({})", text(low_value)))
            } else {
                self.reject(low, format!("must be less than {high} ({})", text(high_value)))
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::PathBuf};

    use super::*;
    use crate::{Language, Percent, Switch, print, reference, section};

    section! {
        /// The program.
        ja "プログラム。"
        Sample in "" {
            /// Whether it works.
            ja "動くかどうか。"
            works: Switch = Switch::On, needs restart;
            /// Where it works.
            ja "場所。"
            path: Option<PathBuf> = None, such as "/srv";
        }
        sections { stages: Stages, }
    }

    section! {
        /// Two stages.
        ja "2 つの段階。"
        Stages in "stages." {
            /// The lower one.
            ja "低い方。"
            low: Percent = Percent(10);
            /// The higher one.
            ja "高い方。"
            high: Percent = Percent(90), at least Percent(2);
        }
    }

    fn load_sample(file: &str, variable: &str, flag: &str) -> Result<Loaded<Sample>, ConfigError> {
        let variables = [("KUKURI_STAGES_LOW", variable)].map(|(name, value)| (name.into(), value.into()));
        let values = if flag.is_empty() { Vec::new() } else { vec![("stages.low", flag.to_owned())] };
        let console = [("stages.low", "4"), ("stages.high", "70"), ("gone", "1")];
        let console = console.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        load_from(&Flags { config: None, values }, &console, variables.into_iter(), |_| Ok(file.to_owned()))
    }

    #[test]
    fn the_highest_layer_wins_and_is_remembered() {
        let file = "[stages]\nlow = 1";
        for (file, variable, flag, value, location) in [
            ("", "", "", 4, "console"),
            (file, "", "", 1, "kukuri.toml"),
            (file, "2", "", 2, "KUKURI_STAGES_LOW"),
            (file, "2", "3", 3, "--stages-low"),
        ] {
            let loaded = load_sample(file, variable, flag).unwrap();
            assert_eq!(loaded.settings.stages.low.0, value);
            assert_eq!(loaded.layer("stages.low").location("stages.low"), location);
        }
        assert_eq!(load_sample("", "", "").unwrap().layer("path").location("path"), "default");
    }

    #[test]
    fn values_of_the_console_are_checked_like_all_others() {
        // K-7
        for (value, expected) in [
            ("\"many\"", "console: stages.low = \"many\": must be a whole number of percent from 0 to 100"),
            ("nonsense here", "console: stages.low = \"nonsense here\": must be a value in TOML"),
        ] {
            let console = ConsoleValues::from([("stages.low".to_owned(), value.to_owned())]);
            let loaded = load_from::<Sample>(&Flags::default(), &console, std::iter::empty(), |_| Ok(String::new()));
            assert_eq!(loaded.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn of_two_values_in_the_wrong_order_the_error_names_the_one_from_the_higher_layer() {
        for (file, variable, expected) in [
            ("[stages]\nhigh = 3", "", "kukuri.toml: stages.high = 3: must be more than stages.low (4)"),
            ("[stages]\nhigh = 3", "6", "KUKURI_STAGES_LOW = 6: must be less than stages.high (3)"),
        ] {
            let loaded = load_sample(file, variable, "").unwrap();
            let stages = &loaded.settings.stages;
            let order = loaded.require_ascending(&[("stages.low", stages.low), ("stages.high", stages.high)]);
            assert_eq!(order.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_declaration_makes_the_effective_file_the_example_and_the_reference() {
        let loaded = load_sample("stages.high = 80", "", "").unwrap();
        assert_eq!(
            print::effective(&loaded),
            "works = \"on\"  # default\n# path is not set\n\n[stages]\nlow = 4  # console\nhigh = 80  # kukuri.toml\n"
        );
        assert!(print::example::<Sample>().ends_with("\n# The higher one. (at least 2)\n#high = 90\n"));
        let flags = BTreeSet::from(["--works".to_owned()]);
        let schema = Schema::of::<Sample>();
        let english = reference(&schema, &flags, Language::English);
        let entry =
            "- **`works`** (default `\"on\"` · `KUKURI_WORKS` · `--works` · restart)<br>\n  Whether it works.\n";
        assert!(english.contains(entry), "{english}");
        let japanese = reference(&schema, &flags, Language::Japanese);
        let entry =
            "- **`stages.high`**（既定値 `90` · 2 以上 · `KUKURI_STAGES_HIGH` · 再読み込み可）<br>\n  高い方。\n";
        assert!(japanese.contains(entry), "{japanese}");
    }
}
