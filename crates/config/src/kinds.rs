//! KindRange of events by number or by range: `4`, `"20000-29999"`.

use std::ops::RangeInclusive;

use crate::{TextSetting, TomlValue};

/// One event kind, or a range of kinds. Both ends are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindRange(RangeInclusive<u16>);

impl KindRange {
    /// A single kind.
    pub fn one(kind: u16) -> Self {
        Self(kind..=kind)
    }

    /// The kinds.
    pub fn range(&self) -> RangeInclusive<u16> {
        self.0.clone()
    }
}

impl TextSetting for KindRange {
    const ALLOWED: &'static str = "a kind from 0 to 65535, or a range such as 20000-29999";

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(Self(first..=last))
    }

    fn from_number(number: u64) -> Option<Self> {
        u16::try_from(number).ok().map(Self::one)
    }

    fn to_value(&self) -> TomlValue {
        let (first, last) = (*self.0.start(), *self.0.end());
        if first == last { TomlValue::from(i64::from(first)) } else { format!("{first}-{last}").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_both_ends() {
        let range = KindRange::parse("20000-29999").unwrap();
        for (kind, inside) in [(19_999, false), (20_000, true), (29_999, true), (30_000, false)] {
            assert_eq!(range.range().contains(&kind), inside, "{kind}");
        }
        assert_eq!(KindRange::parse("4"), KindRange::from_number(4));
        for text in ["", "-", "1-", "-1", "2-1", "65536", "1-2-3", "+1", "a"] {
            assert_eq!(KindRange::parse(text), None, "{text}");
        }
    }
}
