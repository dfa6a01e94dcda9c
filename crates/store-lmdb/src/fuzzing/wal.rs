//! Any bytes of a write-ahead log. The first byte says how the others are taken: as a file; as records whose digests are
//! made right; or as such records in the log of a store that is opened.

use std::{fs, path::Path, sync::LazyLock};

use kukuri_domain::{Filter, Viewer};
use kukuri_store::{
    Events as _, Query,
    conformance::build::{NOW, admitted, note},
};
use tempfile::TempDir;

use super::{block_on, directory, small};
use crate::{
    LmdbStore,
    open::DATA_FILE,
    wal::log::{self, DIGEST_BYTES, FILE, HEADER_BYTES, LogRecord, Recovered},
};

/// The transaction whose records are looked for.
const TRANSACTION: u64 = 0x0102_0304_0506_0708;

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    match mode % 4 {
        0 | 1 => check_file(rest),
        2 => check_records(rest),
        _ => check_opening(rest),
    }
}

/// A file is read or refused. No record is read whose digest is wrong.
fn check_file(file: &[u8]) {
    let Ok(recovered) = read(file) else { return };
    let intact = (0..file.len()).filter(|at| is_intact(&file[*at..])).count();
    let Recovered { records, behind_damage } = &recovered;
    assert!(records.len() + behind_damage.len() <= intact, "{} intact records", intact);
    for event in records.iter().chain(behind_damage).flat_map(|record| &record.events) {
        assert_eq!(event.event().to_json(), event.json());
    }
}

fn read(file: &[u8]) -> crate::error::Result<Recovered> {
    log::read_bytes(Path::new(FILE), file, TRANSACTION)
}

/// Whether a record of the transaction begins here: by the layout of the file alone.
fn is_intact(file: &[u8]) -> bool {
    let Some((head, rest)) = file.split_at_checked(HEADER_BYTES) else { return false };
    let length = usize::from(head[1]) << 16 | usize::from(head[2]) << 8 | usize::from(head[3]);
    let Some(body) = rest.get(..length).filter(|body| body.starts_with(&TRANSACTION.to_be_bytes())) else {
        return false;
    };
    let mut hash = blake3::Hasher::new();
    if head[0] > 0 {
        hash.update(&head[..1]);
    }
    head[4..] == hash.update(body).finalize().as_bytes()[..DIGEST_BYTES]
}

/// Any record with a right digest is read or refused, and what is read is written and read again as the same.
fn check_records(rest: &[u8]) {
    let Ok(recovered) = read(&sealed(rest, TRANSACTION)) else { return };
    assert!(recovered.behind_damage.is_empty(), "they follow each other");
    let records = recovered.records;
    let written: Vec<u8> =
        (0..).zip(&records).flat_map(|(number, record)| log::pack(TRANSACTION, number, record)).collect();
    let again = read(&written).expect("what this store writes, it reads");
    assert!(again.behind_damage.is_empty());
    assert_eq!(again.records.len(), records.len());
    for (again, record) in again.records.iter().zip(&records) {
        assert_eq!((again.now, again.clock), (record.now, Some(record.clock.unwrap_or_default())));
        assert_eq!(contents(again), contents(record));
    }
}

type Content<'r> = (&'r kukuri_domain::Event, &'r [kukuri_domain::TopicId], kukuri_domain::Source, bool);

fn contents(record: &LogRecord) -> Vec<Content<'_>> {
    record.events.iter().map(|event| (event.event(), event.topics(), event.source(), event.vanishes())).collect()
}

/// A store with such a log is opened or refused, and answers.
fn check_opening(rest: &[u8]) {
    /// A store that was closed, and the number of its next transaction.
    static CLOSED: LazyLock<(TempDir, u64)> = LazyLock::new(|| {
        let closed = directory();
        let store = LmdbStore::open(closed.path(), small()).expect("a new store");
        block_on(store.ingest(vec![admitted(&note("stored").build())], NOW)).expect("a batch");
        drop(store);
        let store = LmdbStore::open(closed.path(), small()).expect("the same store");
        let next = store.transactions() + 1;
        drop(store);
        (closed, next)
    });
    let (closed, next) = &*CLOSED;
    let crashed = directory();
    fs::copy(closed.path().join(DATA_FILE), crashed.path().join(DATA_FILE)).expect("a copy");
    fs::write(crashed.path().join(FILE), sealed(rest, *next)).expect("a log");
    let Ok(store) = LmdbStore::open(crashed.path(), small()) else { return };
    let all = Query::of(Filter::new(), Viewer::Node, NOW);
    let _ = block_on(store.query(&all));
}

/// Records of a transaction with right digests. Each begins with its layout and its length, in two bytes.
fn sealed(mut rest: &[u8], transaction: u64) -> Vec<u8> {
    let (mut file, mut number) = (Vec::new(), 0u32);
    while let Some(([layout, high, low], after)) = rest.split_first_chunk() {
        let (content, after) = after.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(after.len()));
        let body = [&transaction.to_be_bytes()[..], &number.to_be_bytes(), content].concat();
        file.extend(log::seal(*layout, &body));
        number += 1;
        rest = after;
    }
    file
}

/// Logs as this store writes them.
#[cfg(test)]
pub(super) fn examples() -> Vec<(&'static str, Vec<u8>)> {
    use kukuri_domain::clock::Clock;
    use kukuri_store::conformance::build::{OTHER_TOPIC, deletion, vanish};

    let record = |events: Vec<kukuri_domain::Event>| LogRecord {
        events: events.iter().map(admitted).collect(),
        now: NOW,
        clock: Some(Clock { latest: NOW, last: NOW, held_since: None }),
    };
    let two = note("two").tag(["t", OTHER_TOPIC]).at(1).build();
    let records = [
        record(vec![note("one").build(), two.clone()]),
        record(vec![deletion().of(&two).at(2).build()]),
        record(vec![vanish().at(3).build()]),
    ];
    let packed: Vec<Vec<u8>> =
        (0..).zip(&records).map(|(number, record)| log::pack(TRANSACTION, number, record)).collect();
    let file = packed.concat();
    let mut damaged = file.clone();
    damaged[HEADER_BYTES + 40] ^= 1;
    // Without header, transaction and number, which are put before it again.
    let unsealed: Vec<u8> = packed
        .iter()
        .flat_map(|record| {
            let content = &record[HEADER_BYTES + 12..];
            [&[1][..], &(content.len() as u16).to_be_bytes(), content].concat()
        })
        .collect();
    let with_mode = |mode: u8, bytes: &[u8]| [&[mode], bytes].concat();
    vec![
        ("file", with_mode(0, &file)),
        ("file_torn", with_mode(0, &file[..file.len() - 9])),
        ("file_damaged", with_mode(0, &damaged)),
        ("records", with_mode(2, &unsealed)),
        ("record_of_the_former_layout", with_mode(2, &[&[0, 0, 12][..], &[0; 12]].concat())),
        ("record_of_a_newer_layout", with_mode(2, &[9, 0, 1, 7])),
        ("opened", with_mode(3, &unsealed)),
    ]
}
