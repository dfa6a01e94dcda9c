//! The macro [`section!`](crate::section!) and what it makes of a list of keys.

use crate::{ConfigError, TextForm, TomlValue, Values, value::unquoted};

/// A language of the texts for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// The doc comments of the declaration.
    English,
    /// The `ja` text of the declaration.
    Japanese,
}

impl Language {
    /// The text in this language.
    pub(crate) fn of(self, doc: &[&'static str; 2]) -> &'static str {
        doc[self as usize].trim_start()
    }
}

/// One key, for the documentation and for reading text into it.
pub struct KeyInfo {
    /// Section and name: `limits.filters`.
    pub full: &'static str,
    /// The effect of the key, with its unit, by [`Language`].
    pub doc: [&'static str; 2],
    /// The effective value; in [`Schema::of`], the default. `None`: not set.
    pub value: Option<TomlValue>,
    /// For a key that is not set by default.
    pub example: Option<TomlValue>,
    /// The smallest value.
    pub least: Option<TomlValue>,
    /// The largest value.
    pub most: Option<TomlValue>,
    /// How text becomes its value.
    pub form: TextForm,
    /// Whether a reload leaves the old value in effect.
    pub needs_restart: bool,
}

impl KeyInfo {
    /// The name within the section.
    pub fn name(&self) -> &'static str {
        self.full.split_once('.').map_or(self.full, |(_, name)| name)
    }

    /// The bounds in words; `None`: there are none.
    pub fn bounds(&self, language: Language) -> Option<String> {
        Some(match (language, self.least.as_ref().map(unquoted), self.most.as_ref().map(unquoted)) {
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
    /// The text of the section, by [`Language`].
    pub doc: [&'static str; 2],
    /// In the order of the declaration.
    pub keys: Vec<KeyInfo>,
}

/// All sections of a settings type.
pub struct Schema {
    /// In the order of the declaration.
    pub sections: Vec<SectionInfo>,
}

impl Schema {
    /// The schema of a settings type, with the defaults.
    pub fn of<S: Section>() -> Self {
        Self { sections: S::default().describe() }
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
pub trait Section: Default {
    /// This section, then its inner sections.
    fn describe(&self) -> Vec<SectionInfo>;
    /// Reads the values that are set; the other keys have their defaults.
    fn read(values: &Values) -> Result<Self, ConfigError>;
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
            fn describe(&self) -> Vec<$crate::SectionInfo> {
                #[allow(unused_mut, reason = "most sections have no inner ones")]
                let mut all = vec![$crate::SectionInfo {
                    name: ($section as &str).trim_end_matches('.'),
                    doc: [concat!($($about),+), $about_ja],
                    keys: vec![$($crate::KeyInfo {
                        full: concat!($section, stringify!($name)),
                        doc: [concat!($($doc),+), $doc_ja],
                        value: $crate::Setting::to_toml(&self.$name),
                        example: None $(.or(Some($crate::TomlValue::from($example))))?,
                        least: None $(.or(<$type as $crate::Setting>::to_toml(&$least)))?,
                        most: None $(.or(<$type as $crate::Setting>::to_toml(&$most)))?,
                        form: <$type as $crate::Setting>::FORM,
                        needs_restart: false $(|| stringify!($restart) == "restart")?,
                    }),*],
                }];
                $($(all.extend(self.$inner.describe());)*)?
                all
            }

            fn read(values: &$crate::Values) -> Result<Self, $crate::ConfigError> {
                $(
                    let is_in_bounds = |_value: &$type| true $(&& *_value >= $least)? $(&& *_value <= $most)?;
                    let read = values.read::<Self, $type>(concat!($section, stringify!($name)), is_in_bounds)?;
                    let $name = read.unwrap_or_else(|| $default);
                )*
                Ok(Self { $($name,)* $($($inner: <$inner_type as $crate::Section>::read(values)?,)*)? })
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
