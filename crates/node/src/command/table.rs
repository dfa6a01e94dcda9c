//! Formats tables, sizes and times for a terminal.

use crate::config::DateTime;

/// Formats a table: each column is as wide as its widest cell; numbers are aligned to the right.
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

/// Formats a number of bytes with a binary unit (KiB, MiB, …).
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

/// Unix seconds as date and time in UTC.
pub(super) fn moment(seconds: u64) -> String {
    match DateTime::from_seconds(seconds) {
        Some(time) => format!("{} UTC", time.to_string().trim_end_matches('Z').replace('T', " ")),
        None => format!("second {seconds} since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["longer".into(), "1000".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name    n\na          1\nlonger  1000\n");
    }

    #[test]
    fn times_and_sizes_are_written_for_people() {
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
