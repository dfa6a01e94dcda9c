//! What is acknowledged ahead of its transaction: each batch is written to a file and synced, one after the other. After a
//! crash it is taken from there.
//!
//! Each record names the transaction that its batch belongs to. Once that is committed, or another is in its place, all of
//! its records are over, whatever is left of them in the file. So nothing has to be wiped, and the next transaction
//! writes from the beginning.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use kukuri_domain::{Admitted, Event, Millis, TopicId};
use kukuri_store::StoreError;

use crate::{
    open::Sync,
    pack::{Pack, Unpack},
    record::{SOURCES, code_of, decode},
};

pub(crate) const FILE: &str = "ahead.log";
/// The length of the file, all of it written once: to write again where something was written is the cheapest sync.
const BYTES: usize = 4 << 20;
/// Length and digest.
const HEAD: usize = 4 + DIGEST;
const DIGEST: usize = 16;
/// What an event takes at most besides its JSON and its topics, and a record besides its events.
const EVENT_OVERHEAD: usize = 8;
const TOPIC_OVERHEAD: usize = 2;
const RECORD_OVERHEAD: usize = HEAD + 8 + 4 + 8 + 4;

/// A batch that was taken in: those of its events that changed something.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) events: Vec<Admitted>,
    pub(crate) now: Millis,
}

/// The file, open for writing.
pub(crate) struct Ahead {
    path: PathBuf,
    sync: Sync,
    file: Option<File>,
    transaction: u64,
    /// Records of that transaction, and their bytes.
    count: u32,
    end: usize,
}

impl Ahead {
    /// In the directory of a store. The file is made when it is needed.
    pub(crate) fn new(directory: &Path, sync: Sync) -> Self {
        Self { path: directory.join(FILE), sync, file: None, transaction: 0, count: 0, end: 0 }
    }

    /// Whether a batch finds room behind what this transaction has written.
    pub(crate) fn fits(&self, transaction: u64, events: &[Admitted]) -> bool {
        let before = if self.transaction == transaction { self.end } else { 0 };
        before + length_of(events) <= BYTES
    }

    /// Writes a batch that belongs to this transaction. Durable when it returns.
    pub(crate) fn append(&mut self, transaction: u64, taken: &Taken) -> io::Result<()> {
        if self.transaction != transaction {
            (self.transaction, self.count, self.end) = (transaction, 0, 0);
        }
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.path, self.sync)?),
        };
        let record = pack(transaction, self.count, taken);
        file.write_all_at(&record, self.end as u64)?;
        if self.sync == Sync::Durable {
            file.sync_data()?;
        }
        self.count += 1;
        self.end += record.len();
        Ok(())
    }

    /// Everything is committed and nothing more comes.
    pub(crate) fn remove(&mut self) {
        self.file = None;
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(%error, file = %self.path.display(), "a file that is of no use any more stays");
        }
    }
}

/// What was acknowledged for the transaction of this number, in order.
pub(crate) fn read(directory: &Path, transaction: u64) -> io::Result<Vec<Taken>> {
    let bytes = match fs::read(directory.join(FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let (mut batches, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((body, after)) = next(rest) {
        let taken = unpack(body, transaction, batches.len() as u32);
        let Some(taken) = taken.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? else { break };
        batches.push(taken);
        rest = after;
    }
    Ok(batches)
}

/// Opens the file, or makes it at its full length.
fn open(path: &Path, sync: Sync) -> io::Result<File> {
    let mut file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if sync == Sync::Off {
        file.set_len(BYTES as u64)?;
        return Ok(file);
    }
    if file.metadata()?.len() != BYTES as u64 {
        let made = file.set_len(0).and_then(|()| file.write_all(&vec![0; BYTES])).and_then(|()| file.sync_all());
        if let Err(error) = made {
            // Half of it would only take room.
            let _ = fs::remove_file(path);
            return Err(error);
        }
    }
    // Also if it is there: who made it may not have come this far.
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

fn pack(transaction: u64, number: u32, taken: &Taken) -> Vec<u8> {
    let mut record = Pack::with_capacity(length_of(&taken.events)).bytes(&[0; HEAD]);
    record = record.u64(transaction).u32(number).millis(taken.now).u32(taken.events.len() as u32);
    for event in &taken.events {
        record = record.u8(code_of(&SOURCES, &event.source())).u8(event.vanishes().into());
        record = record.u16(event.topics().len() as u16);
        for topic in event.topics() {
            record = record.u16(topic.as_str().len() as u16).bytes(topic.as_str().as_bytes());
        }
        record = record.u32(event.json().len() as u32).bytes(event.json());
    }
    let mut record = record.done();
    let (head, body) = record.split_at_mut(HEAD);
    head[..4].copy_from_slice(&(body.len() as u32).to_be_bytes());
    head[4..].copy_from_slice(&digest(body));
    record
}

fn digest(body: &[u8]) -> [u8; DIGEST] {
    let mut digest = [0; DIGEST];
    digest.copy_from_slice(&blake3::hash(body).as_bytes()[..DIGEST]);
    digest
}

/// The body of the first record, if all of it is there, and what follows.
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (expected, rest) = rest.split_first_chunk::<DIGEST>()?;
    let (body, after) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    (!body.is_empty() && digest(body) == *expected).then_some((body, after))
}

/// `None`: a record of another transaction.
fn unpack(body: &[u8], transaction: u64, number: u32) -> Result<Option<Taken>, StoreError> {
    let mut record = Unpack::new(FILE, body);
    if (record.u64()?, record.u32()?) != (transaction, number) {
        return Ok(None);
    }
    let (now, count) = (record.millis()?, record.u32()?);
    let events = (0..count).map(|_| unpack_event(&mut record)).collect::<Result<_, _>>()?;
    Ok(Some(Taken { events, now }))
}

fn unpack_event(record: &mut Unpack<'_>) -> Result<Admitted, StoreError> {
    let source = decode(&SOURCES, record.u8()?, record)?;
    let vanishes = record.u8()? != 0;
    let mut topics = Vec::new();
    for _ in 0..record.u16()? {
        let length = record.u16()?;
        let topic = std::str::from_utf8(record.bytes(length.into())?).map_err(|_| record.damaged())?;
        topics.push(TopicId::trusted(topic));
    }
    let length = record.u32()?;
    let event = Event::from_json(record.bytes(length as usize)?).map_err(|_| record.damaged())?;
    Ok(Admitted::restored(event, topics.into(), source, vanishes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use kukuri_store::conformance::build::{NOW, OTHER_TOPIC, admitted, note};

    use super::*;

    fn batch(text: &str, events: u64) -> Taken {
        let draft = |n| note(&format!("{text} {n}")).tag(["t", OTHER_TOPIC]).at(n);
        Taken { events: (0..events).map(|n| admitted(&draft(n).build())).collect(), now: NOW }
    }

    fn ids(batches: &[Taken]) -> Vec<Vec<kukuri_domain::EventId>> {
        batches.iter().map(|taken| taken.events.iter().map(|event| event.event().id).collect()).collect()
    }

    #[test]
    fn batches_are_read_as_they_were_written_and_those_of_other_transactions_are_over() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path(), 1).unwrap().is_empty(), "there is no file");
        let mut ahead = Ahead::new(dir.path(), Sync::Durable);
        let first = [batch("a", 3), batch("b", 1), batch("c", 2)];
        first.iter().for_each(|taken| ahead.append(7, taken).unwrap());
        let mode = fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "what is in it may be private");
        let found = read(dir.path(), 7).unwrap();
        assert_eq!(ids(&found), ids(&first));
        assert_eq!(found[0].now, NOW);
        for (read, written) in found[0].events.iter().zip(&first[0].events) {
            assert_eq!((read.topics(), read.source()), (written.topics(), written.source()));
            assert_eq!(read.json(), written.json());
        }
        assert!(read(dir.path(), 6).unwrap().is_empty());
        assert!(read(dir.path(), 8).unwrap().is_empty(), "its transaction is committed");

        // The next one overwrites the first record; what is behind it is of the one before.
        let second = [batch("a", 3)];
        ahead.append(8, &second[0]).unwrap();
        assert_eq!(ids(&read(dir.path(), 8).unwrap()), ids(&second));
        assert!(read(dir.path(), 7).unwrap().is_empty());
        ahead.remove();
        assert!(!dir.path().join(FILE).exists());
    }

    #[test]
    fn a_record_that_was_not_written_to_its_end_was_not_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let mut ahead = Ahead::new(dir.path(), Sync::Off);
        ahead.append(3, &batch("a", 2)).unwrap();
        let good = ahead.end;
        ahead.append(3, &batch("b", 2)).unwrap();
        let bytes = fs::read(dir.path().join(FILE)).unwrap();
        for cut in [good, good + 1, good + HEAD, good + HEAD + 40, ahead.end - 1] {
            let mut torn = bytes.clone();
            torn[cut..].fill(0);
            fs::write(dir.path().join(FILE), &torn).unwrap();
            assert_eq!(read(dir.path(), 3).unwrap().len(), 1, "cut at {cut}");
        }
        fs::write(dir.path().join(FILE), &bytes[..good + 10]).unwrap();
        assert_eq!(read(dir.path(), 3).unwrap().len(), 1, "the file itself is cut");
    }

    #[test]
    fn what_does_not_fit_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut ahead = Ahead::new(dir.path(), Sync::Off);
        let some = batch("a", 500);
        while ahead.fits(1, &some.events) {
            ahead.append(1, &some).unwrap();
        }
        assert!(ahead.end <= BYTES && ahead.end + length_of(&some.events) > BYTES);
        assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().len(), BYTES as u64);
        assert!(ahead.fits(2, &some.events), "the next transaction begins anew");
    }
}
