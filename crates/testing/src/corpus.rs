//! The kept inputs of the fuzz targets (`fuzz/corpus`): tests replay them without a fuzzer.

use std::{env, fs, path::PathBuf};

use crate::long::scaled;

/// Inputs that are made of the kept ones by chance.
const MUTATIONS: u32 = 200;
const MUTATION_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// Set to 1: [`seed`] writes its file.
const WRITE: &str = "KUKURI_TEST_WRITE_CORPUS";

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Runs a target's property on every kept input, and on some that are made of them by chance. Panics if none is kept.
pub fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = folder(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "nothing in {}", folder.display());
    let kept: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (file, bytes) in files.iter().zip(&kept) {
        checked(&file.display().to_string(), bytes, &check);
    }
    let mut random = Random(MUTATION_SEED);
    for _ in 0..scaled(MUTATIONS) {
        let number = random.below(kept.len());
        let other = random.below(kept.len());
        checked(
            &format!("a mutation of {}", files[number].display()),
            &random.mutate(&kept[number], &kept[other]),
            &check,
        );
    }
}

/// Shows the input if its check panics.
fn checked(name: &str, bytes: &[u8], check: impl Fn(&[u8])) {
    struct Shown<'i>(&'i str, &'i [u8]);
    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("{}: {}", self.0, self.1.escape_ascii());
            }
        }
    }
    let _shown = Shown(name, bytes);
    check(bytes);
}

/// A stream of random numbers that is the same in each run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// A few changes of an input, some with pieces of another.
    fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(9)).min(bytes.len());
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => bytes[at..end].fill([0, 1, 0x7f, 0x80, 0xff, b'"', b',', b' '][self.below(8)]),
                3 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= 1 << self.below(8)),
                4 => bytes.splice(at..at, other[self.below(other.len() + 1)..].iter().take(40).copied()).for_each(drop),
                _ => bytes.splice(at..at, bytes[at..end].to_vec()).for_each(drop),
            }
        }
        bytes
    }
}

/// A kept input that code writes, because its bytes have a layout. Panics if the file differs: then the layout has changed,
/// and `KUKURI_TEST_WRITE_CORPUS=1` writes the file anew.
pub fn seed(target: &str, name: &str, bytes: &[u8]) {
    let file = folder(target).join(name);
    if env::var_os(WRITE).is_some_and(|value| value == "1") {
        fs::create_dir_all(folder(target)).unwrap();
        fs::write(&file, bytes).unwrap();
    }
    let kept = fs::read(&file).unwrap_or_default();
    assert!(kept == bytes, "{} differs; {WRITE}=1 writes it anew", file.display());
}
