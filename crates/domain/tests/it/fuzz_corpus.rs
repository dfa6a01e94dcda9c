//! Runs the fuzzer's properties on its committed corpus, so that they are checked without a fuzzer too.

use std::{fs, path::PathBuf};

#[path = "../../../../fuzz/properties/event.rs"]
mod event;
#[path = "../../../../fuzz/properties/filter.rs"]
mod filter;

fn replay(corpus: &str, check: impl Fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 12, "{} files in {}", files.len(), folder.display());
    for file in files {
        // Shown when the check panics.
        eprintln!("{}", file.display());
        check(&fs::read(file).unwrap());
    }
}

#[test]
fn the_property_of_events_holds_for_the_corpus() {
    replay("event", event::check);
}

#[test]
fn the_property_of_filters_holds_for_the_corpus() {
    replay("filter", filter::check);
}
