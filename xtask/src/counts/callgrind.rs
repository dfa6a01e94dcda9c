//! Running a program under callgrind and reading what it counted.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

/// Counting begins and ends with these functions: the program's own mark, and the first of every thread that it starts, so
/// that work which a store hands to a thread counts too.
const COUNTED: [&str; 2] = ["kukuri_counts::counted*", "*::thread_start*"];

/// The C library chooses by the processor how it copies and compares. Here it takes what every x86-64 processor has; and not
/// `rep movsb`, of which callgrind counts every byte.
const PLAIN_LIBC: &str = "glibc.cpu.hwcaps=-AVX_Fast_Unaligned_Load,-AVX2,-ERMS,-FSRM,-SSSE3,-SSE4_2";

/// A program that does something some times and says how often.
pub(super) struct Callgrind<'a> {
    program: &'a Path,
    out: PathBuf,
}

impl<'a> Callgrind<'a> {
    /// What is counted is written into the directory for a while.
    pub(super) fn new(program: &'a Path, directory: &Path) -> Self {
        Self { program, out: directory.join("callgrind.out") }
    }

    /// Instructions for each time.
    pub(super) fn count<'s>(&self, arguments: impl IntoIterator<Item = &'s OsStr>) -> anyhow::Result<u64> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--tool=callgrind"]);
        valgrind.args(COUNTED.map(|function| format!("--toggle-collect={function}")));
        valgrind.arg(format!("--callgrind-out-file={}", self.out.display()));
        valgrind.arg(self.program).args(arguments).env("GLIBC_TUNABLES", PLAIN_LIBC);
        let times: u64 = super::output(&mut valgrind)?.trim().parse().context("the program says how often")?;
        let instructions = total(&fs::read_to_string(&self.out)?)?;
        ensure!(times > 0 && instructions > 0, "callgrind found none of {COUNTED:?}: nothing was counted");
        Ok(instructions / times)
    }
}

/// All instructions in callgrind's output.
fn total(output: &str) -> anyhow::Result<u64> {
    ensure!(output.lines().any(|line| line == "events: Ir"), "callgrind counts instructions, and nothing else");
    let mut totals = output.lines().filter_map(|line| line.strip_prefix("totals: "));
    let total = totals.next().context("callgrind says how much it counted")?;
    ensure!(totals.next().is_none(), "callgrind writes one part");
    total.trim().parse().with_context(|| format!("{total:?} is no count"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "# callgrind format
version: 1
creator: callgrind-3.19.0
pid: 4711
cmd:  kukuri-counts run hash-id /tmp/store
part: 1

desc: Trigger: Program termination

positions: line
events: Ir
summary: 36500

fl=(1) json.rs
fn=(1) kukuri_domain::json
12 36500

totals: 36500
";

    #[test]
    fn what_callgrind_counted_is_read() {
        assert_eq!(total(OUTPUT).unwrap(), 36_500);
    }

    #[test]
    fn what_callgrind_does_not_say_is_not_guessed() {
        for (broken, what) in [
            (OUTPUT.replace("totals: 36500\n", ""), "an output that was cut"),
            (OUTPUT.replace("totals: 36500", "totals: 365 00"), "more than one count"),
            (OUTPUT.replace("events: Ir", "events: Ir Dr Dw"), "other events than asked for"),
            (format!("{OUTPUT}{OUTPUT}"), "two parts"),
        ] {
            assert!(total(&broken).is_err(), "{what}");
        }
    }
}
