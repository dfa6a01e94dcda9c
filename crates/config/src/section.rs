//! The macro [`section!`](crate::section!) and what it makes of a list of keys.

use crate::{
    Setting, TextForm, TomlValue,
    error::ConfigError,
    layers::{Values, variable_of},
    value::unquoted,
};

/// A language of the texts for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The doc comments of the declaration.
    English,
    /// The `ja` text of the declaration.
    Japanese,
}

/// A text for operators in English and Japanese.
pub struct Doc(pub [&'static str; 2]);

impl Doc {
    /// The text in one line.
    pub fn text(&self, language: Language) -> &str {
        self.0[language as usize].trim_start()
    }
}

/// One key, for the documentation and for reading text into it.
pub struct KeyInfo {
    /// Section and name: `limits.filters`.
    pub full: &'static str,
    /// The effect of the key, with its unit.
    pub doc: Doc,
    /// `None`: not set.
    pub default: Option<TomlValue>,
    /// For a key that is not set by default.
    pub example: Option<TomlValue>,
    /// The smallest and the largest value.
    pub bounds: Bounds,
    /// How text becomes its value.
    pub form: TextForm,
    /// Whether a reload leaves the old value in effect.
    pub needs_restart: bool,
}

impl KeyInfo {
    /// Empty for a key at the top of the file.
    pub fn section(&self) -> &'static str {
        self.full.split_once('.').map_or("", |(section, _)| section)
    }

    /// The name within the section.
    pub fn name(&self) -> &'static str {
        self.full.split_once('.').map_or(self.full, |(_, name)| name)
    }

    /// The environment variable that sets the key.
    pub fn variable(&self) -> String {
        variable_of(self.full)
    }
}

/// The smallest and the largest value of a key, as text. Both are allowed.
pub struct Bounds {
    least: Option<String>,
    most: Option<String>,
}

impl Bounds {
    /// An empty list is no bound.
    pub fn new<T: Setting>(least: &[T], most: &[T]) -> Self {
        let text = |bound: &[T]| bound.first().and_then(T::to_toml).map(|value| unquoted(&value));
        Self { least: text(least), most: text(most) }
    }

    /// `None`: there are no bounds.
    pub fn in_words(&self, language: Language) -> Option<String> {
        Some(match (language, &self.least, &self.most) {
            (_, None, None) => return None,
            (Language::English, Some(least), Some(most)) => format!("from {least} to {most}"),
            (Language::English, Some(least), None) => format!("at least {least}"),
            (Language::English, None, Some(most)) => format!("at most {most}"),
            (Language::Japanese, Some(least), Some(most)) => format!("{least}〜{most}"),
            (Language::Japanese, Some(least), None) => format!("{least} 以上"),
            (Language::Japanese, None, Some(most)) => format!("{most} 以下"),
        })
    }
}

/// One section, for the documentation.
pub struct SectionInfo {
    /// Empty for the keys at the top of the file.
    pub name: &'static str,
    /// The text of the section.
    pub doc: Doc,
    /// In the order of the declaration.
    pub keys: Vec<KeyInfo>,
}

/// All sections of a settings type.
pub struct Schema {
    /// In the order of the declaration.
    pub sections: Vec<SectionInfo>,
}

impl Schema {
    /// The schema of a settings type.
    pub fn of<S: Section>() -> Self {
        Self { sections: S::describe() }
    }

    /// All keys, in the order of the declaration.
    pub fn keys(&self) -> impl Iterator<Item = &KeyInfo> {
        self.sections.iter().flat_map(|section| &section.keys)
    }

    /// The key with this full name.
    pub fn key(&self, full: &str) -> Option<&KeyInfo> {
        self.keys().find(|key| key.full == full)
    }
}

/// A struct that [`section!`](crate::section!) made. The one with the inner sections is the settings type.
pub trait Section: Sized {
    /// This section, then its inner sections.
    fn describe() -> Vec<SectionInfo>;
    /// Reads the values that are set; the other keys have their defaults.
    fn read(values: &Values) -> Result<Self, ConfigError>;
    /// All keys with their values; `None`: not set.
    fn values(&self) -> Vec<(&'static str, Option<TomlValue>)>;
    /// The keys whose values differ, in the order of the declaration.
    fn changed_keys(&self, other: &Self) -> Vec<&'static str>;
}

/// Declares a section. Each key has a text for operators in English (doc comment) and Japanese (`ja`), a type and a
/// default; then, where needed, bounds (`at least`, `at most`), an example (`such as`) if there is no default, and
/// `needs restart`.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        ja $about_ja:literal
        $struct:ident in $section:literal {
            $(
                $(#[doc = $doc:literal])+
                ja $doc_ja:literal
                $name:ident: $type:ty = $default:expr
                    $(, at least $least:expr)? $(, at most $most:expr)?
                    $(, such as $example:expr)? $(, needs $restart:ident)?;
            )*
        }
        $(sections { $($inner:ident: $inner_type:ident,)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $struct {
            $(
                $(#[doc = $doc])+
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

        impl $crate::Section for $struct {
            fn describe() -> Vec<$crate::SectionInfo> {
                #[allow(unused_mut, reason = "most sections have no inner ones")]
                let mut all = vec![$crate::SectionInfo {
                    name: ($section as &str).trim_end_matches('.'),
                    doc: $crate::Doc([concat!($($about),+), $about_ja]),
                    keys: vec![$({
                        let example: &[$crate::TomlValue] = &[$($crate::TomlValue::from($example))?];
                        let restart: &[&str] = &[$(stringify!($restart))?];
                        $crate::KeyInfo {
                            full: concat!($section, stringify!($name)),
                            doc: $crate::Doc([concat!($($doc),+), $doc_ja]),
                            default: <$type as $crate::Setting>::to_toml(&$default),
                            example: example.first().cloned(),
                            bounds: $crate::Bounds::new::<$type>(&[$($least)?], &[$($most)?]),
                            form: <$type as $crate::Setting>::FORM,
                            needs_restart: !restart.is_empty(),
                        }
                    }),*],
                }];
                $($(all.extend(<$inner_type as $crate::Section>::describe());)*)?
                all
            }

            fn read(values: &$crate::Values) -> Result<Self, $crate::ConfigError> {
                $(
                    let key = concat!($section, stringify!($name));
                    let $name = values.read::<$type>(key)?.unwrap_or_else(|| $default);
                    if false $(|| $name < $least)? $(|| $name > $most)? {
                        let bounds = $crate::Bounds::new::<$type>(&[$($least)?], &[$($most)?]);
                        return Err(values.out_of_bounds(key, &bounds));
                    }
                )*
                Ok(Self { $($name,)* $($($inner: <$inner_type as $crate::Section>::read(values)?,)*)? })
            }

            fn values(&self) -> Vec<(&'static str, Option<$crate::TomlValue>)> {
                #[allow(unused_mut, reason = "most sections have no inner ones")]
                let mut all = vec![$((concat!($section, stringify!($name)), $crate::Setting::to_toml(&self.$name))),*];
                $($(all.extend(self.$inner.values());)*)?
                all
            }

            fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
                let mut all = Vec::new();
                $(if self.$name != other.$name { all.push(concat!($section, stringify!($name))); })*
                $($(all.extend(self.$inner.changed_keys(&other.$inner));)*)?
                all
            }
        }
    };
}
