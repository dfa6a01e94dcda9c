//! How long many runs of one thing took, and what this machine does at best.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use kukuri_domain::Event;
use kukuri_testing::draft;
use serde::Serialize;

/// The priority that gives way to every other thread.
const LOWEST_PRIORITY: i32 = 19;

/// The times of many runs of one thing.
#[derive(Clone, Default)]
pub(crate) struct Timings(pub(crate) Vec<Duration>);

impl Timings {
    pub(crate) fn push(&mut self, took: Duration) {
        self.0.push(took);
    }

    /// Runs something and adds how long it took.
    pub(crate) async fn time<T>(&mut self, run: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = run.await;
        self.push(begun.elapsed());
        done
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Milliseconds that this share of the runs stayed within.
    pub(crate) fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let index = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// Runs in a second, one after the other.
    pub(crate) fn per_second(&self) -> f64 {
        self.0.len() as f64 / self.0.iter().sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The best that this machine does, measured in the same run as everything else.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Yardsticks {
    /// Events verified on one core: hash and Schnorr signature.
    pub(crate) verifications_per_second: f64,
    /// A small durable write.
    pub(crate) fdatasync_p50_ms: f64,
}

impl Yardsticks {
    /// The best of eight rounds each.
    pub(crate) fn measure(dir: &Path) -> anyhow::Result<Self> {
        let content = "a post of the usual length, ".repeat(16);
        let post = |n: u64| draft(7, 1).at(1_760_000_000 + n).tag(["t", "kukuri:global"]).content(&content).sign();
        let events: Vec<Event> = (0..256).map(post).collect();
        let mut verifications_per_second = 0.0_f64;
        for _ in 0..8 {
            let start = Instant::now();
            for event in &events {
                event.verify()?;
            }
            verifications_per_second = verifications_per_second.max(256.0 / start.elapsed().as_secs_f64());
        }
        let mut file = File::create(dir.join("yardstick"))?;
        let rounds = awake(|| (0..8).map(|_| sync_p50(&mut file)).collect::<io::Result<Vec<f64>>>())?;
        let fdatasync_p50_ms = rounds.into_iter().fold(f64::MAX, f64::min);
        Ok(Self { verifications_per_second, fdatasync_p50_ms })
    }
}

fn sync_p50(file: &mut File) -> io::Result<f64> {
    let mut timings = Timings::default();
    for _ in 0..50 {
        let start = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        timings.push(start.elapsed());
    }
    Ok(timings.percentile(50))
}

/// Runs something while no core sleeps. Otherwise a process that waits may be woken only at the next tick of the clock: on a
/// virtual machine a sync took 4 ms in place of 0.15, from one second to the next, depending on other load.
fn awake<T>(run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let spin = || {
        // Of this thread alone. A thread that can't give way must not spin.
        if rustix::process::setpriority_process(None, LOWEST_PRIORITY).is_ok() {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(spin);
        }
        let done = run();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}
