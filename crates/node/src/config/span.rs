//! Lengths of time: `10s`, `15m`, `12h`, `30d`, and `forever` where that can be meant.

use std::{fmt, time::Duration};

use kukuri_domain::retention::Keep;

use super::value::Spelled;

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// A length of time in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(u64);

impl Span {
    /// A hundred years. Far from where a sum of times would overflow.
    const LONGEST: u64 = 36_500 * 86_400;

    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    pub(crate) const fn minutes(minutes: u64) -> Self {
        Self(minutes * 60)
    }

    pub(crate) const fn days(days: u64) -> Self {
        Self(days * 86_400)
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, seconds): &&(char, u64)| self.0 > 0 && self.0.is_multiple_of(seconds);
        let (unit, seconds) = UNITS.iter().find(fits).unwrap_or(&('s', 1));
        write!(f, "{}{unit}", self.0 / seconds)
    }
}

impl Spelled for Span {
    const ALLOWED: &'static str = "a time such as 10s, 15m, 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        let (unit, seconds) = UNITS.iter().find(|(unit, _)| text.ends_with(*unit))?;
        let digits = text.strip_suffix(*unit)?;
        // `parse` would take a plus sign.
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        number.checked_mul(*seconds).filter(|&seconds| seconds <= Self::LONGEST).map(Self)
    }

    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

/// How long something is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    For(Span),
    Forever,
}

impl Keeping {
    pub(crate) const fn days(days: u64) -> Self {
        Self::For(Span::days(days))
    }
}

impl From<Keeping> for Keep {
    fn from(keeping: Keeping) -> Self {
        match keeping {
            Keeping::For(span) => Self::For(span.duration()),
            Keeping::Forever => Self::Forever,
        }
    }
}

impl From<Keep> for Keeping {
    fn from(keep: Keep) -> Self {
        match keep {
            Keep::For(duration) => Self::For(Span::seconds(duration.as_secs())),
            Keep::Forever => Self::Forever,
        }
    }
}

impl Spelled for Keeping {
    const ALLOWED: &'static str = "forever, or a time such as 12h or 30d, at most 36500d";

    fn parse(text: &str) -> Option<Self> {
        if text == "forever" { Some(Self::Forever) } else { Span::parse(text).map(Self::For) }
    }

    fn spell(&self) -> toml::Value {
        match self {
            Self::For(span) => span.spell(),
            Self::Forever => "forever".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_its_largest_whole_unit_and_read_back() {
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
    fn what_is_no_span_is_not_guessed_at() {
        for text in ["", "10", "s", "+1s", "-1s", "1.5h", "1 d", "1w", "36501d", "99999999999999999999d", "forever"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
        assert_eq!(Keeping::parse("forever"), Some(Keeping::Forever));
    }
}
