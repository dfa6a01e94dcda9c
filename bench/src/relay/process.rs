//! A running relay: starting it, waiting until it answers, its CPU time, its memory. All its processes count.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::{fs::MetadataExt, process::CommandExt},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kukuri_testing::Connection;
use nix::time::ClockId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::Relay;

/// One tick of the clock by which the kernel counts CPU time.
const TICK: Duration = Duration::from_millis(10);
/// Between two looks at whether it is up.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Between two looks at whether it rests, and how long that is waited for.
const REST_INTERVAL: Duration = Duration::from_millis(500);
const MAX_REST: Duration = Duration::from_secs(60);

/// A relay that runs. It is killed when dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where it keeps its data.
    pub(crate) dir: PathBuf,
}

/// Memory in bytes.
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Its own; the rest is mapped files, which the kernel takes back when it needs room.
    pub(crate) own: u64,
}

impl Relay {
    /// Starts it on the data in `dir`, which is made if it is not there, and waits until it takes connections.
    pub(crate) async fn start(&self, dir: &Path, timeout: Duration) -> anyhow::Result<Running> {
        self.start_after(&[], dir, timeout).await
    }

    /// The same, as the arguments of another program.
    pub(crate) async fn start_after(
        &self,
        before: &[String],
        dir: &Path,
        timeout: Duration,
    ) -> anyhow::Result<Running> {
        fs::create_dir_all(dir)?;
        let log = dir.with_extension("log");
        let out = File::options().create(true).append(true).open(&log)?;
        // Somebody else may take it before the relay does; then the relay does not start, and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = self.command(port, dir, before)?;
        command.stdin(std::process::Stdio::null()).stdout(out.try_clone()?).stderr(out).process_group(0);
        let child = command.spawn().with_context(|| format!("{} could not be started", self.name))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut running = Running { child, address, dir: dir.to_owned() };
        let start = Instant::now();
        loop {
            if let Ok(Ok(_)) = tokio::time::timeout(timeout, Connection::open(address)).await {
                return Ok(running);
            }
            if let Some(status) = running.child.try_wait()? {
                bail!("it did not start ({status}): {}", last_words(&log));
            }
            if start.elapsed() > timeout {
                bail!("it was not up after {} s: {}", timeout.as_secs(), last_words(&log));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The last line of a log.
fn last_words(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").chars().take(200).collect()
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Running {
    /// Ends it at once, with everything it has started.
    pub(crate) fn kill(&mut self) {
        let started = tree(self.child.id());
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        for process in started.keys().filter_map(|process| Pid::from_raw(*process as i32)) {
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The CPU time of all its threads and processes so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let all = cpu_of_tree(self.child.id());
        anyhow::ensure!(all > Duration::ZERO, "it has ended");
        Ok(all)
    }

    /// Waits until background work is done (an index, a compaction), at most `MAX_REST`.
    pub(crate) async fn rest(&self) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut before = self.cpu()?;
        while start.elapsed() < MAX_REST {
            tokio::time::sleep(REST_INTERVAL).await;
            let now = self.cpu()?;
            if now.saturating_sub(before) < REST_INTERVAL / 50 {
                break;
            }
            before = now;
        }
        Ok(())
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let mut all = Memory::default();
        for process in tree(self.child.id()).into_keys() {
            let Ok(status) = fs::read_to_string(format!("/proc/{process}/status")) else { continue };
            let bytes = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
                kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib * 1024)
            };
            all.resident += bytes("VmRSS:");
            all.own += bytes("RssAnon:");
        }
        anyhow::ensure!(all.resident > 0, "it has ended");
        Ok(all)
    }

    /// How many files it may have open.
    pub(crate) fn most_files(&self) -> String {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap_or_default();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown").to_owned()
    }

    /// Bytes of its data on the disk.
    pub(crate) fn disk_bytes(&self) -> anyhow::Result<u64> {
        allocated(&self.dir)
    }

    /// Software and version, if it reports them (NIP-11).
    pub(crate) fn about(&self) -> Option<String> {
        let text = self.get("/", "application/nostr+json").ok()?;
        let body = text.get(text.find('{')?..=text.rfind('}')?)?;
        let about: serde_json::Value = serde_json::from_str(body).ok()?;
        let word = |name: &str| about[name].as_str().unwrap_or_default().to_owned();
        Some(format!("{} {}", word("software"), word("version")).trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// An HTTP answer of it.
    pub(crate) fn get(&self, path: &str, accept: &str) -> anyhow::Result<String> {
        let mut stream = std::net::TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {}\r\naccept: {accept}\r\nconnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes())?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn allocated(path: &Path) -> anyhow::Result<u64> {
    let about = fs::symlink_metadata(path)?;
    let mut bytes = about.blocks() * 512;
    if about.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += allocated(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// A process, by /proc.
struct Stat {
    parent: u32,
    /// Of its children that have ended.
    ended: Duration,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may hold anything.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = |place: usize| fields.get(place)?.parse::<u32>().ok();
    Some(Stat { parent: fields.get(1)?.parse().ok()?, ended: TICK * (ticks(13)? + ticks(14)?) })
}

/// The CPU time of a process and all that descend from it.
pub(crate) fn cpu_of_tree(root: u32) -> Duration {
    let cpu = |(process, stat): (u32, Stat)| {
        // The clock of a process includes threads that have ended. The process may end before it is asked.
        let clock = ClockId::pid_cpu_clock_id(nix::unistd::Pid::from_raw(process as i32));
        clock.and_then(ClockId::now).map_or(Duration::ZERO, Duration::from) + stat.ended
    };
    tree(root).into_iter().map(cpu).sum()
}

/// The process that started another.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    Some(stat(process)?.parent)
}

/// A process and all that descend from it.
fn tree(root: u32) -> HashMap<u32, Stat> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut others: Vec<(u32, Stat)> = numbers.filter_map(|process| Some((process, stat(process)?))).collect();
    let mut found = HashMap::new();
    let mut wanted = vec![root];
    while let Some(next) = wanted.pop() {
        others.retain(|(process, stat)| {
            if stat.parent == next {
                wanted.push(*process);
            }
            *process != next
        });
        found.extend(stat(next).map(|stat| (next, stat)));
    }
    found
}
