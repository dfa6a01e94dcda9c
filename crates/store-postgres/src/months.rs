//! Calendar months (UTC) as ranges of milliseconds: the bounds of partitions.

use kukuri_domain::Millis;

const DAY: i64 = 24 * 3_600 * 1_000;

/// Start of the month that contains a moment.
pub(crate) fn begin_of(moment: Millis) -> Millis {
    let (year, month) = year_and_month(moment);
    first_of(year, month)
}

/// Start of the month after the one that contains a moment.
pub(crate) fn end_of(moment: Millis) -> Millis {
    let (year, month) = year_and_month(moment);
    if month == 12 { first_of(year + 1, 1) } else { first_of(year, month + 1) }
}

/// Name of the month that contains a moment: `202311`.
pub(crate) fn name_of(moment: Millis) -> String {
    let (year, month) = year_and_month(moment);
    format!("{year:04}{month:02}")
}

/// Years are counted from March, so that the leap day is the last day of the year.
fn year_and_month(moment: Millis) -> (i64, i64) {
    // The bound is far beyond any clock and still a valid date.
    let days = (moment.0.min(1 << 50) as i64).div_euclid(DAY) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month)
}

fn first_of(year: i64, month: i64) -> Millis {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Millis(((era * 146_097 + day_of_era - 719_468) * DAY).max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moment_maps_to_its_calendar_month() {
        let at = Millis::from_secs;
        for (moment, name, begin, end) in [
            (0, "197001", 0, 2_678_400),
            (951_782_400, "200002", 949_363_200, 951_868_800),
            (951_868_799, "200002", 949_363_200, 951_868_800),
            (951_868_800, "200003", 951_868_800, 954_547_200),
            (1_700_000_000, "202311", 1_698_796_800, 1_701_388_800),
            (1_703_980_800, "202312", 1_701_388_800, 1_704_067_200),
        ] {
            assert_eq!(name_of(at(moment)), name, "{moment}");
            assert_eq!((begin_of(at(moment)), end_of(at(moment))), (at(begin), at(end)), "{moment}");
        }
    }
}
