//! Percentages.

use crate::{TextSetting, TomlValue};

/// From 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(u8);

impl Percent {
    /// This many percent.
    pub const fn new(percent: u8) -> Self {
        Self(percent)
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TextSetting for Percent {
    const ALLOWED: &'static str = "a whole number of percent from 0 to 100";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Self::from_number)
    }

    fn from_number(number: u64) -> Option<Self> {
        u8::try_from(number).ok().filter(|&percent| percent <= 100).map(Self)
    }

    fn to_value(&self) -> TomlValue {
        i64::from(self.0).into()
    }
}
