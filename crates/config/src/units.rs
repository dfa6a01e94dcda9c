//! Whole numbers with a unit: lengths of time (`10s`, `15m`, `12h`, `30d`), numbers of bytes (`131072`, `512KiB`,
//! `2GiB`), percentages.

use std::{fmt, time::Duration};

use crate::{TextSetting, TomlValue};

const TIMES: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];
/// A hundred years: sums of such times are far from an overflow.
const MAX_SECONDS: u64 = 36_500 * 86_400;

fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    // `parse` would accept a plus sign.
    let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    number.checked_mul(*factor)
}

/// In the largest unit of which it is a whole number.
fn format_with_unit(number: u64, units: &[(&str, u64)]) -> String {
    let is_whole = |(_, factor): &&(&str, u64)| *factor == 1 || (number > 0 && number.is_multiple_of(*factor));
    units.iter().find(is_whole).map(|(unit, factor)| format!("{}{unit}", number / factor)).unwrap_or_default()
}

/// In whole seconds.
impl TextSetting for Duration {
    const ALLOWED: &'static str = "a time such as 10s, 15m, 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        parse_with_unit(text, &TIMES).filter(|&seconds| seconds <= MAX_SECONDS).map(Self::from_secs)
    }

    fn to_value(&self) -> TomlValue {
        format_with_unit(self.as_secs(), &TIMES).into()
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// The number of bytes, for a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<usize> for ByteSize {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_with_unit(self.0, &SIZES))
    }
}

impl TextSetting for ByteSize {
    const ALLOWED: &'static str = "a number of bytes, or a size such as 512KiB, 64MiB or 2GiB";

    fn parse(text: &str) -> Option<Self> {
        parse_with_unit(text, &SIZES).and_then(Self::from_number)
    }

    fn from_number(number: u64) -> Option<Self> {
        // TOML has no larger integer.
        i64::try_from(number).is_ok().then_some(Self(number))
    }

    fn to_value(&self) -> TomlValue {
        let text = self.to_string();
        text.parse().map_or(text.into(), TomlValue::Integer)
    }
}

/// From 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_text;

    #[test]
    fn a_time_is_written_in_its_largest_whole_unit_and_read_back() {
        for (text, seconds, shown) in [
            ("10s", 10, "10s"),
            ("90s", 90, "90s"),
            ("60s", 60, "1m"),
            ("15m", 900, "15m"),
            ("12h", 43_200, "12h"),
            ("48h", 172_800, "2d"),
            ("0d", 0, "0s"),
        ] {
            let time = Duration::parse(text).unwrap();
            assert_eq!((time.as_secs(), format_text(&time).as_str()), (seconds, shown), "{text}");
            assert_eq!(Duration::parse(shown), Some(time));
        }
    }

    #[test]
    fn text_without_a_known_unit_of_time_is_refused() {
        for text in ["", "10", "s", "+1s", "-1s", "1.5h", "1 d", "1w", "36501d", "99999999999999999999d", "forever"] {
            assert_eq!(Duration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_is_written_in_its_largest_whole_unit_and_read_back() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("1000", 1_000, "1000"),
            ("1024", 1_024, "1KiB"),
            ("1536KiB", 1_572_864, "1536KiB"),
            ("2048MiB", 2 << 30, "2GiB"),
            ("3TiB", 3 << 40, "3TiB"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown), "{text}");
            assert_eq!(ByteSize::parse(shown), Some(size));
        }
        for text in ["", "KiB", "1KB", "1 KiB", "+1", "-1", "1.5GiB", "9999999TiB", "18446744073709551615"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }
}
