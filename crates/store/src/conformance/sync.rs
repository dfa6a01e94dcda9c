//! Checks with a trace of system calls that a sync happens before each acknowledgement.
//!
//! Killing a process can't reveal a missing sync; the trace does. Before the child of `crash` acknowledges a batch,
//! every write to the data file must be followed by a completed `fdatasync` or `fsync`, or go through a descriptor that
//! was opened with `O_DSYNC` or `O_SYNC`.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use super::crash::{ACKNOWLEDGEMENT, child};

/// The system calls that [`judge`] needs.
const TRACED: &str =
    "trace=open,openat,close,dup,dup2,dup3,fcntl,mmap,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync";

/// The findings of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Number of acknowledged batches.
    pub acknowledgements: usize,
    /// Number of writes to the data file.
    pub writes: usize,
    /// Number of completed syncs of the data file.
    pub syncs: usize,
    /// Descriptions of acknowledgements that precede the sync of a write.
    pub problems: Vec<String>,
}

/// Runs the crash test `test` as a child under `strace`, for `count` batches, and judges its calls on `data_file`.
///
/// `None`: `strace` is not installed or not permitted to trace.
pub fn trace(test: &str, place: &str, data_file: &str, count: u64) -> Option<Trace> {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let child = child(test, place, count);
    let mut strace = Command::new("strace");
    strace
        .args(["-f", "-qq", "-s", "64", "-e", TRACED, "-o"])
        .arg(&log)
        .arg(child.get_program())
        .args(child.get_args());
    strace.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().ok()?;
    let log = std::fs::read_to_string(log).ok().filter(|log| !log.is_empty())?;
    Some(judge(&log, data_file))
}

/// Judges a log of `strace -f` by the calls on the file with this name.
pub fn judge(log: &str, data_file: &str) -> Trace {
    let mut descriptors: BTreeMap<i64, Descriptor> = BTreeMap::new();
    let (mut writes, mut syncs, mut acknowledgements, mut problems) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for call in calls(log) {
        let known = call.descriptor().and_then(|number| descriptors.get(&number).copied());
        match call.name() {
            "open" | "openat" if call.result.is_some_and(|result| result >= 0) && call.opens(data_file) => {
                let syncs_itself = call.text.contains("O_DSYNC") || call.text.contains("O_SYNC");
                descriptors.insert(call.result.unwrap_or_default(), Descriptor { syncs_itself });
            }
            "dup" | "dup2" | "dup3" | "fcntl" if call.copies() => {
                descriptors.extend(call.result.zip(known));
            }
            "close" => drop(call.descriptor().map(|number| descriptors.remove(&number))),
            "mmap" if call.maps_for_writing(&descriptors) => {
                problems.push(format!("line {}: written through memory, which no trace shows", call.start + 1));
            }
            "write" if call.is_acknowledgement() => acknowledgements.push(call),
            name if name.contains("write") => writes.extend(known.map(|descriptor| (call, descriptor))),
            "fsync" | "fdatasync" if known.is_some() && call.result == Some(0) => syncs.push(call),
            _ => {}
        }
    }

    for acknowledgement in &acknowledgements {
        let done = |call: &Call| call.end.is_some_and(|end| end < acknowledgement.start);
        let is_safe = |write: &Call, descriptor: &Descriptor| {
            let is_followed = |sync: &Call| done(sync) && write.end.is_some_and(|end| end < sync.start);
            done(write) && (descriptor.syncs_itself || syncs.iter().any(is_followed))
        };
        let before = writes.iter().filter(|(write, _)| write.start < acknowledgement.start);
        if let Some((write, _)) = before.clone().find(|(write, descriptor)| !is_safe(write, descriptor)) {
            let (acknowledged, written) = (acknowledgement.start + 1, write.start + 1);
            problems.push(format!("line {acknowledged} acknowledges what line {written} wrote and nothing synced"));
        }
    }
    Trace { acknowledgements: acknowledgements.len(), writes: writes.len(), syncs: syncs.len(), problems }
}

impl Trace {
    /// Fails unless the trace shows a sync before every acknowledgement.
    pub fn assert_synced(&self) {
        assert!(self.acknowledgements > 0 && self.writes > 0, "the trace shows nothing: {self:?}");
        assert!(self.problems.is_empty(), "{self:#?}");
    }
}

/// A descriptor of the data file.
#[derive(Clone, Copy)]
struct Descriptor {
    /// Opened with `O_DSYNC` or `O_SYNC`: its writes are durable when they return.
    syncs_itself: bool,
}

/// A system call.
struct Call {
    /// The call as one line, without its process id.
    text: String,
    /// The log line on which the call begins.
    start: usize,
    /// The log line on which the call returns. `None`: it never does.
    end: Option<usize>,
    /// The return value.
    result: Option<i64>,
}

/// The calls of a log in the order of their returns; calls that never return come last.
fn calls(log: &str) -> Vec<Call> {
    let mut unfinished: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    let mut calls = Vec::new();
    for (line, text) in log.lines().enumerate() {
        let (process, text) = text.split_once(' ').unwrap_or(("", text));
        let text = text.trim_start();
        if let Some(begun) = text.strip_suffix("<unfinished ...>") {
            unfinished.insert(process, (line, begun.trim_end().to_owned()));
        } else if let Some((_, rest)) = text.strip_prefix("<... ").and_then(|text| text.split_once(" resumed>")) {
            if let Some((start, begun)) = unfinished.remove(process) {
                calls.push(Call::new(begun + rest, start, Some(line)));
            }
        } else {
            calls.push(Call::new(text.to_owned(), line, Some(line)));
        }
    }
    calls.extend(unfinished.into_values().map(|(start, text)| Call::new(text, start, None)));
    calls
}

impl Call {
    fn new(text: String, start: usize, end: Option<usize>) -> Self {
        let result = text.rsplit_once(" = ").and_then(|(_, result)| result.split(' ').next()?.parse().ok());
        Self { text, start, end, result }
    }

    fn name(&self) -> &str {
        self.text.split('(').next().unwrap_or_default()
    }

    /// The file descriptor: the number at the start of the first argument.
    fn descriptor(&self) -> Option<i64> {
        let arguments = self.text.split_once('(')?.1;
        let end = arguments.find(|character: char| !character.is_ascii_digit()).unwrap_or(arguments.len());
        arguments[..end].parse().ok()
    }

    fn opens(&self, data_file: &str) -> bool {
        let path = self.text.split('"').nth(1).unwrap_or_default();
        Path::new(path).file_name().is_some_and(|name| name == data_file)
    }

    fn copies(&self) -> bool {
        self.result.is_some_and(|result| result >= 0) && (self.name() != "fcntl" || self.text.contains("F_DUPFD"))
    }

    fn maps_for_writing(&self, descriptors: &BTreeMap<i64, Descriptor>) -> bool {
        let descriptor = self.text.split(", ").nth(4).and_then(|number| number.parse().ok());
        self.text.contains("PROT_WRITE")
            && self.text.contains("MAP_SHARED")
            && descriptor.is_some_and(|number: i64| descriptors.contains_key(&number))
    }

    fn is_acknowledgement(&self) -> bool {
        self.descriptor() == Some(1) && self.text.contains(ACKNOWLEDGEMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: &str = r#"7 openat(AT_FDCWD, "store/data.mdb", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 3
7 openat(AT_FDCWD, "store/data.mdb", O_RDWR|O_DSYNC|O_CLOEXEC) = 4
7 openat(AT_FDCWD, "store/lock.mdb", O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 5
7 mmap(NULL, 1048576, PROT_READ, MAP_SHARED, 3, 0) = 0x7f0000000000
"#;

    fn problems(rest: &str) -> Vec<String> {
        judge(&format!("{OPENED}{rest}"), "data.mdb").problems
    }

    #[test]
    fn acknowledgement_is_safe_only_after_a_completed_sync_of_every_write() {
        for (why, rest, is_safe) in [
            (
                "written, synced, acknowledged",
                "7 pwrite64(3, \"x\"..., 4096, 0) = 4096\n7 fdatasync(3) = 0\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                true,
            ),
            (
                "the same from two threads",
                "8 pwritev(3, [{iov_base=\"x\", iov_len=1}], 1, 0) = 1\n8 fsync(3) = 0\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                true,
            ),
            ("no sync", "7 pwrite64(3, \"x\"..., 4096, 0) = 4096\n7 write(1, \"acknowledged 0\\n\", 15) = 15", false),
            (
                "the sync comes after",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 write(1, \"acknowledged 0\\n\", 15) = 15\n7 fdatasync(3) = 0",
                false,
            ),
            (
                "the sync came before",
                "7 fdatasync(3) = 0\n7 pwrite64(3, \"x\", 1, 0) = 1\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                false,
            ),
            (
                "the sync failed",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 fdatasync(3) = -1 EIO (Input/output error)\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                false,
            ),
            (
                "another file was synced",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 fdatasync(5) = 0\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                false,
            ),
            (
                "another file was written",
                "7 pwrite64(5, \"x\", 1, 0) = 1\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                true,
            ),
            (
                "a descriptor that syncs by itself",
                "7 pwrite64(4, \"meta\", 4, 0) = 4\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                true,
            ),
            (
                "one that syncs by itself syncs nothing else",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 pwrite64(4, \"meta\", 4, 0) = 4\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                false,
            ),
            (
                "a copy of the descriptor",
                "7 fcntl(3, F_DUPFD_CLOEXEC, 0) = 6\n7 write(6, \"x\", 1) = 1\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                false,
            ),
            (
                "a number that now means another file",
                "7 close(3) = 0\n7 openat(AT_FDCWD, \"other\", O_RDWR) = 3\n7 write(3, \"x\", 1) = 1\n7 write(1, \"acknowledged 0\\n\", 15) = 15",
                true,
            ),
            (
                "the second batch is not synced",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 fdatasync(3) = 0\n7 write(1, \"acknowledged 0\\n\", 15) = 15\n7 pwrite64(3, \"y\", 1, 0) = 1\n7 write(1, \"acknowledged 1\\n\", 15) = 15",
                false,
            ),
            (
                "other words on the same descriptor",
                "7 pwrite64(3, \"x\", 1, 0) = 1\n7 write(1, \"running 1 test\\n\", 15) = 15",
                true,
            ),
            (
                "a mapping that can be written to",
                "7 mmap(NULL, 1048576, PROT_READ|PROT_WRITE, MAP_SHARED, 3, 0) = 0x7f0000000000",
                false,
            ),
        ] {
            assert_eq!(problems(rest).is_empty(), is_safe, "{why}: {:?}", problems(rest));
        }
    }

    #[test]
    fn unfinished_call_ends_on_the_line_that_resumes_it() {
        let acknowledged = "7 write(1, \"acknowledged 0\\n\", 15) = 15\n";
        for (why, lines, is_safe) in [
            (
                "a sync that is resumed in time",
                "8 pwrite64(3, \"x\", 1, 0 <unfinished ...>\n7 close(9) = 0\n8 <... pwrite64 resumed>) = 1\n8 fdatasync(3 <unfinished ...>\n8 <... fdatasync resumed>) = 0\n",
                true,
            ),
            (
                "a sync that began before the write ended",
                "8 pwrite64(3, \"x\", 1, 0 <unfinished ...>\n9 fdatasync(3 <unfinished ...>\n8 <... pwrite64 resumed>) = 1\n9 <... fdatasync resumed>) = 0\n",
                false,
            ),
            ("a sync that has not ended", "8 pwrite64(3, \"x\", 1, 0) = 1\n8 fdatasync(3 <unfinished ...>\n", false),
            ("a write that has not ended", "8 pwrite64(4, \"x\", 1, 0 <unfinished ...>\n", false),
        ] {
            assert_eq!(problems(&format!("{lines}{acknowledged}")).is_empty(), is_safe, "{why}");
        }
    }

    #[test]
    fn acknowledgements_writes_and_syncs_are_counted() {
        let log = "7 openat(AT_FDCWD, \"data.mdb\", O_RDWR) = 3\n7 write(3, \"x\", 1) = 1\n7 write(3, \"y\", 1) = 1\n7 fsync(3) = 0\n7 write(1, \"acknowledged 0\\n\", 15) = 15\n";
        let seen = judge(log, "data.mdb");
        assert_eq!(seen, Trace { acknowledgements: 1, writes: 2, syncs: 1, problems: Vec::new() });
        seen.assert_synced();
    }
}
