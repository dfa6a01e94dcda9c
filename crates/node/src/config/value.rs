//! How a value is read and shown. Whatever is wrong with one, the error says what is allowed.

use std::{fmt, marker::PhantomData, net::SocketAddr, path::PathBuf};

use serde::{
    Deserializer,
    de::{self, Unexpected},
};

/// How a text from the environment or a flag becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It is taken as it is.
    Text,
    /// A number, or true or false.
    Bare,
    /// Texts between commas.
    List,
}

/// A type a key can have.
pub(crate) trait Setting: Sized {
    const FORM: Form;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
    /// As TOML; `None`: not set.
    fn show(&self) -> Option<toml::Value>;
}

/// A type that is written as text, and perhaps as a number too.
pub(crate) trait Spelled: Sized {
    /// Ends the sentence "must be …".
    const ALLOWED: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn from_number(_: u64) -> Option<Self> {
        None
    }
    fn spell(&self) -> toml::Value;
}

impl<T: Spelled> Setting for T {
    const FORM: Form = Form::Text;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor<T>(PhantomData<T>);
        impl<T: Spelled> de::Visitor<'_> for Visitor<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::ALLOWED)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
                T::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
                T::from_number(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
                let from = u64::try_from(number).ok().and_then(T::from_number);
                from.ok_or_else(|| E::invalid_value(Unexpected::Signed(number), &self))
            }
        }
        deserializer.deserialize_any(Visitor(PhantomData))
    }

    fn show(&self) -> Option<toml::Value> {
        Some(self.spell())
    }
}

impl Spelled for String {
    const ALLOWED: &'static str = "text";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn spell(&self) -> toml::Value {
        self.as_str().into()
    }
}

impl Spelled for PathBuf {
    const ALLOWED: &'static str = "a path";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }
    fn spell(&self) -> toml::Value {
        self.to_string_lossy().into_owned().into()
    }
}

impl Spelled for SocketAddr {
    const ALLOWED: &'static str = "an IP address and a port, such as 127.0.0.1:7777 or [::]:7777";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            const FORM: Form = Form::Bare;

            fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let number = deserializer.deserialize_u64(Whole)?;
                let most = format!("at most {}", Self::MAX);
                Self::try_from(number)
                    .map_err(|_| de::Error::invalid_value(Unexpected::Unsigned(number), &most.as_str()))
            }

            fn show(&self) -> Option<toml::Value> {
                // TOML has no larger numbers, so none was read.
                Some(toml::Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
            }
        }
    )+};
}
numbers!(u32, u64, usize);

struct Whole;

impl de::Visitor<'_> for Whole {
    type Value = u64;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &"a whole number, not negative"))
    }
}

impl Setting for bool {
    const FORM: Form = Form::Bare;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = bool;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true or false")
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<bool, E> {
                Ok(value)
            }
        }
        deserializer.deserialize_bool(Visitor)
    }

    fn show(&self) -> Option<toml::Value> {
        Some((*self).into())
    }
}

/// What is not set has no spelling: it is left out.
impl<T: Setting> Setting for Option<T> {
    const FORM: Form = T::FORM;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Some)
    }

    fn show(&self) -> Option<toml::Value> {
        self.as_ref().and_then(T::show)
    }
}

impl<T: Setting> Setting for Vec<T> {
    const FORM: Form = Form::List;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Element<T>(T);
        impl<'de, T: Setting> de::Deserialize<'de> for Element<T> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                T::read(deserializer).map(Self)
            }
        }
        struct Visitor<T>(PhantomData<T>);
        impl<'de, T: Setting> de::Visitor<'de> for Visitor<T> {
            type Value = Vec<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(Element(value)) = elements.next_element()? {
                    all.push(value);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(Visitor(PhantomData))
    }

    fn show(&self) -> Option<toml::Value> {
        Some(self.iter().filter_map(T::show).collect::<Vec<_>>().into())
    }
}

/// Bounds as they are told to an operator; an empty list is no bound.
pub(crate) fn in_words<T: Setting>(least: &[T], most: &[T]) -> Option<String> {
    let text = |bound: &[T]| bound.first().and_then(T::show).map(|value| bare(&value));
    match (text(least), text(most)) {
        (Some(least), Some(most)) => Some(format!("from {least} to {most}")),
        (Some(least), None) => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        (None, None) => None,
    }
}

/// A value as it stands in a sentence.
pub(crate) fn bare(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A type with a few values, each with a name.
macro_rules! choices {
    ($type:ident: $allowed:literal, $($variant:ident = $text:literal),+) => {
        impl $crate::config::value::Spelled for $type {
            const ALLOWED: &'static str = $allowed;
            fn parse(text: &str) -> Option<Self> {
                match text {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
            fn spell(&self) -> toml::Value {
                match self {
                    $(Self::$variant => $text.into(),)+
                }
            }
        }
    };
}
pub(crate) use choices;
