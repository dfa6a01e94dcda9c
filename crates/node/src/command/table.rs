//! Text in columns, for people.

/// Rows under their headings, each column as wide as its widest cell. Numbers go to the right.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let headings: Vec<String> = headings.iter().map(ToString::to_string).collect();
    for row in std::iter::once(&headings).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| if is_number(cell) { format!("{cell:>width$}") } else { format!("{cell:<width$}") })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn is_number(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_ascii_digit())
        && cell.chars().all(|character| character.is_ascii_digit() || " .,%KMGTiB".contains(character))
}

/// Bytes, for people.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut units = UNITS.iter();
    let mut unit = units.next().unwrap_or(&"B");
    while value >= 1_024.0
        && let Some(next) = units.next()
    {
        value /= 1_024.0;
        unit = next;
    }
    if number < 1_024 { format!("{number} B") } else { format!("{value:.1} {unit}") }
}

/// A moment, in UTC, to the second.
pub(super) fn moment(seconds: u64) -> String {
    let days = seconds / 86_400;
    let (hours, minutes, rest) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {hours:02}:{minutes:02}:{rest:02} UTC")
}

/// The date that is so many days after 1970-01-01, by the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    const ERA: u64 = 146_097;
    // Years begin in March here, so that the day that comes and goes is a year's last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / ERA, shifted % ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["longer".into(), "1000".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name    n\na          1\nlonger  1000\n");
    }

    #[test]
    fn moments_and_sizes_read_well() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_600, "2025-01-01 00:00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(moment(seconds), text);
        }
        assert_eq!((bytes(1_023), bytes(1_048_576)), ("1023 B".to_owned(), "1.0 MiB".to_owned()));
    }
}
