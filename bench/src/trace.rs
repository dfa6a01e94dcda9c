//! Whether acknowledged events were durable: judged by the system calls that a relay makes between an event and its OK,
//! one event in flight. The relay itself is not asked.

use std::{collections::HashMap, path::Path};

/// The system calls that are traced.
const TRACED: &str = "trace=open,openat,close,read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,pwritev,\
                      pwritev2,fsync,fdatasync,msync,sync_file_range,syncfs";

/// The result of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durability {
    /// Events that came in and were acknowledged.
    pub(crate) acknowledged: usize,
    /// Of these, those before whose OK a sync began and ended.
    pub(crate) synced: usize,
    /// Syncs meanwhile.
    pub(crate) syncs: usize,
}

/// The program, with its arguments, that runs a relay and writes its system calls to `log`.
pub(crate) fn tracer(log: &Path) -> [String; 9] {
    ["strace", "-f", "-qq", "-s", "96", "-e", TRACED, "-o", &log.to_string_lossy()].map(str::to_owned)
}

/// Reads the output of `strace -f`.
pub(crate) fn judge(log: &str) -> Durability {
    let mut seen = Durability::default();
    // Where a call began that has not ended, by thread.
    let mut begun: HashMap<&str, (usize, &str)> = HashMap::new();
    let mut syncing_files: Vec<&str> = Vec::new();
    // Where the event was received that is waiting for its OK, and whether a sync has followed.
    let mut waiting: Option<(usize, bool)> = None;
    for (line, text) in log.lines().enumerate() {
        let (thread, text) = text.split_once(' ').unwrap_or(("", text));
        let text = text.trim_start();
        let (start, call) = match text.starts_with("<... ") {
            true => begun.remove(thread).unwrap_or((line, "")),
            false => (line, text),
        };
        let (name, arguments) = call.split_once('(').unwrap_or_default();
        let descriptor = arguments.split([',', ')', ' ']).next().unwrap_or_default();
        if matches!(name, "write" | "writev" | "sendto" | "sendmsg")
            && call.contains(r#"[\"OK\","#)
            && start == line
            && let Some((_, is_synced)) = waiting.take()
        {
            seen.acknowledged += 1;
            seen.synced += usize::from(is_synced);
        }
        if text.ends_with("<unfinished ...>") {
            begun.insert(thread, (line, text));
            continue;
        }
        let result = text.rsplit_once(" = ").map_or("", |(_, result)| result.split(' ').next().unwrap_or_default());
        match name {
            "read" | "readv" | "recvfrom" | "recvmsg" if text.contains(r#"[\"EVENT\","#) => {
                waiting = Some((line, false))
            }
            "open" | "openat" if call.contains("O_DSYNC") || call.contains("O_SYNC") => syncing_files.push(result),
            "close" => syncing_files.retain(|open| *open != descriptor),
            _ if is_sync(name, call, result) || (name.contains("write") && syncing_files.contains(&descriptor)) => {
                seen.syncs += usize::from(waiting.is_some() || seen.acknowledged > 0);
                if let Some((received, is_synced)) = &mut waiting {
                    *is_synced |= start > *received;
                }
            }
            _ => {}
        }
    }
    seen
}

/// Whether a call has made something durable.
fn is_sync(name: &str, call: &str, result: &str) -> bool {
    let is_one = match name {
        "fsync" | "fdatasync" | "syncfs" => true,
        "msync" => call.contains("MS_SYNC"),
        "sync_file_range" => call.contains("SYNC_FILE_RANGE_WAIT_AFTER"),
        _ => false,
    };
    is_one && result == "0"
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str =
        r#"7 recvfrom(9, "\201\376\3\30\0\0\0\0[\"EVENT\",{\"id\":\"ab\"..., 8192, 0, NULL, NULL) = 900"#;
    const OK: &str = r#"7 sendto(9, "\201J[\"OK\",\"ab\",true,\"\"]", 76, MSG_NOSIGNAL, NULL, 0) = 76"#;

    #[test]
    fn a_sync_counts_if_it_lies_between_an_event_and_its_ok() {
        for (why, between, after, synced) in [
            ("none", "", "", 0),
            ("one", "8 fdatasync(5) = 0", "", 1),
            ("of a mapping", "8 msync(0x7f00, 4096, MS_SYNC) = 0", "", 1),
            ("of a mapping, some day", "8 msync(0x7f00, 4096, MS_ASYNC) = 0", "", 0),
            ("one that failed", "8 fdatasync(5) = -1 EIO (Input/output error)", "", 0),
            ("too late", "", "8 fdatasync(5) = 0", 0),
            ("one that has not ended", "8 fsync(5 <unfinished ...>", "8 <... fsync resumed>) = 0", 0),
            ("one that took a while", "8 fsync(5 <unfinished ...>\n8 <... fsync resumed>) = 0", "", 1),
            ("by a file that syncs by itself", "8 pwrite64(4, \"x\"..., 4096, 0) = 4096", "", 1),
            ("by another file", "8 pwrite64(6, \"x\"..., 4096, 0) = 4096", "", 0),
        ] {
            let open = r#"7 openat(AT_FDCWD, "data", O_RDWR|O_DSYNC|O_CLOEXEC) = 4"#;
            let log = [open, EVENT, between, OK, after, EVENT, between, OK].join("\n");
            let seen = judge(&log);
            // A sync for the first event does not count for the second.
            assert_eq!((seen.acknowledged, seen.synced), (2, 2 * synced), "{why}");
        }
    }

    #[test]
    fn resumed_reads_and_answers_in_parts_are_recognised() {
        let log = r#"7 read(9 <unfinished ...>
8 fsync(5 <unfinished ...>
7 <... read resumed>"\201\376[\"EVENT\",{\"id\"", 4096) = 900
8 <... fsync resumed>) = 0
7 writev(9, [{iov_base="\201J", iov_len=2}, {iov_base="[\"OK\",\"ab\",true]", iov_len=74}], 2 <unfinished ...>
7 <... writev resumed>) = 76"#;
        assert_eq!(judge(log), Durability { acknowledged: 1, synced: 0, syncs: 1 }, "the sync began before the event");
    }
}
