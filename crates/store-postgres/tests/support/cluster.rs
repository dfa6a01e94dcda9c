//! A private Postgres, for tests: made where it is told to, reached by a socket there, and nobody else's.

use std::{
    ffi::OsStr,
    fs::{self, File},
    hash::{Hash, Hasher},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Nobody may run Postgres as root; Debian's package brings this user along.
const USER: &str = "postgres";
/// As on a node: what is committed is on the disk.
const SETTINGS: &str = "-c listen_addresses='' -c shared_buffers=256MB -c max_connections=200 -c max_wal_size=2GB \
     -c fsync=on -c synchronous_commit=on -c log_min_duration_statement=1000";

/// A cluster in a directory.
pub(crate) struct Cluster {
    directory: PathBuf,
    /// What it is told besides.
    settings: String,
}

impl Cluster {
    /// In this directory, or in one of its own under the system's temporary files, if Postgres can't live in this.
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

    /// Starts it with these settings, each as `-c name=value`.
    pub(crate) fn with(self, settings: impl Into<String>) -> Self {
        Self { settings: settings.into(), ..self }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What a client connects to.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{USER}@localhost/postgres?host={}", self.directory.display())
    }

    /// Makes it if there is none, and starts it unless it runs.
    pub(crate) fn start(&self) -> Result<(), String> {
        let _lock = self.make()?;
        if self.is_running()? {
            return Ok(());
        }
        let (directory, more) = (self.directory.display(), &self.settings);
        let settings = format!("{SETTINGS} -c unix_socket_directories='{directory}' {more}");
        let (log, data) = (self.directory.join("log"), self.directory.join("data"));
        run(program("pg_ctl")?.args(["start", "-w", "-s", "-o", &settings, "-l"]).arg(log).arg("-D").arg(data))
    }

    /// Makes it if there is none. Nobody else starts it while the file is open.
    pub(crate) fn make(&self) -> Result<File, String> {
        fs::create_dir_all(&self.directory).map_err(|error| error.to_string())?;
        // Test programs that start together wait for each other.
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

    /// Stops it: `fast` ends sessions in order, `immediate` as a crash would.
    pub(crate) fn stop(&self, mode: &str) -> Result<(), String> {
        if self.is_running()? {
            run(program("pg_ctl")?.args(["stop", "-w", "-s", "-m", mode, "-D"]).arg(self.directory.join("data")))?;
        }
        Ok(())
    }

    /// Takes it away with all it holds.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }

    fn is_running(&self) -> Result<bool, String> {
        let mut status = program("pg_ctl")?;
        status.args(["status", "-s", "-D"]).arg(self.directory.join("data")).stdout(Stdio::null());
        Ok(status.status().map_err(|error| error.to_string())?.success())
    }
}

/// Whether the path of a socket there is short enough, and the user that runs Postgres may enter.
fn is_habitable(directory: &Path) -> bool {
    // The system's limit is 108 bytes, for the path of the socket itself.
    const LONGEST: usize = 80;
    if directory.as_os_str().len() > LONGEST || fs::create_dir_all(directory).is_err() {
        return false;
    }
    let mut look = Command::new("runuser");
    look.args(["-u", USER, "--", "test", "-x"]).arg(directory).current_dir("/").stderr(Stdio::null());
    !is_root() || look.status().is_ok_and(|status| status.success())
}

/// Whether the programs are installed.
pub(crate) fn is_installed() -> bool {
    binaries().is_some()
}

/// Debian keeps them by version, outside of the path.
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

/// A program that is run by the user that clusters belong to.
pub(crate) fn as_owner(program: impl AsRef<OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    // A directory it may not enter would be a warning for every command.
    command.args(["-u", USER, "--"]).arg(program).current_dir("/");
    command
}

/// A process's own entry belongs to whom it runs as.
fn is_root() -> bool {
    fs::metadata(Path::new("/proc/self")).is_ok_and(|itself| itself.uid() == 0)
}

pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}
