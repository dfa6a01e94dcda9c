//! The real binary in a process of its own: started, asked to stop, killed, started again on what it left; its
//! commands; [`client`], which says and hears JSON; [`mesh`], nodes that know each other.
#![allow(dead_code, reason = "not every test file needs all of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

pub(crate) mod client;
pub(crate) mod mesh;

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// For whatever must happen at some time on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const TOPIC: &str = "kukuri:0101010101010101010101010101010101010101010101010101010101010101";

const BINARY: &str = env!("CARGO_BIN_EXE_kukuri-node");

/// A node and its data. The process is killed when this is dropped.
pub(crate) struct Node {
    mode: &'static str,
    dir: tempfile::TempDir,
    address: SocketAddr,
    process: Option<Process>,
    /// What it is started by: a tracer, or `unshare` for a network of its own. It must become the node.
    wrapper: Vec<String>,
    /// What it said when it started.
    pub(crate) announcement: String,
}

struct Process {
    child: Child,
    /// Held open, so that the node can go on writing.
    _stdout: BufReader<ChildStdout>,
}

impl Node {
    /// A new node on a free port: `required` or `global`.
    pub(crate) fn start(mode: &'static str) -> Self {
        Self::start_with(mode, "")
    }

    /// The same with a configuration file. Its commands read it too.
    pub(crate) fn start_with(mode: &'static str, configuration: &str) -> Self {
        let mut node = Self::place_for(mode, configuration);
        node.start_again();
        node
    }

    /// One that has not started yet.
    pub(crate) fn place_for(mode: &'static str, configuration: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let dir = tempfile::tempdir().unwrap();
        let node = Self { mode, dir, address, process: None, wrapper: Vec::new(), announcement: String::new() };
        std::fs::write(node.config_file(), configuration).unwrap();
        node
    }

    /// From its next start on it is started by this.
    pub(crate) fn start_under(&mut self, wrapper: &[&str]) {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
    }

    /// The same data, the same port.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = bare_under(&self.wrapper);
        command.args(["--listen", &self.address.to_string(), "--topics-mode", self.mode, "--data"]);
        command.arg(self.dir.path().join("data"));
        // Tests send faster than people do.
        command.args(["--rate-limits", "off", "--config"]).arg(self.config_file());
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("  try ") && stdout.read_line(&mut said).unwrap() > 0 {}
        self.process = Some(Process { child, _stdout: stdout });
        let line = said.lines().next().unwrap_or_default();
        let url = line.strip_prefix("kukuri-node listens on ws://");
        self.address = url.unwrap_or_else(|| panic!("it did not start: {said}{}", self.log())).parse().unwrap();
        self.announcement = said;
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Ends it without a warning, as a power cut would.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }

    /// Asks it to stop and waits until it has. Returns how long that took.
    pub(crate) async fn stop(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let mut process = self.process.take().expect("it runs");
        let asked = Instant::now();
        kill_process(Pid::from_child(&process.child), signal).unwrap();
        loop {
            if let Some(status) = process.child.try_wait().unwrap() {
                return (status, asked.elapsed());
            }
            if asked.elapsed() > PATIENCE {
                process.child.kill().unwrap();
                panic!("it does not stop: {}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends it a signal and lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.as_ref().expect("it runs").child), signal).unwrap();
    }

    /// The number of its process.
    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("it runs").child.id()
    }

    /// A place beside its data.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its configuration file; empty unless a test writes it.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.place("kukuri.toml")
    }

    /// Runs one of its commands, beside it or while it is stopped.
    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        run(&self.place("data"), arguments)
    }

    /// Asks it over HTTP for its information document (NIP-11).
    pub(crate) fn information(&self) -> serde_json::Value {
        let answer = self.http("/", "application/nostr+json");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Asks it over HTTP for JSON: the status and the body.
    pub(crate) fn get(&self, path: &str) -> (u16, serde_json::Value) {
        let answer = self.http(path, "application/json");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Asks it over HTTP for whatever there is.
    pub(crate) fn http_text(&self, path: &str) -> String {
        self.http(path, "*/*")
    }

    fn http(&self, path: &str, accept: &str) -> String {
        let mut stream = self.ask(path, accept);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Asks it over HTTP and leaves the answer to be read.
    pub(crate) fn ask(&self, path: &str, accept: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\naccept: {accept}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", self.log());
        }
    }
}

/// What a command answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) is_success: bool,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Answer {
    /// What it printed, if it did what it was asked.
    pub(crate) fn ok(self) -> String {
        assert!(self.is_success, "{self:?}");
        self.out
    }

    /// Its one line of error, if it did not.
    pub(crate) fn refusal(self) -> String {
        assert!(!self.is_success, "{self:?}");
        self.error
    }
}

/// Runs a command on a data directory.
pub(crate) fn run(data: &Path, arguments: &[&str]) -> Answer {
    let mut command = bare();
    let output = command.current_dir(data.parent().unwrap()).arg("--data").arg(data).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Answer { is_success: output.status.success(), out: text(output.stdout), error: text(output.stderr) }
}

/// The binary, with nothing set by whoever runs the tests.
pub(crate) fn bare() -> Command {
    bare_under(&[])
}

fn bare_under(wrapper: &[String]) -> Command {
    let mut words = wrapper.iter().map(String::as_str).chain([BINARY]);
    let mut command = Command::new(words.next().unwrap_or(BINARY));
    command.args(words);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KUKURI_")) {
        command.env_remove(name);
    }
    command
}

/// Tries until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, check: impl FnMut() -> F) {
    until_after(PATIENCE, check, || what.to_owned()).await;
}

/// The same, with more patience or less.
pub(crate) async fn until_after<F: Future<Output = bool>>(
    patience: Duration,
    mut check: impl FnMut() -> F,
    what: impl FnOnce() -> String,
) {
    let end = Instant::now() + patience;
    while !check().await {
        if Instant::now() > end {
            panic!("{}", what());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
