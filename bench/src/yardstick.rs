//! The best that this machine does, measured in the same run as everything else.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use kukuri_domain::{Event, Verified};
use kukuri_testing::draft;

use crate::timing::Timings;

/// The priority that gives way to everybody.
const LOWEST: i32 = 19;

/// Events verified per second on one core: hash and Schnorr signature.
pub(crate) fn verifications_per_second() -> anyhow::Result<f64> {
    let content = "a post of the usual length, ".repeat(16);
    let post = |n: u64| draft(7, 1).at(1_760_000_000 + n).tag(["t", "kukuri:global"]).content(&content).sign();
    let events: Vec<Event> = (0..256).map(post).collect();
    let mut best = 0.0_f64;
    for _ in 0..8 {
        let start = Instant::now();
        for event in &events {
            Verified::check(event.clone())?;
        }
        best = best.max(events.len() as f64 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// How long the disk takes at best to make a small write durable: the median of the best round.
///
/// A process that waits may be woken only at the next tick of the clock. On a virtual machine 4 ms were seen for 0.15, from
/// one second to the next, depending on other load; against such a yardstick every relay looks fast.
pub(crate) fn sync_time(dir: &Path) -> anyhow::Result<Duration> {
    let _awake = Awake::new();
    let mut file = File::create(dir.join("yardstick"))?;
    let mut best = Duration::MAX;
    for _ in 0..8 {
        let mut timings = Timings::default();
        for _ in 0..50 {
            let start = Instant::now();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            timings.add(start);
        }
        best = best.min(timings.percentile(50));
    }
    Ok(best)
}

/// Keeps all cores from sleeping, at the lowest priority, for as long as it is held.
struct Awake(Arc<AtomicBool>);

impl Awake {
    fn new() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                // Of this thread alone. One that can't give way must not get in the way.
                if rustix::process::setpriority_process(None, LOWEST).is_ok() {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        Self(is_over)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
