//! Days and dates, by the Gregorian calendar. Years begin in March here, so that the day that comes and goes is a year's
//! last.

/// The days from 1970-01-01 to this date.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Year, month and day that are so many days after 1970-01-01.
pub(crate) fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let year = era * 400 + year + u64::from(month >= 10);
    (year, if month < 10 { month + 3 } else { month - 9 }, day_of_year - (153 * month + 2) / 5 + 1)
}

/// Hour, minute and second of a day.
pub(crate) fn time_of(seconds: u64) -> (u64, u64, u64) {
    (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_until_the_year_10000_is_found_again_by_its_date() {
        for day in 0..=2_932_896 {
            let (year, month, date) = date_of(day);
            let back = days_since_1970(year.cast_signed(), month.cast_signed(), date.cast_signed());
            assert_eq!(back, day.cast_signed());
        }
        assert_eq!(date_of(2_932_896), (9_999, 12, 31));
    }
}
