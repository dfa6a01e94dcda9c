//! Starts, stops, kills and restarts the real binary, and runs its commands. [`events`]: events of clients. [`mesh`]:
//! nodes that are peers of each other. [`raw`]: a peer that may break the protocol. [`namespace`]: network partitions.

pub(crate) mod events;
pub(crate) mod mesh;
pub(crate) mod namespace;
pub(crate) mod raw;

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use kukuri_testing::{Client, TIMEOUT};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) use kukuri_testing::TOPIC;

const BINARY: &str = env!("CARGO_BIN_EXE_kukuri-node");

/// A node's process and its data directory. Dropping it kills the process.
pub(crate) struct Node {
    mode: &'static str,
    dir: tempfile::TempDir,
    address: SocketAddr,
    process: Option<Process>,
    /// The command that starts the node: a tracer, or `unshare` for a network namespace. It must exec the node.
    wrapper: Vec<String>,
    /// The node's standard output at its start.
    pub(crate) announcement: String,
}

struct Process {
    child: Child,
    /// Kept open, so that the node's writes do not fail.
    _stdout: BufReader<ChildStdout>,
}

impl Node {
    /// Starts a new node on a free port. `mode`: `required` or `global`.
    pub(crate) fn start(mode: &'static str) -> Self {
        Self::start_with(mode, "")
    }

    /// Starts a new node with a configuration file, which its commands read too.
    pub(crate) fn start_with(mode: &'static str, configuration: &str) -> Self {
        let mut node = Self::place_for(mode, configuration);
        node.start_again();
        node
    }

    /// A node that is not started yet.
    pub(crate) fn place_for(mode: &'static str, configuration: &str) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let dir = tempfile::tempdir().unwrap();
        let node = Self { mode, dir, address, process: None, wrapper: Vec::new(), announcement: String::new() };
        std::fs::write(node.config_file(), configuration).unwrap();
        node
    }

    /// Later starts use this wrapper.
    pub(crate) fn start_under(&mut self, wrapper: &[&str]) {
        self.wrapper = wrapper.iter().map(ToString::to_string).collect();
    }

    /// Starts the node on its data and its port.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let end = Instant::now() + TIMEOUT;
        let (process, said) = loop {
            let (mut process, said) = self.spawn();
            // Another process may have the port that this node had before.
            let is_taken = said.is_empty() && self.log().lines().last().is_some_and(|line| line.contains("in use"));
            if !is_taken || Instant::now() > end {
                break (process, said);
            }
            process.child.wait().unwrap();
            std::thread::sleep(Duration::from_millis(100));
        };
        self.process = Some(process);
        let line = said.lines().next().unwrap_or_default();
        let url = line.strip_prefix("kukuri-node listens on ws://");
        self.address = url.unwrap_or_else(|| panic!("it did not start: {said}{}", self.log())).parse().unwrap();
        self.announcement = said;
    }

    /// Starts the process. Returns it with its announcement, which is empty if it has ended.
    fn spawn(&self) -> (Process, String) {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = bare_under(&self.wrapper);
        command.args(["--listen", &self.address.to_string(), "--topics-mode", self.mode, "--data"]);
        command.arg(self.dir.path().join("data"));
        // Tests publish faster than the default limits allow.
        command.args(["--rate-limits", "off", "--config"]).arg(self.config_file());
        // Most tests count the events of clients.
        if !std::fs::read_to_string(self.config_file()).unwrap().contains("[bootstrap]") {
            command.env("KUKURI_BOOTSTRAP_PUBLISH", "off");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("  try ") && stdout.read_line(&mut said).unwrap() > 0 {}
        (Process { child, _stdout: stdout }, said)
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Connects a client.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url()).await
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().expect("it runs");
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }

    /// Sends the signal and waits until the process has ended. Returns its status and the time that took.
    pub(crate) async fn stop(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        let mut process = self.process.take().expect("it runs");
        let asked = Instant::now();
        kill_process(Pid::from_child(&process.child), signal).unwrap();
        loop {
            if let Some(status) = process.child.try_wait().unwrap() {
                return (status, asked.elapsed());
            }
            if asked.elapsed() > TIMEOUT {
                process.child.kill().unwrap();
                panic!("it does not stop: {}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a signal and does not wait.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.as_ref().expect("it runs").child), signal).unwrap();
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.process.as_ref().expect("it runs").child.id()
    }

    /// A path beside the data directory.
    pub(crate) fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The node's configuration file; empty unless a test writes it.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.place("kukuri.toml")
    }

    /// Runs a command on the node's data, whether the node runs or not.
    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        run(&self.place("data"), arguments)
    }

    /// Requests the information document (NIP-11).
    pub(crate) fn information(&self) -> serde_json::Value {
        let answer = self.http("/", "application/nostr+json");
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    /// Requests JSON over HTTP: status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, serde_json::Value) {
        self.get_as("", path)
    }

    /// Requests JSON over HTTP with this `Authorization`, unless it is empty: status and body.
    pub(crate) fn get_as(&self, authorization: &str, path: &str) -> (u16, serde_json::Value) {
        let mut answer = String::new();
        self.ask_as(authorization, path, "application/json").read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Requests a body over HTTP.
    pub(crate) fn http_text(&self, path: &str) -> String {
        self.http(path, "*/*")
    }

    /// Requests a body over HTTP, with these header lines.
    pub(crate) fn http_with(&self, path: &str, headers: &str) -> String {
        // They follow that of `accept`.
        self.http(path, format!("*/*\r\n{headers}").trim_end())
    }

    fn http(&self, path: &str, accept: &str) -> String {
        let mut stream = self.ask(path, accept);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends an HTTP request; the caller reads the answer.
    pub(crate) fn ask(&self, path: &str, accept: &str) -> TcpStream {
        self.ask_as("", path, accept)
    }

    /// Sends an HTTP request with this `Authorization`, unless it is empty; the caller reads the answer.
    pub(crate) fn ask_as(&self, authorization: &str, path: &str, accept: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let mut head = format!("GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\naccept: {accept}\r\n");
        if !authorization.is_empty() {
            head += &format!("authorization: {authorization}\r\n");
        }
        head += "\r\n";
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

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) is_success: bool,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Answer {
    /// The standard output. Panics if the command failed.
    pub(crate) fn ok(self) -> String {
        assert!(self.is_success, "{self:?}");
        self.out
    }

    /// The error line. Panics if the command succeeded.
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

/// The binary, without the `KUKURI_` variables of the test run.
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
