//! Formats tables, sizes and times for a terminal.

use kukuri_config::{OffsetDateTime, TextSetting, format_text};
use kukuri_domain::Timestamp;

/// Formats a table: each column is as wide as its widest cell; numbers are aligned to the right.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<_> = std::iter::once(headings.map(str::to_owned)).chain(rows).collect();
    let widths: [_; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| match is_number(cell) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn count_table(heading: &str, counts: &[(&str, u64)]) -> String {
    table([heading, "count"], counts.iter().map(|(label, count)| [(*label).to_owned(), count.to_string()]))
}

/// Formats labels and their values, one in a line.
pub(super) fn fields(fields: &[(&str, String)]) -> String {
    let width = fields.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
    fields.iter().map(|(label, value)| format!("{label:<width$}  {value}\n")).collect()
}

/// A text of a person in one line, without characters that could control the terminal or hide parts of the text.
pub(super) fn one_line(text: &str) -> String {
    let is_format = |character: char| matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let shown = |character: char| if character.is_control() { ' ' } else { character };
    let text: String = text.chars().filter(|character| !is_format(*character)).map(shown).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_number(cell: &str) -> bool {
    cell.starts_with(|first: char| first.is_ascii_digit())
        && cell.chars().all(|character| character.is_ascii_digit() || " .,%KMGTiB".contains(character))
}

/// Formats a number of bytes with a binary unit (KiB, MiB, …).
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, size)| number >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", number as f64 / *size as f64),
        None => format!("{number} B"),
    }
}

/// Date and time in UTC.
pub(super) fn moment(Timestamp(seconds): Timestamp) -> String {
    match OffsetDateTime::from_number(seconds) {
        Some(time) => format!("{} UTC", format_text(&time).trim_end_matches('Z').replace('T', " ")),
        None => format!("second {seconds} since 1970"),
    }
}

/// A day that is counted since 1970, UTC.
pub(super) fn day(number: u64) -> String {
    let time = moment(Timestamp(number.saturating_mul(24 * 3_600)));
    time.split_once(" 00:00:00").map_or(time.clone(), |(day, _)| day.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let rows = [["a".into(), "1".into()], ["longer".into(), "1000".into()]];
        assert_eq!(table(["name", "n"], rows), "name    n\na          1\nlonger  1000\n");
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
            assert_eq!(moment(Timestamp(seconds)), text);
        }
        assert_eq!((day(0), day(19_723)), ("1970-01-01".to_owned(), "2024-01-01".to_owned()));
        assert_eq!((bytes(1_023), bytes(1_048_576)), ("1023 B".to_owned(), "1.0 MiB".to_owned()));
    }
    #[test]
    fn text_of_a_person_can_not_control_the_terminal() {
        assert_eq!(one_line(" お茶 の\r\n 話\t"), "お茶 の 話");
        assert_eq!(one_line("a\u{1b}[2J\u{9b}31mb\u{202e}c\u{200b}d"), "a [2J 31mbcd");
    }
}
