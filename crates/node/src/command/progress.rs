//! Progress of long work: a bar on a terminal, a line every ten seconds elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Between two lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Progress of work whose total size may be unknown.
pub(super) struct Progress {
    bar: ProgressBar,
    is_drawn: bool,
    what: &'static str,
    started: Instant,
    last_line: Instant,
}

impl Progress {
    /// `what`: the unit, in the plural.
    pub(super) fn new(total: Option<u64>, what: &'static str) -> Self {
        let is_drawn = std::io::stderr().is_terminal();
        let target = if is_drawn { ProgressDrawTarget::stderr_with_hz(10) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(total, target);
        let style = match total {
            Some(_) => "{bar:30} {percent:>3} %  {human_pos} {msg}  {per_sec}  {eta} left",
            None => "{spinner} {human_pos} {msg}  {per_sec}  {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self { bar, is_drawn, what, started: Instant::now(), last_line: Instant::now() }
    }

    /// `position`: the number of units done since the start.
    pub(super) fn reached(&mut self, position: u64) {
        self.bar.set_position(position);
        if !self.is_drawn && self.last_line.elapsed() >= LINE_INTERVAL {
            self.last_line = Instant::now();
            let rate = position as f64 / self.started.elapsed().as_secs_f64();
            let total = self.bar.length().map(|total| format!(" of {total}")).unwrap_or_default();
            eprintln!("{position}{total} {}, {rate:.0}/s", self.what);
        }
    }

    /// Prints a line without breaking the bar.
    pub(super) fn say(&self, line: &str) {
        if self.is_drawn {
            self.bar.suspend(|| eprintln!("{line}"));
        } else {
            eprintln!("{line}");
        }
    }

    /// Removes the bar.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
