//! The counts that are kept in the repository, and how new ones compare with them.

use std::{collections::BTreeMap, fmt::Write};

use anyhow::{Context, ensure};

/// More than this part above what is kept fails.
const PER_CENT: u64 = 5;

const HEAD: &str = "\
# Instructions per operation, of the user's side only, as callgrind counts them. Written by `cargo xtask counts --keep`.
#
# They depend on the compiler (rust-toolchain.toml), on Cargo.lock, on the C library (these: glibc 2.36) and on the processor
# that valgrind shows to the program: it is the same on all that have AVX2, and has no AVX-512 and no SHA extensions. Keep
# them anew when one of these changes. They say nothing of caches, system calls and disks: `cargo xtask bench` measures those.
";

/// Instructions by operation, in the order in which they were counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts(Vec<(String, u64)>);

impl Counts {
    pub(super) fn add(&mut self, name: &str, instructions: u64) {
        self.0.push((name.to_owned(), instructions));
    }

    /// From the text of the file: a name and a count in each line.
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let read = |line: &str| {
            let (name, count) = line.split_once(char::is_whitespace)?;
            Some((name.to_owned(), count.trim().parse().ok()?))
        };
        let counts = lines.map(|line| read(line).with_context(|| format!("{line:?} is no name and count")));
        let counts = Self(counts.collect::<anyhow::Result<_>>()?);
        let names: BTreeMap<_, _> = counts.0.iter().map(|(name, count)| (name, count)).collect();
        ensure!(names.len() == counts.0.len(), "a name is there twice");
        Ok(counts)
    }

    /// The text of the file.
    pub(super) fn write(&self) -> String {
        let mut text = format!("{HEAD}\n");
        for (name, count) in &self.0 {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{name:<24} {count:>9}");
        }
        text
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, count)| *count)
    }
}

/// What is counted now beside what is kept.
pub(super) struct Compared<'a> {
    now: &'a Counts,
    kept: &'a Counts,
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    AsKept,
    Dearer,
    Cheaper,
    Absent,
    NotKept,
    NotCounted,
}

impl<'a> Compared<'a> {
    pub(super) fn new(now: &'a Counts, kept: &'a Counts) -> Self {
        Self { now, kept }
    }

    /// Everything that is counted now.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:<24} {:>12} {:>12} {:>7}\n", "instructions per", "now", "kept", "ratio");
        for (name, now) in &self.now.0 {
            let _ = match self.kept.get(name) {
                Some(kept) => writeln!(table, "{name:<24} {now:>12} {kept:>12} {:>7.3}", *now as f64 / kept as f64),
                None => writeln!(table, "{name:<24} {now:>12} {:>12} {:>7}", "-", "-"),
            };
        }
        table
    }

    /// What somebody should know.
    pub(super) fn remarks(&self) -> Vec<String> {
        let remark = |(name, standing)| match standing {
            Standing::AsKept => None,
            Standing::Dearer => Some(format!("{name} costs more than {PER_CENT} % more than it did.")),
            Standing::Cheaper => Some(format!("{name} costs more than {PER_CENT} % less than it did: keep that.")),
            Standing::Absent => Some(format!("{name} costs less than half of what it did: is all of it counted?")),
            Standing::NotKept => Some(format!("{name} is new: nothing is kept for it.")),
            Standing::NotCounted => Some(format!("{name} is kept, but there is no such operation.")),
        };
        self.standings().filter_map(remark).collect()
    }

    /// Whether something became dearer, or can't be compared. What became somewhat cheaper is welcome.
    pub(super) fn fails(&self) -> bool {
        self.standings().any(|(_, standing)| !matches!(standing, Standing::AsKept | Standing::Cheaper))
    }

    fn standings(&self) -> impl Iterator<Item = (&'a str, Standing)> {
        let kept = self.kept;
        let counted = self.now.0.iter().map(|(name, now)| (name.as_str(), standing(*now, kept.get(name))));
        let now = self.now;
        let gone = self.kept.0.iter().filter(|(name, _)| now.get(name).is_none());
        counted.chain(gone.map(|(name, _)| (name.as_str(), Standing::NotCounted)))
    }
}

fn standing(now: u64, kept: Option<u64>) -> Standing {
    let Some(kept) = kept else { return Standing::NotKept };
    if now * 100 > kept * (100 + PER_CENT) {
        Standing::Dearer
    } else if now * 2 < kept {
        Standing::Absent
    } else if now * 100 < kept * (100 - PER_CENT) {
        Standing::Cheaper
    } else {
        Standing::AsKept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[(&str, u64)]) -> Counts {
        Counts(all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect())
    }

    #[test]
    fn more_than_five_per_cent_up_fails_and_down_is_said() {
        for (now, kept, expected) in [
            (1_050, Some(1_000), Standing::AsKept),
            (1_051, Some(1_000), Standing::Dearer),
            (950, Some(1_000), Standing::AsKept),
            (949, Some(1_000), Standing::Cheaper),
            (499, Some(1_000), Standing::Absent),
            (1, None, Standing::NotKept),
        ] {
            assert_eq!(standing(now, kept), expected, "{now} against {kept:?}");
        }
        let kept = counts(&[("parse", 1_000), ("decide", 1_000)]);
        for (now, fails, remarks) in [
            (vec![("parse", 1_000), ("decide", 1_040)], false, 0),
            (vec![("parse", 1_000), ("decide", 1_060)], true, 1),
            (vec![("parse", 500), ("decide", 1_000)], false, 1),
            (vec![("parse", 500), ("decide", 2_000)], true, 2),
            (vec![("parse", 5), ("decide", 1_000)], true, 1),
            (vec![("parse", 1_000)], true, 1),
            (vec![("parse", 1_000), ("decide", 1_000), ("match", 1)], true, 1),
        ] {
            let counted = counts(&now);
            let compared = Compared::new(&counted, &kept);
            assert_eq!((compared.fails(), compared.remarks().len()), (fails, remarks), "{now:?}");
        }
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        let kept = counts(&[("parse", 12_345), ("decide", 1)]);
        assert_eq!(Counts::read(&kept.write()).unwrap(), kept);
        for broken in ["parse", "parse many", "parse 1 2", "parse 1\nparse 2"] {
            assert!(Counts::read(broken).is_err(), "{broken}");
        }
    }
}
