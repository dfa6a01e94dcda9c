//! Progress of long work: a bar on a terminal, a line every ten seconds elsewhere.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of work whose total size may be unknown. Dropping it removes the bar.
pub(super) struct Progress {
    bar: ProgressBar,
    last_line: Instant,
}

impl Progress {
    /// `what`: the unit, in the plural.
    pub(super) fn new(total: Option<u64>, what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(10));
        let style = match total {
            Some(_) => "{bar:30} {percent:>3} %  {human_pos} {msg}  {per_sec}  {eta} left",
            None => "{spinner} {human_pos} {msg}  {per_sec}  {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, last_line: Instant::now() }
    }

    /// `position`: the number of units done since the start.
    pub(super) fn reached(&mut self, position: u64) {
        self.bar.set_position(position);
        // Hidden: standard error is not a terminal.
        if self.bar.is_hidden() && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let rate = position as f64 / self.bar.elapsed().as_secs_f64();
            let total = self.bar.length().map(|total| format!(" of {total}")).unwrap_or_default();
            eprintln!("{position}{total} {}, {rate:.0}/s", self.bar.message());
        }
    }

    /// Prints a line without breaking the bar.
    pub(super) fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }
}
