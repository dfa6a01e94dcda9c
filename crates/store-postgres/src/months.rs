//! Calendar months (UTC) as ranges of milliseconds: the bounds of partitions.

use kukuri_domain::Millis;
use time::{Date, OffsetDateTime};

const DAY: u64 = 24 * 3_600 * 1_000;
/// The end of the year 9999, the last that has dates.
const MAX_MOMENT: u64 = 253_402_300_799_999;

/// Start of the month that contains a moment.
pub(crate) fn begin_of(moment: Millis) -> Millis {
    let days_before = u64::from(date_of(moment).day()) - 1;
    Millis((moment.0.min(MAX_MOMENT) / DAY - days_before) * DAY)
}

/// Start of the month after the one that contains a moment.
pub(crate) fn end_of(moment: Millis) -> Millis {
    let date = date_of(moment);
    Millis(begin_of(moment).0 + u64::from(date.month().length(date.year())) * DAY)
}

/// Name of the month that contains a moment: `202311`.
pub(crate) fn name_of(moment: Millis) -> String {
    let date = date_of(moment);
    format!("{:04}{:02}", date.year(), u8::from(date.month()))
}

fn date_of(moment: Millis) -> Date {
    let moment = OffsetDateTime::from_unix_timestamp((moment.0.min(MAX_MOMENT) / 1_000) as i64);
    moment.unwrap_or(OffsetDateTime::UNIX_EPOCH).date()
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
