//! A private Postgres cluster for tests, in a given directory: reached by TCP on loopback, and by a Unix socket there.

use std::{
    ffi::OsStr,
    fs::{self, File},
    hash::{Hash, Hasher},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Postgres refuses to run as root; Debian's package creates this user.
const USER: &str = "postgres";
/// Commits are synced to the disk, as in production.
const SETTINGS: &str = "-c listen_addresses=127.0.0.1 -c shared_buffers=256MB -c max_connections=200 -c max_wal_size=2GB \
     -c fsync=on -c synchronous_commit=on -c log_min_duration_statement=1000";

/// Ports that a start tries.
const MAX_STARTS: usize = 4;

pub(crate) struct Cluster {
    directory: PathBuf,
    /// Further settings, each as `-c name=value`.
    settings: String,
}

impl Cluster {
    /// A cluster in this directory, or in a temporary directory if Postgres cannot run in this one.
    pub(crate) fn at(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        if is_habitable(&directory) {
            return Self { directory, settings: String::new() };
        }
        let mut hash = std::hash::DefaultHasher::new();
        directory.hash(&mut hash);
        let directory = std::env::temp_dir().join(format!("kukuri-postgres-{:016x}", hash.finish()));
        Self { directory, settings: String::new() }
    }

    /// Adds server settings, each as `-c name=value`.
    pub(crate) fn with(self, settings: impl Into<String>) -> Self {
        Self { settings: settings.into(), ..self }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/postgres?sslmode=disable", self.port())
    }

    /// The URL by the Unix socket.
    pub(crate) fn url_by_socket(&self) -> String {
        format!("postgres://{USER}@localhost:{}/postgres?host={}", self.port(), self.directory.display())
    }

    /// The port of the last start. A server that is started again has the same, if it is still free.
    pub(crate) fn port(&self) -> u16 {
        let port = fs::read_to_string(self.directory.join("port"));
        port.ok().and_then(|port| port.parse().ok()).unwrap_or_default()
    }

    /// Creates the cluster if it is missing, and starts it unless it runs.
    pub(crate) fn start(&self) -> Result<(), String> {
        let _lock = self.make()?;
        if self.is_running()? {
            return Ok(());
        }
        let mut started = self.start_at(if self.port() > 0 { self.port() } else { free_port() });
        for _ in 1..MAX_STARTS {
            if started.is_ok() {
                break;
            }
            // Another process may have taken the port.
            started = self.start_at(free_port());
        }
        started
    }

    fn start_at(&self, port: u16) -> Result<(), String> {
        fs::write(self.directory.join("port"), port.to_string()).map_err(|error| error.to_string())?;
        let (directory, more) = (self.directory.display(), &self.settings);
        let settings = format!("{SETTINGS} -c port={port} -c unix_socket_directories='{directory}' {more}");
        let (log, data) = (self.directory.join("log"), self.directory.join("data"));
        run(program("pg_ctl")?.args(["start", "-w", "-s", "-o", &settings, "-l"]).arg(log).arg("-D").arg(data))
    }

    /// Creates the cluster if it is missing. The returned file is a lock: while it is open, no other process starts the
    /// cluster.
    pub(crate) fn make(&self) -> Result<File, String> {
        fs::create_dir_all(&self.directory).map_err(|error| error.to_string())?;
        // Test programs that start at the same time wait for each other.
        let lock = File::create(self.directory.join("lock")).map_err(|error| error.to_string())?;
        lock.lock().map_err(|error| error.to_string())?;
        if is_root() {
            run(Command::new("chown").arg(USER).arg(&self.directory))?;
        }
        let data = self.directory.join("data");
        if !data.join("PG_VERSION").exists() {
            let _ = fs::remove_dir_all(&data);
            let initdb = ["-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "-D"];
            run(program("initdb")?.args(initdb).arg(&data).stdout(Stdio::null()))?;
        }
        Ok(lock)
    }

    /// Stops the server: `fast` ends sessions in order, `immediate` ends them as a crash would.
    pub(crate) fn stop(&self, mode: &str) -> Result<(), String> {
        if self.is_running()? {
            run(program("pg_ctl")?.args(["stop", "-w", "-s", "-m", mode, "-D"]).arg(self.directory.join("data")))?;
        }
        Ok(())
    }

    /// Deletes the directory of a stopped cluster.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }

    fn is_running(&self) -> Result<bool, String> {
        let mut status = program("pg_ctl")?;
        status.args(["status", "-s", "-D"]).arg(self.directory.join("data")).stdout(Stdio::null());
        Ok(status.status().map_err(|error| error.to_string())?.success())
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener.and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

/// Whether a socket path in the directory is short enough, and the Postgres user may enter the directory.
fn is_habitable(directory: &Path) -> bool {
    // `sockaddr_un` holds 108 bytes, including the name of the socket.
    const LONGEST: usize = 80;
    if directory.as_os_str().len() > LONGEST || fs::create_dir_all(directory).is_err() {
        return false;
    }
    let mut look = Command::new("runuser");
    look.args(["-u", USER, "--", "test", "-x"]).arg(directory).current_dir("/").stderr(Stdio::null());
    !is_root() || look.status().is_ok_and(|status| status.success())
}

/// Whether the Postgres programs are installed.
pub(crate) fn is_installed() -> bool {
    binaries().is_some()
}

/// The newest installed version. Debian keeps the programs in a directory per version, outside of PATH.
fn binaries() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut versions: Vec<_> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    versions.retain(|path| path.join("pg_ctl").exists());
    versions.sort();
    versions.pop()
}

fn program(name: &str) -> Result<Command, String> {
    let path = binaries().map_or_else(|| PathBuf::from(name), |path| path.join(name));
    Ok(as_owner(path))
}

/// A command that runs as the owner of clusters.
pub(crate) fn as_owner(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    // A working directory that the user may not enter would cause a warning for every command.
    command.args(["-u", USER, "--"]).arg(program).current_dir("/");
    command
}

/// `/proc/self` belongs to the effective user.
fn is_root() -> bool {
    fs::metadata(Path::new("/proc/self")).is_ok_and(|itself| itself.uid() == 0)
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
