//! A point in time: RFC 3339 with its offset from UTC, or Unix seconds.

use std::fmt;

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{TextSetting, TomlValue};

/// Unix seconds, at most those of the year 9999, the last that RFC 3339 can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateTime(OffsetDateTime);

impl DateTime {
    /// `None`: after the year 9999.
    pub fn from_seconds(seconds: u64) -> Option<Self> {
        OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok().map(Self)
    }

    /// Unix seconds.
    pub fn seconds(self) -> u64 {
        u64::try_from(self.0.unix_timestamp()).unwrap_or(0)
    }
}

impl TextSetting for DateTime {
    const ALLOWED: &'static str = "a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds";

    fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_number(text.parse().ok()?);
        }
        // RFC 3339 requires the offset: without one, the text would mean another time on another machine.
        let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        Self::from_number(u64::try_from(time.unix_timestamp()).ok()?)
    }

    fn from_number(seconds: u64) -> Option<Self> {
        Self::from_seconds(seconds)
    }

    fn to_value(&self) -> TomlValue {
        self.to_string().into()
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_time_gives_the_same_value() {
        for (text, seconds, shown) in [
            ("1970-01-01T00:00:00Z", 0, "1970-01-01T00:00:00Z"),
            ("2000-02-29T23:59:59Z", 951_868_799, "2000-02-29T23:59:59Z"),
            ("2026-03-01T09:00:00+09:00", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("2026-02-28 19:00:00-05:00", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("1772323200", 1_772_323_200, "2026-03-01T00:00:00Z"),
            ("2100-03-01T00:00:00Z", 4_107_542_400, "2100-03-01T00:00:00Z"),
            ("9999-12-31T23:59:59Z", 253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            let time = DateTime::parse(text).unwrap();
            assert_eq!((time.seconds(), time.to_string().as_str()), (seconds, shown), "{text}");
            assert_eq!(DateTime::parse(shown), Some(time));
        }
        assert_eq!(DateTime::from_seconds(253_402_300_800), None);
    }

    #[test]
    fn a_time_without_its_offset_or_before_1970_is_refused() {
        for text in
            ["", "2026-03-01", "12:00:00", "2026-03-01T00:00:00", "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(DateTime::parse(text), None, "{text}");
        }
    }
}
