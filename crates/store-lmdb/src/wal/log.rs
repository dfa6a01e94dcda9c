//! The log file: one record per batch, with a digest, each appended and synced.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use kukuri_domain::{Admitted, Event, Millis, TopicId, clock::Clock};
use kukuri_store::StoreError;

use crate::{
    error::Result,
    open::Durability,
    pack::{Pack, take, unpack},
    record::take_topic,
};

pub(crate) const FILE: &str = "wal.log";
/// Name of the file until version 0.1; its records have the same layout.
const FORMER_FILE: &str = "ahead.log";
/// Length of the file, written in full when it is created: overwriting is the cheapest write to sync.
const FILE_BYTES: usize = 4 << 20;
/// A copy of a damaged log, which `salvage` leaves.
const DAMAGED_FILE: &str = "wal.log.damaged";
/// Layout of the records that this program writes. Records of layout 0, without a clock, were written until version
/// 0.1; they have a zero in this place, as the first byte of their length.
const LAYOUT: u8 = 1;
/// Layout, length (three bytes) and digest.
pub(crate) const HEADER_BYTES: usize = 4 + DIGEST_BYTES;
pub(crate) const DIGEST_BYTES: usize = 16;
/// Upper bounds: bytes of an event besides its JSON and topics, of a topic besides its name, of a record besides its
/// events.
const EVENT_OVERHEAD: usize = 8;
const TOPIC_OVERHEAD: usize = 2;
const RECORD_OVERHEAD: usize = HEADER_BYTES + 8 + 4 + 8 + CLOCK_BYTES + 4;
const CLOCK_BYTES: usize = 8 + 8 + 1 + 8;

/// The events of a batch that changed something, and the time at which they arrived.
#[derive(Clone, Debug)]
pub(crate) struct LogRecord {
    pub(crate) events: Vec<Admitted>,
    pub(crate) now: Millis,
    /// The clock that the batch was decided with, so that replay gives the same timestamps. `None` in layout 0.
    pub(crate) clock: Option<Clock>,
}

/// The records of one transaction.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// From the first record on, in order, as far as they are intact.
    pub(crate) records: Vec<LogRecord>,
    /// Intact records behind a damaged one. A torn record is the last one, since each is synced before the next is
    /// written: these show that an acknowledged record was damaged afterwards.
    pub(crate) behind_damage: Vec<LogRecord>,
}

impl Recovered {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.behind_damage.is_empty()
    }

    /// The records, if none is damaged.
    pub(crate) fn undamaged(self, directory: &Path) -> Result<Vec<LogRecord>> {
        if self.behind_damage.is_empty() {
            return Ok(self.records);
        }
        let events = |records: &[LogRecord]| records.iter().map(|record| record.events.len()).sum();
        Err(StoreError::DamagedWal {
            path: directory.join(FILE),
            before: events(&self.records),
            behind: events(&self.behind_damage),
        }
        .into())
    }

    /// All intact records, in order.
    pub(crate) fn intact(self) -> Vec<LogRecord> {
        [self.records, self.behind_damage].concat()
    }
}

/// The log of a store that is open for writing.
pub(crate) struct Log {
    directory: PathBuf,
    durability: Durability,
    file: Option<File>,
    transaction: u64,
    /// Records of that transaction, and the end of the last one in bytes.
    count: u32,
    end: usize,
}

impl Log {
    /// The directory of the store.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The log in the directory of a store. The file is created when it is needed.
    pub(crate) fn new(directory: &Path, durability: Durability) -> Self {
        Self { directory: directory.to_owned(), durability, file: None, transaction: 0, count: 0, end: 0 }
    }

    /// Whether the file has space for a batch after the records of this transaction.
    pub(crate) fn fits(&self, transaction: u64, events: &[Admitted]) -> bool {
        let before = if self.transaction == transaction { self.end } else { 0 };
        before + length_of(events) <= FILE_BYTES
    }

    /// Appends the record of a batch that belongs to this transaction. Durable when it returns.
    pub(crate) fn append(&mut self, transaction: u64, record: &LogRecord) -> io::Result<()> {
        if self.transaction != transaction {
            (self.transaction, self.count, self.end) = (transaction, 0, 0);
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.directory.join(FILE), self.durability)?),
        };
        let record = pack(transaction, self.count, record);
        file.write_all_at(&record, self.end as u64)?;
        if self.durability == Durability::Synced {
            file.sync_data()?;
        }
        self.count += 1;
        self.end += record.len();
        Ok(())
    }

    /// Removes the file under its former name. Call it when no record is pending.
    pub(crate) fn remove_former_file(&self) {
        warn_if_kept(&self.directory, remove_if_there(&self.directory.join(FORMER_FILE)));
    }

    /// Removes the log. Call it when no record is pending and nothing more is written.
    pub(crate) fn remove(&mut self) {
        self.file = None;
        warn_if_kept(&self.directory, remove_files(&self.directory));
    }
}

fn warn_if_kept(directory: &Path, removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(%error, directory = %directory.display(), "can't remove the write-ahead log; it is ignored");
    }
}

/// Whether a directory has a log, which may hold pending records.
pub(crate) fn exists(directory: &Path) -> bool {
    [FILE, FORMER_FILE].iter().any(|file| directory.join(file).exists())
}

/// Removes the log files of a directory.
pub(crate) fn remove_files(directory: &Path) -> io::Result<()> {
    [FILE, FORMER_FILE].iter().try_for_each(|file| remove_if_there(&directory.join(file)))
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Keeps a copy of a damaged log.
pub(crate) fn keep_damaged(directory: &Path) -> io::Result<()> {
    for file in [FILE, FORMER_FILE] {
        let path = directory.join(file);
        if path.exists() {
            let copy = directory.join(DAMAGED_FILE);
            fs::copy(path, &copy)?;
            return File::open(copy)?.sync_all();
        }
    }
    Ok(())
}

/// The records of this transaction.
pub(crate) fn read(directory: &Path, transaction: u64) -> Result<Recovered> {
    let recovered = read_file(&directory.join(FILE), transaction)?;
    if recovered.is_empty() { read_file(&directory.join(FORMER_FILE), transaction) } else { Ok(recovered) }
}

fn read_file(path: &Path, transaction: u64) -> Result<Recovered> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Recovered::default()),
        Err(error) => return Err(error.into()),
    };
    read_bytes(path, &bytes, transaction)
}

/// The records of this transaction in the bytes of a log. `path` names the log in an error.
pub(crate) fn read_bytes(path: &Path, bytes: &[u8], transaction: u64) -> Result<Recovered> {
    let (mut recovered, mut rest) = (Recovered::default(), bytes);
    while let Some((found, after)) = next(rest) {
        if found.number() != Some((transaction, recovered.records.len() as u32)) {
            break;
        }
        recovered.records.push(found.unpack(path)?);
        rest = after;
    }
    while let Some((found, after)) = find(rest, transaction) {
        recovered.behind_damage.push(found.unpack(path)?);
        rest = after;
    }
    Ok(recovered)
}

/// The next intact record of a transaction, wherever it begins, and the bytes after it.
fn find(bytes: &[u8], transaction: u64) -> Option<(RawRecord<'_>, &[u8])> {
    let transaction = transaction.to_be_bytes();
    let names = bytes.windows(transaction.len()).enumerate().skip(HEADER_BYTES);
    // The body begins with the number of its transaction. Bytes of an event can't look like a record: JSON has no
    // control characters.
    names.filter(|(_, name)| *name == transaction).find_map(|(at, _)| next(&bytes[at - HEADER_BYTES..]))
}

/// Opens the file, or creates it at its full length.
fn open(path: &Path, durability: Durability) -> io::Result<File> {
    let mut file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if durability == Durability::Unsynced {
        file.set_len(FILE_BYTES as u64)?;
        return Ok(file);
    }
    if file.metadata()?.len() != FILE_BYTES as u64 {
        let made = file.set_len(0).and_then(|()| file.write_all(&vec![0; FILE_BYTES])).and_then(|()| file.sync_all());
        if let Err(error) = made {
            // A partly written file would only take space.
            let _ = fs::remove_file(path);
            return Err(error);
        }
    }
    // Also for an existing file: a crash may have come before this sync.
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

fn length_of(events: &[Admitted]) -> usize {
    let of_topics =
        |topics: &[TopicId]| topics.iter().map(|topic| topic.as_str().len() + TOPIC_OVERHEAD).sum::<usize>();
    let of_event = |event: &Admitted| event.json().len() + of_topics(event.topics()) + EVENT_OVERHEAD;
    RECORD_OVERHEAD + events.iter().map(of_event).sum::<usize>()
}

pub(crate) fn pack(transaction: u64, number: u32, record: &LogRecord) -> Vec<u8> {
    let mut packed = Pack::with_capacity(length_of(&record.events)).bytes(&[0; HEADER_BYTES]);
    packed = packed.field(&transaction).field(&number).field(&record.now).field(&record.clock.unwrap_or_default());
    packed = packed.field(&(record.events.len() as u32));
    for event in &record.events {
        packed = packed.field(&event.source()).field(&event.vanishes()).field(&(event.topics().len() as u16));
        for topic in event.topics() {
            packed = packed.field(&(topic.as_str().len() as u16)).bytes(topic.as_str().as_bytes());
        }
        packed = packed.field(&(event.json().len() as u32)).bytes(event.json());
    }
    let mut packed = packed.done();
    let (head, body) = packed.split_at_mut(HEADER_BYTES);
    head[..4].copy_from_slice(&(body.len() as u32).to_be_bytes());
    head[0] = LAYOUT;
    head[4..].copy_from_slice(&digest(LAYOUT, body));
    packed
}

/// A record of any layout with this body.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seal(layout: u8, body: &[u8]) -> Vec<u8> {
    let mut length = (body.len() as u32).to_be_bytes();
    length[0] = layout;
    [&length[..], &digest(layout, body), body].concat()
}

/// From layout 1 on the digest covers the layout.
fn digest(layout: u8, body: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut hash = blake3::Hasher::new();
    if layout > 0 {
        hash.update(&[layout]);
    }
    let mut digest = [0; DIGEST_BYTES];
    digest.copy_from_slice(&hash.update(body).finalize().as_bytes()[..DIGEST_BYTES]);
    digest
}

/// A record whose digest is right.
struct RawRecord<'b> {
    layout: u8,
    body: &'b [u8],
}

/// The first record, if it is complete, and the bytes after it.
fn next(bytes: &[u8]) -> Option<(RawRecord<'_>, &[u8])> {
    let ([layout, length @ ..], rest) = bytes.split_first_chunk::<4>()?;
    let (expected, rest) = rest.split_first_chunk::<DIGEST_BYTES>()?;
    let length = u32::from_be_bytes([0, length[0], length[1], length[2]]);
    let (body, after) = rest.split_at_checked(length as usize)?;
    let is_intact = !body.is_empty() && digest(*layout, body) == *expected;
    is_intact.then_some((RawRecord { layout: *layout, body }, after))
}

impl RawRecord<'_> {
    /// The transaction, and the record's number in it. Every layout begins with them.
    fn number(&self) -> Option<(u64, u32)> {
        let mut body = self.body;
        Some((take(&mut body)?, take(&mut body)?))
    }

    fn unpack(&self, path: &Path) -> Result<LogRecord> {
        if self.layout > LAYOUT {
            let (path, found, supported) = (path.to_owned(), self.layout.into(), LAYOUT.into());
            return Err(StoreError::Newer { path, found, supported }.into());
        }
        unpack(FILE, self.body, |body| {
            let _: (u64, u32) = (take(body)?, take(body)?);
            let now = take(body)?;
            let clock = if self.layout > 0 { Some(take(body)?) } else { None };
            let events = (0..take::<u32>(body)?).map(|_| take_event(body)).collect::<Option<_>>()?;
            Some(LogRecord { events, now, clock })
        })
    }
}

fn take_event(body: &mut &[u8]) -> Option<Admitted> {
    let (source, vanishes) = (take(body)?, take(body)?);
    let topics = (0..take::<u16>(body)?).map(|_| take_topic(body)).collect::<Option<_>>()?;
    let length: u32 = take(body)?;
    let event = Event::from_json(body.split_off(..length as usize)?).ok()?;
    Some(Admitted::restored(event, topics, source, vanishes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use kukuri_store::conformance::build::{NOW, OTHER_TOPIC, admitted, note};

    use super::*;

    fn batch(text: &str, events: u64) -> LogRecord {
        let draft = |n| note(&format!("{text} {n}")).tag(["t", OTHER_TOPIC]).at(n);
        let events = (0..events).map(|n| admitted(&draft(n).build())).collect();
        let clock = Clock { latest: NOW, last: NOW, held_since: Some(Millis(7)) };
        LogRecord { events, now: NOW, clock: Some(clock) }
    }

    /// The records, if none is damaged.
    fn read(directory: &Path, transaction: u64) -> Result<Vec<LogRecord>> {
        super::read(directory, transaction)?.undamaged(directory)
    }

    /// A record as version 0.1 wrote it.
    fn pack_layout_0(transaction: u64, number: u32, record: &LogRecord) -> Vec<u8> {
        let packed = pack(transaction, number, record);
        let (before, after) = packed[HEADER_BYTES..].split_at(8 + 4 + 8);
        let body = [before, &after[CLOCK_BYTES..]].concat();
        [&(body.len() as u32).to_be_bytes()[..], &digest(0, &body), &body].concat()
    }

    fn ids(batches: &[LogRecord]) -> Vec<Vec<kukuri_domain::EventId>> {
        batches.iter().map(|record| record.events.iter().map(|event| event.event().id).collect()).collect()
    }

    #[test]
    fn records_are_read_back_and_those_of_other_transactions_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), 1).unwrap().is_empty(), "there is no file");
        let mut log = Log::new(dir.path(), Durability::Synced);
        let first = [batch("a", 3), batch("b", 1), batch("c", 2)];
        first.iter().for_each(|record| log.append(7, record).unwrap());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "events may be private");
        let found = read(dir.path(), 7).unwrap();
        assert_eq!(ids(&found), ids(&first));
        assert_eq!((found[0].now, found[0].clock), (NOW, first[0].clock));
        for (read, written) in found[0].events.iter().zip(&first[0].events) {
            assert_eq!((read.topics(), read.source()), (written.topics(), written.source()));
            assert_eq!(read.json(), written.json());
        }
        assert!(read(dir.path(), 6).unwrap().is_empty());
        assert!(read(dir.path(), 8).unwrap().is_empty(), "its transaction is committed");

        // The next transaction overwrites the first record; the records behind it belong to the previous one.
        let second = [batch("a", 3)];
        log.append(8, &second[0]).unwrap();
        assert_eq!(ids(&read(dir.path(), 8).unwrap()), ids(&second));
        assert!(super::read(dir.path(), 7).unwrap().records.is_empty());
        log.remove();
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn file_of_the_former_name_is_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path(), Durability::Unsynced);
        log.append(7, &batch("a", 3)).unwrap();
        fs::rename(dir.path().join(FILE), dir.path().join(FORMER_FILE)).unwrap();
        assert!(exists(dir.path()));
        assert_eq!(read(dir.path(), 7).unwrap().len(), 1);

        let mut log = Log::new(dir.path(), Durability::Unsynced);
        log.append(8, &batch("b", 1)).unwrap();
        assert_eq!(read(dir.path(), 8).unwrap().len(), 1, "the present name comes first");
        log.remove_former_file();
        assert!(read(dir.path(), 7).unwrap().is_empty());
        log.remove();
        assert!(!exists(dir.path()));
    }

    #[test]
    fn torn_record_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path(), Durability::Unsynced);
        log.append(3, &batch("a", 2)).unwrap();
        let good = log.end;
        log.append(3, &batch("b", 2)).unwrap();
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        for cut in [good, good + 1, good + HEADER_BYTES, good + HEADER_BYTES + 40, log.end - 1] {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            fs::write(dir.path().join(FILE), &torn).unwrap();
            assert_eq!(read(dir.path(), 3).unwrap().len(), 1, "cut at {cut}");
        }
        fs::write(dir.path().join(FILE), &bytes[..good + 10]).unwrap();
        assert_eq!(read(dir.path(), 3).unwrap().len(), 1, "the file itself is cut");
    }

    #[test]
    fn log_of_the_former_layout_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let written = [batch("a", 3), batch("b", 1)];
        let former = [pack_layout_0(7, 0, &written[0]), pack_layout_0(7, 1, &written[1])].concat();
        fs::write(dir.path().join(FILE), former).unwrap();
        let found = read(dir.path(), 7).unwrap();
        assert_eq!(ids(&found), ids(&written));
        assert_eq!((found[0].now, found[0].clock), (NOW, None));
    }

    #[test]
    fn record_of_a_newer_layout_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut packed = pack(7, 0, &batch("a", 1));
        let newer = digest(LAYOUT + 1, &packed[HEADER_BYTES..]);
        packed[0] = LAYOUT + 1;
        packed[4..HEADER_BYTES].copy_from_slice(&newer);
        fs::write(dir.path().join(FILE), packed).unwrap();
        assert!(matches!(read(dir.path(), 7), Err(crate::error::Failure::Port(StoreError::Newer { .. }))));
        assert!(read(dir.path(), 8).unwrap().is_empty(), "of another transaction it does not matter");
    }

    #[test]
    fn damage_before_an_intact_record_is_noticed() {
        // P-3
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path(), Durability::Unsynced);
        let (mut ends, written) = (vec![0], [batch("a", 2), batch("b", 1), batch("c", 3)]);
        for record in &written {
            log.append(3, record).unwrap();
            ends.push(log.end);
        }
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        // Layout, length, digest, transaction, number and content of the first and the second record.
        for (record, offset) in (0..2).flat_map(|record| [0, 2, 9, 25, 31, 200].map(|offset| (record, offset))) {
            let mut rotten = bytes.clone();
            rotten[ends[record] + offset] ^= 4;
            fs::write(dir.path().join(FILE), &rotten).unwrap();
            let found = super::read(dir.path(), 3).unwrap();
            assert_eq!(ids(&found.records), ids(&written[..record]), "record {record}, byte {offset}");
            assert_eq!(ids(&found.behind_damage), ids(&written[record + 1..]), "record {record}, byte {offset}");
            assert!(read(dir.path(), 3).unwrap_err().to_string().contains("kukuri-node salvage"));
            assert!(read(dir.path(), 2).unwrap().is_empty(), "records of another transaction");
        }
        let mut torn = bytes;
        torn[ends[2] + 30] ^= 4;
        fs::write(dir.path().join(FILE), &torn).unwrap();
        assert_eq!(read(dir.path(), 3).unwrap().len(), 2, "the last record was not acknowledged");
    }

    #[test]
    fn batch_that_does_not_fit_is_detected_before_the_append() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path(), Durability::Unsynced);
        let some = batch("a", 500);
        while log.fits(1, &some.events) {
            log.append(1, &some).unwrap();
        }
        assert!(log.end <= FILE_BYTES && log.end + length_of(&some.events) > FILE_BYTES);
        assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().len(), FILE_BYTES as u64);
        assert!(log.fits(2, &some.events), "the next transaction starts at the beginning");
    }
}
