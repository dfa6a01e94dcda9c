//! A moment: RFC 3339, with its offset from UTC, or seconds since 1970.

use std::fmt;

use toml::value::{Datetime, Offset};

use super::value::Spelled;
use crate::calendar::{date_of, days_since_1970, time_of};

/// Seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The last second of the year 9999, which RFC 3339 can still write.
    const LAST: u64 = 253_402_300_799;

    /// Seconds since 1970.
    pub(crate) const fn seconds(self) -> u64 {
        self.0
    }
}

impl Spelled for Moment {
    const ALLOWED: &'static str = "a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds";

    fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_number(text.parse().ok()?);
        }
        // Text without an offset would be another moment on another machine.
        let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = text.parse().ok()? else {
            return None;
        };
        let minutes_ahead = match offset {
            Offset::Z => 0,
            Offset::Custom { minutes } => i64::from(minutes),
        };
        let days = days_since_1970(i64::from(date.year), i64::from(date.month), i64::from(date.day));
        let minutes = i64::from(time.hour) * 60 + i64::from(time.minute) - minutes_ahead;
        let seconds = days * 86_400 + minutes * 60 + i64::from(time.second.unwrap_or(0));
        Self::from_number(u64::try_from(seconds).ok()?)
    }

    fn from_number(seconds: u64) -> Option<Self> {
        (seconds <= Self::LAST).then_some(Self(seconds))
    }

    fn spell(&self) -> toml::Value {
        self.to_string().into()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date_of(self.0 / 86_400);
        let (hour, minute, second) = time_of(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_same_however_it_is_written() {
        for (text, seconds, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2000-02-29T23:59:59Z", 951_868_799, "2000-02-29T23:59:59Z"),
            ("2026-03-01T09:00:00+09:00", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("2026-02-28 19:00:00-05:00", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("1772323200", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("2100-03-01T00:00:00Z", 4_107_542_400, "2100-03-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", Moment::LAST, "9999-12-31T23:59:59Z"),
        ] {
            let moment = Moment::parse(text).unwrap();
            assert_eq!((moment.seconds(), moment.to_string().as_str()), (seconds, shown), "{text}");
            assert_eq!(Moment::parse(shown), Some(moment));
        }
    }

    #[test]
    fn a_time_without_its_offset_or_before_1970_is_none() {
        for text in
            ["", "2026-03-01", "12:00:00", "2026-03-01T00:00:00", "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
