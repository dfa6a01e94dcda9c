//! Event kinds by number or by range: `4`, `"20000-29999"`. Both ends are in a range.

use std::ops::RangeInclusive;

use crate::{TextSetting, TomlValue};

impl TextSetting for RangeInclusive<u16> {
    const ALLOWED: &'static str = "a kind from 0 to 65535, or a range such as 20000-29999";

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(first..=last)
    }

    fn from_number(number: u64) -> Option<Self> {
        u16::try_from(number).ok().map(|kind| kind..=kind)
    }

    fn to_value(&self) -> TomlValue {
        let (first, last) = (*self.start(), *self.end());
        if first == last { TomlValue::from(i64::from(first)) } else { format!("{first}-{last}").into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_both_ends() {
        let range = RangeInclusive::parse("20000-29999").unwrap();
        for (kind, inside) in [(19_999, false), (20_000, true), (29_999, true), (30_000, false)] {
            assert_eq!(range.contains(&kind), inside, "{kind}");
        }
        assert_eq!(RangeInclusive::parse("4"), RangeInclusive::from_number(4));
        for text in ["", "-", "1-", "-1", "2-1", "65536", "1-2-3", "+1", "a"] {
            assert_eq!(RangeInclusive::parse(text), None, "{text}");
        }
    }
}
