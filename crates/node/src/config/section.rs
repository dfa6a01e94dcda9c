//! A section of keys, declared once: its struct, its defaults and its documentation all follow from one list.

use std::sync::LazyLock;

use super::{settings::Settings, value::Form};

/// One key, for the documentation and for whoever reads text into it.
pub(crate) struct Key {
    /// As it is written with its section: `limits.filters`.
    pub(crate) full: &'static str,
    /// What it does and its unit.
    pub(crate) doc: String,
    /// `None`: not set.
    pub(crate) default: Option<toml::Value>,
    /// For a key that is not set by default.
    pub(crate) example: Option<toml::Value>,
    /// The smallest and the largest value allowed, in words.
    pub(crate) bounds: Option<String>,
    /// How a text becomes its value.
    pub(crate) form: Form,
    /// Whether a reload passes over it.
    pub(crate) needs_restart: bool,
}

impl Key {
    /// The section it is in; empty at the top.
    pub(crate) fn section(&self) -> &'static str {
        self.full.split_once('.').map_or("", |(section, _)| section)
    }

    /// Its name within the section.
    pub(crate) fn name(&self) -> &'static str {
        self.full.split_once('.').map_or(self.full, |(_, name)| name)
    }

    /// The variable that sets it.
    pub(crate) fn variable(&self) -> String {
        variable(self.full)
    }
}

/// The variable of a key.
pub(crate) fn variable(key: &str) -> String {
    format!("KUKURI_{}", key.replace('.', "_").to_uppercase())
}

/// The flag of a key that has one.
pub(crate) fn flag(key: &str) -> String {
    format!("--{}", key.replace(['.', '_'], "-"))
}

/// A section, for the documentation.
pub(crate) struct About {
    /// Empty for the keys at the top.
    pub(crate) name: &'static str,
    pub(crate) doc: String,
    pub(crate) keys: Vec<Key>,
}

/// A value of a key as it is written; `None`: not set.
pub(crate) type Shown = (&'static str, Option<toml::Value>);

/// What [`section!`] makes.
pub(crate) trait Section {
    /// This section, and those in it.
    fn about() -> Vec<About>;
    /// The value of each key.
    fn values(&self) -> Vec<Shown>;
    /// The first key that is out of its bounds, and what is allowed.
    fn out_of_bounds(&self) -> Option<(&'static str, String)>;
}

/// Every section, in the order of the documentation.
pub(crate) fn sections() -> &'static [About] {
    static SECTIONS: LazyLock<Vec<About>> = LazyLock::new(Settings::about);
    &SECTIONS
}

/// Every key there is.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    sections().iter().flat_map(|section| &section.keys)
}

/// Doc comments as one line of text.
pub(crate) fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
}

/// Declares a section. Each key has a text for operators, a type and a default; then, as it needs them, `at least` and
/// `at most`, an example (`such as`) where there is no default, and `needs restart`.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $struct:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $name:ident: $type:ty = $default:expr
                    $(, at least $least:expr)? $(, at most $most:expr)?
                    $(, such as $example:expr)? $(, needs $restart:ident)?;
            )*
        }
        $(sections { $($inner:ident: $inner_type:ident,)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $struct {
            $(
                $(#[doc = $doc])+
                #[serde(deserialize_with = "crate::config::value::Setting::read")]
                pub(crate) $name: $type,
            )*
            $($(
                #[doc = concat!("`[", stringify!($inner), "]`")]
                pub(crate) $inner: $inner_type,
            )*)?
        }

        impl Default for $struct {
            fn default() -> Self {
                Self { $($name: $default,)* $($($inner: $inner_type::default(),)*)? }
            }
        }

        impl $crate::config::section::Section for $struct {
            fn about() -> Vec<$crate::config::section::About> {
                use $crate::config::{section::{About, Key, joined}, value::{Setting, in_words}};
                #[allow(unused_mut, reason = "most sections hold no others")]
                let mut all = vec![About {
                    name: ($section as &str).trim_end_matches('.'),
                    doc: joined(&[$($about),+]),
                    keys: vec![$({
                        let example: &[toml::Value] = &[$(toml::Value::from($example))?];
                        let restart: &[&str] = &[$(stringify!($restart))?];
                        Key {
                            full: concat!($section, stringify!($name)),
                            doc: joined(&[$($doc),+]),
                            default: <$type as Setting>::show(&$default),
                            example: example.first().cloned(),
                            bounds: in_words::<$type>(&[$($least)?], &[$($most)?]),
                            form: <$type as Setting>::FORM,
                            needs_restart: !restart.is_empty(),
                        }
                    }),*],
                }];
                $($(all.extend(<$inner_type as $crate::config::section::Section>::about());)*)?
                all
            }

            fn values(&self) -> Vec<$crate::config::section::Shown> {
                use $crate::config::value::Setting;
                #[allow(unused_mut, reason = "most sections hold no others")]
                let mut all = vec![$((concat!($section, stringify!($name)), self.$name.show())),*];
                $($(all.extend(self.$inner.values());)*)?
                all
            }

            fn out_of_bounds(&self) -> Option<(&'static str, String)> {
                $(
                    if false $(|| self.$name < $least)? $(|| self.$name > $most)? {
                        let bounds = $crate::config::value::in_words::<$type>(&[$($least)?], &[$($most)?]);
                        return Some((concat!($section, stringify!($name)), bounds.unwrap_or_default()));
                    }
                )*
                $($(if let Some(found) = self.$inner.out_of_bounds() { return Some(found); })*)?
                None
            }
        }
    };
}
pub(crate) use section;
