//! A point in time: RFC 3339 with its offset from UTC, or Unix seconds.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{TextSetting, TomlValue};

/// From 1970 to 9999, the last year that RFC 3339 can write. In UTC, whichever offset the text has.
impl TextSetting for OffsetDateTime {
    const ALLOWED: &'static str = "a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds";

    fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Self::from_number(text.parse().ok()?);
        }
        // RFC 3339 requires the offset: without one, the text would mean another time on another machine.
        let time = Self::parse(text, &Rfc3339).ok()?;
        Self::from_number(u64::try_from(time.unix_timestamp()).ok()?)
    }

    fn from_number(seconds: u64) -> Option<Self> {
        Self::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()
    }

    fn to_value(&self) -> TomlValue {
        self.format(&Rfc3339).unwrap_or_default().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format_text;

    fn parse(text: &str) -> Option<OffsetDateTime> {
        TextSetting::parse(text)
    }

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
            let time = parse(text).unwrap();
            assert_eq!((time.unix_timestamp(), format_text(&time).as_str()), (seconds, shown), "{text}");
            assert_eq!(parse(shown), Some(time));
        }
        assert_eq!(OffsetDateTime::from_number(253_402_300_800), None);
    }

    #[test]
    fn a_time_without_its_offset_or_before_1970_is_refused() {
        for text in
            ["", "2026-03-01", "12:00:00", "2026-03-01T00:00:00", "2026-02-30T00:00:00Z", "1969-12-31T23:59:59Z"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
