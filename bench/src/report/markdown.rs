//! The page: machine and headlines of all relays beside each other, then a section for each part.

use std::fmt::Write as _;

use super::{Figure, Measured, Report, compared, targets::HEADLINES};
use crate::{relay::OURS, timing::millis};

/// Parts, their titles and how they are measured.
const SECTIONS: [(&str, &str, &str); 10] = [
    (
        "ingest",
        "Ingest",
        "Signed events into an empty relay, \"connections x events in flight\"; latency is from sending \
         to OK. Durability is observed: one event on the way, system calls traced, and a sync must begin and end between \
         an event and its OK. \
         One at a time, client and relay both wait; if a machine wakes who waits only at the next tick of its clock, a p50 \
         just below 4 ms tells of that and not of the relay.",
    ),
    (
        "req",
        "Requests",
        "Stored events out: eight connections with one request each on the way, about fifty events an answer. Every \
         question was first asked once and the answer compared with one computed from the corpus, event by event. \
         \"Ties\" are answers that are right but for the order within a second.",
    ),
    (
        "live",
        "Live events",
        "One publisher at a steady rate, many subscribers of the topic; each must receive every event once. The cost of an event without subscribers is subtracted.",
    ),
    (
        "mixed",
        "Mixed load",
        "Publishers and readers at steady rates, and live subscribers, on the loaded relay; then the same beside a client that asks for much and reads nothing.",
    ),
    (
        "idle",
        "Idle connections",
        "Connections that have subscribed and hear nothing: resident memory of each, and the CPU time of all.",
    ),
    (
        "restart",
        "Restart",
        "Killed with SIGKILL after the load and started on the same data: the time until a request is answered, and acknowledged events that are missing.",
    ),
    ("disk", "Disk", "Blocks allocated in the relay's directory after the load."),
    (
        "growth",
        "Growth",
        "One relay, filled step by step: the cost of the last events before each size, and of the mix of requests at it.",
    ),
    ("store", "The store by itself", "One writer, durable; queries warm, one at a time."),
    ("search", "Search", "An index by itself, filled and asked; and the time until a search finds an accepted event."),
];

pub(super) fn page(report: &Report) -> String {
    let mut page = String::new();
    first_page(&mut page, report);
    page += &compared::section(report);
    for (part, title, how) in SECTIONS {
        let figures: Vec<&Figure> = report.figures.iter().filter(|figure| figure.part == part).collect();
        let failures: Vec<_> = report.failures.iter().filter(|failure| failure.part == part).collect();
        if figures.is_empty() && failures.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {title}\n\n{how}\n");
        for failure in failures {
            let _ = write!(page, "\n**{}** failed: {}\n", failure.of, escaped(&failure.reason));
        }
        tables(&mut page, &figures);
    }
    let _ = write!(
        page,
        "\n## To repeat it\n\n```sh\n{}\n```\n\nThe same seed gives the same corpus: compare the fingerprint. Figures of one \
         run belong together; machines differ, ratios to the yardsticks less so. All figures are in report.json too.\n",
        report.command
    );
    page
}

fn first_page(page: &mut String, report: &Report) {
    let (machine, yardsticks, corpus) = (&report.machine, &report.yardsticks, &report.corpus);
    let _ = write!(
        page,
        "# Relays, measured side by side\n\n\
         - **Machine**: {} cores of {}, {:.0} GB, Linux {}; clients and relays share it\n\
         - **Yardsticks**: one core verifies {} events a second ({:.0} µs each); fdatasync p50 {:.2} ms\n\
         - **Corpus**: seed {}, {} events, fingerprint `{}`\n",
        machine.cores,
        machine.cpu,
        machine.memory_gb,
        machine.kernel,
        number(yardsticks.verifications),
        1e6 / yardsticks.verifications,
        millis(yardsticks.sync),
        corpus.seed,
        number(corpus.count as f64),
        corpus.fingerprint,
    );
    for (name, about) in &report.relays {
        let _ = writeln!(page, "- **{name}**: {}", escaped(about));
    }
    for fault in report.faults() {
        let _ = write!(page, "\n**Wrong**: {}\n", escaped(fault));
    }
    if report.relays.is_empty() {
        return;
    }
    let names: String = report.relays.iter().map(|(name, _)| format!(" {name} |")).collect();
    let rule = "---:|".repeat(report.relays.len());
    let _ = write!(page, "\n| | target |{names} met |\n|---|---:|{rule}---|\n");
    for headline in &HEADLINES {
        let cells: Vec<String> = report.relays.iter().map(|(name, _)| headline.cell(report, name)).collect();
        if cells.iter().all(|cell| cell == "–") {
            continue;
        }
        let met = headline.is_met(report).map_or("", |is_met| if is_met { "yes" } else { "**no**" });
        let cells: String = cells.iter().map(|cell| format!(" {} |", escaped(cell))).collect();
        let _ = writeln!(page, "| {} | {} |{cells} {met} |", headline.title, headline.aimed_at());
    }
    let _ = write!(page, "\nTargets are for {OURS}, on two cores with the clients beside it.\n");
}

/// The columns and cells of one row.
struct Row<'f> {
    of: &'f str,
    row: &'f str,
    figures: Vec<&'f Figure>,
}

impl Row<'_> {
    fn columns(&self) -> Vec<String> {
        let title = |figure: &&Figure| match figure.unit {
            "" => figure.name.clone(),
            "/s" => format!("{}/s", figure.name),
            unit => format!("{}, {unit}", figure.name),
        };
        self.figures.iter().map(title).collect()
    }
}

/// Rows with the same columns make one table; relays stand below each other.
fn tables(page: &mut String, figures: &[&Figure]) {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for figure in figures {
        match rows.iter_mut().find(|row| row.of == figure.of && row.row == figure.row) {
            Some(row) => row.figures.push(figure),
            None => rows.push(Row { of: &figure.of, row: &figure.row, figures: vec![figure] }),
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for row in &rows {
        if !names.contains(&row.row) {
            names.push(row.row);
        }
    }
    rows.sort_by_key(|row| names.iter().position(|name| *name == row.row));
    let mut done: Vec<Vec<String>> = Vec::new();
    for columns in rows.iter().map(Row::columns) {
        if done.contains(&columns) {
            continue;
        }
        let _ = write!(page, "\n| | |{}\n|---|---|{}\n", titles(&columns), "---:|".repeat(columns.len()));
        for row in rows.iter().filter(|row| row.columns() == columns) {
            let cells: String = row.figures.iter().map(|figure| format!(" {} |", cell(figure))).collect();
            let _ = writeln!(page, "| {} | {} |{cells}", row.row, row.of);
        }
        done.push(columns);
    }
}

fn titles(columns: &[String]) -> String {
    columns.iter().map(|column| format!(" {column} |")).collect()
}

fn cell(figure: &Figure) -> String {
    match &figure.value {
        Measured::Number(value) => number(*value),
        Measured::Words(words) => escaped(words),
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// Three digits that matter, or all before the point, in groups of three.
pub(crate) fn number(value: f64) -> String {
    let text = match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        small if small < f64::EPSILON => "0".to_owned(),
        _ => format!("{value:.3}"),
    };
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let digits: Vec<char> = whole.chars().collect();
    let grouped: String = digits
        .iter()
        .enumerate()
        .flat_map(|(place, digit)| {
            let left = digits.len() - place;
            let comma = (place > 0 && left.is_multiple_of(3) && digits[place - 1].is_ascii_digit()).then_some(',');
            comma.into_iter().chain([*digit])
        })
        .collect();
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_short_and_grouped() {
        let shown = [0.0, 0.1234, 1.5, 42.42, 999.6, 12_345.6, 1_234_567.0, -1_234.0].map(number);
        assert_eq!(shown, ["0", "0.123", "1.50", "42.4", "1,000", "12,346", "1,234,567", "-1,234"]);
    }
}
