//! How a key's type reads and writes TOML. The error says which values are allowed.

use std::{net::SocketAddr, path::PathBuf};

use crate::TomlValue;

/// How text from an environment variable or a flag becomes TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// A TOML string.
    Text,
    /// An integer or a boolean.
    Bare,
    /// An array of strings, separated by commas.
    List,
}

/// A value that a key's type does not allow.
#[derive(Debug, thiserror::Error)]
#[error("must be {allowed}")]
pub struct Mismatch {
    /// The value; of a list, the entry.
    pub value: TomlValue,
    /// Completes the sentence "must be …".
    pub allowed: String,
}

impl Mismatch {
    fn new(value: &TomlValue, allowed: impl Into<String>) -> Self {
        Self { value: value.clone(), allowed: allowed.into() }
    }
}

/// A type that a key can have. Types that are written as text implement [`TextSetting`] instead.
pub trait Setting: Sized {
    /// How text becomes TOML for this type.
    const FORM: TextForm;
    /// Reads a value.
    fn from_toml(value: &TomlValue) -> Result<Self, Mismatch>;
    /// `None`: not set.
    fn to_toml(&self) -> Option<TomlValue>;
}

/// A type that is written as a TOML string, some also as an integer.
pub trait TextSetting: Sized {
    /// Completes the sentence "must be …".
    const ALLOWED: &'static str;
    /// Reads a string.
    fn parse(text: &str) -> Option<Self>;
    /// Reads an integer.
    fn from_number(_: u64) -> Option<Self> {
        None
    }
    /// The value as `parse` or `from_number` reads it.
    fn to_value(&self) -> TomlValue;
}

impl<T: TextSetting> Setting for T {
    const FORM: TextForm = TextForm::Text;

    fn from_toml(value: &TomlValue) -> Result<Self, Mismatch> {
        let parsed = match value {
            TomlValue::String(text) => T::parse(text),
            TomlValue::Integer(number) => u64::try_from(*number).ok().and_then(T::from_number),
            _ => None,
        };
        parsed.ok_or_else(|| Mismatch::new(value, T::ALLOWED))
    }

    fn to_toml(&self) -> Option<TomlValue> {
        Some(self.to_value())
    }
}

/// Reads text that does not come from a configuration, such as a flag of a command.
pub fn parse_text<T: TextSetting>(text: &str) -> Result<T, Mismatch> {
    T::parse(text).ok_or_else(|| Mismatch::new(&text.into(), T::ALLOWED))
}

/// The text that [`parse_text`] reads.
pub fn format_text<T: TextSetting>(value: &T) -> String {
    unquoted(&value.to_value())
}

/// A value without quotes, for a sentence.
pub(crate) fn unquoted(value: &TomlValue) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Types that `FromStr` reads and `Display` writes.
macro_rules! texts {
    ($($type:ty: $allowed:literal),+) => {$(
        impl TextSetting for $type {
            const ALLOWED: &'static str = $allowed;
            fn parse(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn to_value(&self) -> TomlValue {
                self.to_string().into()
            }
        }
    )+};
}
texts!(String: "text", SocketAddr: "an IP address and a port, such as 127.0.0.1:7777 or [::]:7777");

impl TextSetting for PathBuf {
    const ALLOWED: &'static str = "a path";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }
    fn to_value(&self) -> TomlValue {
        self.to_string_lossy().into_owned().into()
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            const FORM: TextForm = TextForm::Bare;

            fn from_toml(value: &TomlValue) -> Result<Self, Mismatch> {
                let TomlValue::Integer(number) = value else { return Err(Mismatch::new(value, "a whole number")) };
                let number = u64::try_from(*number)
                    .map_err(|_| Mismatch::new(value, "a whole number, not negative"))?;
                Self::try_from(number).map_err(|_| Mismatch::new(value, format!("at most {}", Self::MAX)))
            }

            fn to_toml(&self) -> Option<TomlValue> {
                // TOML has no larger integer, so none was read.
                Some(TomlValue::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )+};
}
numbers!(u32, u64, usize);

impl Setting for bool {
    const FORM: TextForm = TextForm::Bare;

    fn from_toml(value: &TomlValue) -> Result<Self, Mismatch> {
        value.as_bool().ok_or_else(|| Mismatch::new(value, "true or false"))
    }

    fn to_toml(&self) -> Option<TomlValue> {
        Some((*self).into())
    }
}

impl<T: Setting> Setting for Option<T> {
    const FORM: TextForm = T::FORM;

    fn from_toml(value: &TomlValue) -> Result<Self, Mismatch> {
        T::from_toml(value).map(Some)
    }

    fn to_toml(&self) -> Option<TomlValue> {
        self.as_ref().and_then(T::to_toml)
    }
}

impl<T: Setting> Setting for Vec<T> {
    const FORM: TextForm = TextForm::List;

    fn from_toml(value: &TomlValue) -> Result<Self, Mismatch> {
        let entries = value.as_array().ok_or_else(|| Mismatch::new(value, "a list"))?;
        entries.iter().map(T::from_toml).collect()
    }

    fn to_toml(&self) -> Option<TomlValue> {
        Some(self.iter().filter_map(T::to_toml).collect::<Vec<_>>().into())
    }
}

/// Whether a part of the node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `on`
    On,
    /// `off`
    Off,
}

crate::choices!(Switch: "on or off", (Switch::On) = "on", (Switch::Off) = "off");

/// Implements [`TextSetting`] for a type with few values: `choices!(Mode: "off or on", (Mode::Off) = "off", (Mode::On) = "on")`.
#[macro_export]
macro_rules! choices {
    ($type:ty: $allowed:literal, $(($($value:tt)+) = $text:literal),+) => {
        impl $crate::TextSetting for $type {
            const ALLOWED: &'static str = $allowed;
            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some($($value)+),)+
                    _ => None,
                }
            }
            fn to_value(&self) -> $crate::TomlValue {
                match self {
                    $($($value)+ => $text.into(),)+
                }
            }
        }
    };
}

/// Declares a type for text that passes a check.
#[macro_export]
macro_rules! checked_text {
    ($(#[$doc:meta])+ $visibility:vis $type:ident: $allowed:literal, $is_allowed:expr) => {
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        $visibility struct $type(String);

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl $crate::TextSetting for $type {
            const ALLOWED: &'static str = $allowed;
            fn parse(text: &str) -> Option<Self> {
                let is_allowed: fn(&str) -> bool = $is_allowed;
                is_allowed(text).then(|| Self(text.to_owned()))
            }
            fn to_value(&self) -> $crate::TomlValue {
                self.0.as_str().into()
            }
        }
    };
}
