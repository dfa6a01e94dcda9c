//! Lengths of time: `10s`, `15m`, `12h`, `30d`.

use std::{fmt, time::Duration};

use crate::{TextSetting, TomlValue};

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A length of time in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Span {
    /// A hundred years: sums of spans are far from an overflow.
    const MAX_SECONDS: u64 = 36_500 * 86_400;

    /// This many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// This many minutes.
    pub const fn minutes(minutes: u64) -> Self {
        Self(minutes * 60)
    }

    /// The span as a `Duration`.
    pub const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

/// Cuts parts of a second off.
impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration.as_secs())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, seconds): &&(char, u64)| self.0 > 0 && self.0.is_multiple_of(seconds);
        let (unit, seconds) = UNITS.iter().find(fits).unwrap_or(&('s', 1));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

impl TextSetting for Span {
    const ALLOWED: &'static str = "a time such as 10s, 15m, 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(*unit))?;
        let digits = text.strip_suffix(*unit)?;
        // `parse` would accept a plus sign.
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        number.checked_mul(*seconds).filter(|&seconds| seconds <= Self::MAX_SECONDS).map(Self)
    }

    fn to_value(&self) -> TomlValue {
        self.to_string().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_in_its_largest_whole_unit_and_read_back() {
        for (text, seconds, shown) in [
            ("10s", 10, "10s"),
            ("90s", 90, "90s"),
            ("60s", 60, "1m"),
            ("15m", 900, "15m"),
            ("12h", 43_200, "12h"),
            ("48h", 172_800, "2d"),
            ("0d", 0, "0s"),
        ] {
            let span = Span::parse(text).unwrap();
            assert_eq!((span.0, span.to_string().as_str()), (seconds, shown), "{text}");
            assert_eq!(Span::parse(shown), Some(span));
        }
    }

    #[test]
    fn text_without_a_known_unit_is_refused() {
        for text in ["", "10", "s", "+1s", "-1s", "1.5h", "1 d", "1w", "36501d", "99999999999999999999d", "forever"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }
}
