//! A relay as a process: how it is started, its CPU time, memory and disk. All its processes count.

use std::{
    fs::{self, File},
    iter,
    net::{SocketAddr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    str::FromStr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use kukuri_testing::Connection;
use nix::{time::ClockId, unistd};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use crate::trace;

/// The name of our relay, unless several builds of it are compared.
pub(crate) const OURS: &str = "kukuri";
/// Our arguments. Rate limits are off: else they would be measured.
const OUR_ARGUMENTS: [&str; 8] =
    ["--listen", "127.0.0.1:{port}", "--topics-mode", "required", "--rate-limits", "off", "--data", "{dir}"];

const START_POLL_INTERVAL: Duration = Duration::from_millis(5);
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(500);
const MAX_IDLE_WAIT: Duration = Duration::from_secs(60);

/// How a relay is started.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    pub(crate) name: String,
    /// Our own: wrong answers of it fail the run.
    pub(crate) is_ours: bool,
    /// The program and its arguments, with `{port}` and `{dir}` in them.
    command: Vec<String>,
}

impl FromStr for Relay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, command) = text.split_once('=').context("a relay is given as name=command {port} {dir}")?;
        let command = shlex::split(command).context("an unclosed quote in a command")?;
        ensure!(!name.is_empty() && !command.is_empty(), "a relay has a name and a command");
        ensure!(command.iter().any(|word| word.contains("{port}")), "the command of {name} has no {{port}}");
        Ok(Self { name: name.trim().to_owned(), is_ours: false, command })
    }
}

impl Relay {
    /// A binary of our node, given as `NAME=FILE` or `FILE`.
    pub(crate) fn of_build(text: &str) -> anyhow::Result<Self> {
        let (name, path) = text.split_once('=').unwrap_or((OURS, text));
        let command = iter::once(path).chain(OUR_ARGUMENTS).map(str::to_owned).collect();
        Ok(Self { name: name.to_owned(), is_ours: true, command })
    }

    /// This relay with further arguments.
    pub(crate) fn with(&self, arguments: &[&str]) -> Self {
        let command =
            self.command.iter().map(String::as_str).chain(arguments.iter().copied()).map(str::to_owned).collect();
        Self { command, ..self.clone() }
    }

    /// This relay under strace, which writes its system calls to `log`.
    pub(crate) fn traced(&self, log: &Path) -> Self {
        let command = trace::tracer(log).into_iter().chain(self.command.iter().cloned()).collect();
        Self { command, ..self.clone() }
    }

    fn command(&self, port: u16, dir: &Path) -> anyhow::Result<Command> {
        let dir = dir.to_str().context("a path that is not UTF-8")?;
        let mut words = self.command.iter().map(|word| word.replace("{port}", &port.to_string()).replace("{dir}", dir));
        let mut command = Command::new(words.next().context("a command")?);
        command.args(words);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KUKURI_")) {
            command.env_remove(name);
        }
        command.env("KUKURI_LOG", "warn");
        // The oracle knows the events of the corpus only.
        command.env("KUKURI_BOOTSTRAP_PUBLISH", "off");
        Ok(command)
    }

    /// Starts the relay with no data, in a new directory within `dir`, and waits until it accepts connections.
    pub(crate) async fn start(&self, dir: &Path, limit: Duration) -> anyhow::Result<RelayProcess> {
        self.start_on(tempfile::tempdir_in(dir)?, limit).await
    }

    /// Starts the relay on the data in this directory, and waits until it accepts connections.
    pub(crate) async fn start_on(&self, dir: TempDir, limit: Duration) -> anyhow::Result<RelayProcess> {
        let (child, address) = self.spawn(dir.path())?;
        let mut process = RelayProcess { child, address, dir };
        process.wait_until_up(limit).await?;
        Ok(process)
    }

    fn spawn(&self, dir: &Path) -> anyhow::Result<(Child, SocketAddr)> {
        let out = File::options().create(true).append(true).open(log_of(dir))?;
        // Another process may take the port before the relay does; then the relay does not start, and its log says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = self.command(port, dir)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("{} could not be started", self.name))?;
        Ok((child, SocketAddr::from(([127, 0, 0, 1], port))))
    }
}

/// The file with a relay's output, beside its directory.
fn log_of(dir: &Path) -> PathBuf {
    dir.with_extension("log")
}

fn last_line(dir: &Path) -> String {
    let text = fs::read(log_of(dir)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("its log is empty").chars().take(200).collect()
}

/// A relay that runs. When dropped it is killed, and its data removed.
pub(crate) struct RelayProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    dir: TempDir,
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        kill(&mut self.child);
    }
}

impl RelayProcess {
    /// Kills it with SIGKILL and starts it on the same data. Returns when it was started.
    pub(crate) async fn restart(&mut self, relay: &Relay, limit: Duration) -> anyhow::Result<Instant> {
        kill(&mut self.child);
        let started = Instant::now();
        (self.child, self.address) = relay.spawn(self.dir.path())?;
        self.wait_until_up(limit).await?;
        Ok(started)
    }

    async fn wait_until_up(&mut self, limit: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !matches!(timeout(limit, Connection::open(self.address)).await, Ok(Ok(_))) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it did not start ({status}): {}", last_line(self.dir.path()));
            }
            if begun.elapsed() > limit {
                bail!("it was not up after {} s: {}", limit.as_secs(), last_line(self.dir.path()));
            }
            sleep(START_POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// The CPU time of all its threads and processes so far.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let cpu = cpu_of_tree(self.child.id());
        ensure!(cpu > Duration::ZERO, "the relay has ended");
        Ok(cpu)
    }

    /// Waits until background work is done (an index, a compaction), at most [`MAX_IDLE_WAIT`].
    pub(crate) async fn wait_until_idle(&self) -> anyhow::Result<()> {
        let (begun, mut before) = (Instant::now(), self.cpu()?);
        while begun.elapsed() < MAX_IDLE_WAIT {
            sleep(IDLE_POLL_INTERVAL).await;
            let now = self.cpu()?;
            if now.saturating_sub(before) < IDLE_POLL_INTERVAL / 50 {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory_by("VmRSS:")
    }

    /// Resident memory in bytes, without pages of files.
    pub(crate) fn private_memory(&self) -> u64 {
        self.memory_by("RssAnon:")
    }

    fn memory_by(&self, name: &str) -> u64 {
        let resident = |process: &u32| {
            let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
        };
        tree(self.child.id()).iter().filter_map(resident).sum()
    }

    pub(crate) fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Asks it to stop. Returns how long that took; if it takes too long, it is killed.
    pub(crate) async fn stop(&mut self, limit: Duration) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while self.child.try_wait()?.is_none() {
            if begun.elapsed() > limit {
                kill(&mut self.child);
                break;
            }
            sleep(START_POLL_INTERVAL).await;
        }
        Ok(begun.elapsed())
    }

    /// Bytes of its data on the disk.
    pub(crate) fn disk_bytes(&self) -> anyhow::Result<u64> {
        allocated(self.dir.path())
    }
}

/// Kills a process, and every process that descends from it.
fn kill(child: &mut Child) {
    if matches!(child.try_wait(), Ok(Some(_))) {
        return;
    }
    for process in tree(child.id()).into_iter().filter_map(|process| Pid::from_raw(process as i32)) {
        let _ = kill_process(process, Signal::KILL);
    }
    let _ = child.wait();
}

fn allocated(path: &Path) -> anyhow::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    let mut bytes = metadata.blocks() * 512;
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += allocated(&entry?.path())?;
        }
    }
    Ok(bytes)
}

/// The CPU time of a process and all that descend from it.
pub(crate) fn cpu_of_tree(root: u32) -> Duration {
    let cpu = |process: u32| {
        // The clock of a process includes threads that have ended. The process may end before it is asked.
        let clock = ClockId::pid_cpu_clock_id(unistd::Pid::from_raw(process as i32));
        clock.and_then(ClockId::now).map_or(Duration::ZERO, Duration::from)
    };
    tree(root).into_iter().map(cpu).sum()
}

/// A process and all that descend from it.
fn tree(root: u32) -> Vec<u32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let children: Vec<u32> = children
            .flat_map(|line| line.split(' ').filter_map(|child| child.parse().ok()).collect::<Vec<_>>())
            .collect();
        found.extend(children);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_option_is_a_name_and_a_command() {
        let relay: Relay = "other 1.0=sh -c 'exec relay --at {port}' {dir}".parse().unwrap();
        let command = relay.command(7, Path::new("/data")).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert_eq!(
            (relay.name.as_str(), words),
            ("other 1.0", vec!["-c".into(), "exec relay --at 7".into(), "/data".into()])
        );
        assert!("other".parse::<Relay>().is_err(), "no command");
        assert!("other=relay".parse::<Relay>().is_err(), "no port");
    }

    #[test]
    fn tree_of_a_process_has_its_children() {
        let mut child = Command::new("sh").args(["-c", "sleep 60; true"]).spawn().unwrap();
        let found = || tree(child.id()).len();
        let begun = Instant::now();
        while found() < 2 && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(START_POLL_INTERVAL);
        }
        assert_eq!(found(), 2);
        kill(&mut child);
    }
}
