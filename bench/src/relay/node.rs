//! The process that is measured: starting it, its CPU time, its memory.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};

/// A node's binary.
pub(crate) struct Binary {
    path: PathBuf,
    /// Whether it limits how fast clients may send, which would be measured instead.
    limits_rates: bool,
}

impl Binary {
    /// The given one, or the one that was built beside this program.
    pub(crate) fn find(given: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match given {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("kukuri-node"),
        };
        let help = Command::new(&path)
            .arg("--help")
            .output()
            .with_context(|| format!("{} does not run; cargo xtask bench relay builds it", path.display()))?;
        let limits_rates = String::from_utf8_lossy(&help.stdout).contains("--rate-limits");
        Ok(Self { path, limits_rates })
    }

    /// Starts a node and waits until it listens.
    pub(crate) fn start(&self, data: &Path) -> anyhow::Result<Node> {
        fs::create_dir_all(data)?;
        let log = data.join("log");
        let mut command = Command::new(&self.path);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KUKURI_")) {
            command.env_remove(name);
        }
        command.args(["--listen", "127.0.0.1:0", "--topics-mode", "required", "--data"]).arg(data);
        if self.limits_rates {
            command.args(["--rate-limits", "off"]);
        }
        command.env("KUKURI_LOG", "warn").stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().context("its output")?;
        let mut node = Node { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), stdout: BufReader::new(stdout) };
        let mut line = String::new();
        node.stdout.read_line(&mut line)?;
        let Some((_, url)) = line.trim_end().split_once("ws://") else {
            bail!("the node did not start: {}", fs::read_to_string(log).unwrap_or(line));
        };
        node.address = url.parse().with_context(|| line.clone())?;
        Ok(node)
    }
}

/// A running node. It is killed when dropped: what it stored is of no use.
pub(crate) struct Node {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Held open, so that the node can go on writing.
    stdout: BufReader<ChildStdout>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process's memory, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Its own; the rest is the store's mapped file, which the kernel takes back when it needs room.
    pub(crate) own: u64,
}

impl Node {
    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }

    /// The CPU time of all its threads so far.
    ///
    /// The scheduler's figures are exact to the nanosecond, but forget threads that have ended. The process's total
    /// forgets nothing, and is cut off to ticks of 10 ms. Both are at most the truth, so the larger is nearer.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let mut exact = 0;
        for task in fs::read_dir(self.proc("task"))? {
            // A thread may end between the listing and the reading.
            let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
            exact += text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        }
        let stat = fs::read_to_string(self.proc("stat"))?;
        // The name, in parentheses, may hold anything; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ').skip(11);
        let ticks: u64 = fields.take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Ok(Duration::from_nanos(exact).max(Duration::from_millis(ticks * 10)))
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let status = fs::read_to_string(self.proc("status"))?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
            kib.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib * 1024).with_context(|| name.to_owned())
        };
        Ok(Memory { resident: bytes("VmRSS:")?, own: bytes("RssAnon:")? })
    }

    /// How many files it may have open.
    pub(crate) fn most_files(&self) -> anyhow::Result<String> {
        let limits = fs::read_to_string(self.proc("limits"))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
        Ok(line.and_then(|line| line.split_whitespace().next()).unwrap_or("unknown").to_owned())
    }
}
