//! The remains of events without a row, for requests that arrive later (G-7): by subject and topic.

use kukuri_domain::{
    Address, EventId, Millis, PublicKey, Timestamp, TopicId,
    remains::{Remains, Subject},
};

use crate::{
    batch::Batch,
    error::{Result, damaged},
    pack::{Field, Pack, Record, take},
    record::{fields, take_topic},
    tables::{Table, View},
    traces,
};

/// Length of a subject at the front of a key.
const SUBJECT_LEN: usize = 33;

/// A record without its subject, which is in the key.
pub(crate) struct RemainsRecord {
    pub(crate) noted_at: Millis,
    author: PublicKey,
    earliest: Timestamp,
    topic: TopicId,
    key: Option<Address>,
}

fields! {
    RemainsRecord: |record, pack| {
            let topic = record.topic.as_str().as_bytes();
            let pack = pack.field(&record.noted_at).field(&record.author).field(&record.earliest);
            pack.field(&(topic.len() as u16)).bytes(topic).field(&record.key)
        },
        |record| {
            let (noted_at, author, earliest) = (take(record)?, take(record)?, take(record)?);
            Some(Self { noted_at, author, earliest, topic: take_topic(record)?, key: take(record)? })
        };
}

impl Record for RemainsRecord {
    const TABLE: Table = Table::Remains;
}

impl RemainsRecord {
    pub(crate) fn of(remains: Remains, noted_at: Millis) -> (Vec<u8>, Self) {
        let Remains { subject, topic, author, earliest, key } = remains;
        (table_key(&subject, &topic), Self { noted_at, author, earliest, topic, key })
    }

    pub(crate) fn remains(self, key: &[u8]) -> Result<Remains> {
        let Self { author, earliest, topic, key: address, .. } = self;
        Ok(Remains { subject: subject_of(key)?, topic, author, earliest, key: address })
    }
}

/// The subject of a key of the table.
pub(crate) fn subject_of(key: &[u8]) -> Result<Subject> {
    let subject = key.get(..SUBJECT_LEN).and_then(Subject::from_bytes);
    subject.ok_or_else(|| damaged("remains have no subject in their key"))
}

fn table_key(subject: &Subject, topic: &TopicId) -> Vec<u8> {
    Pack::with_capacity(49).bytes(&subject.to_bytes()).field(&traces::prefix(topic)).done()
}

impl View<'_> {
    pub(crate) fn remains(self, subject: &Subject) -> Result<Vec<Remains>> {
        let entries = self.prefix_iter(Table::Remains, &subject.to_bytes())?;
        let read = |(key, record)| RemainsRecord::unpack(record)?.remains(key);
        entries.map(|entry| read(entry?)).collect()
    }
}

impl Batch<'_> {
    /// Writes a record of another store unchanged.
    pub(crate) fn load_remains(&mut self, remains: Remains, noted_at: Millis) -> Result<()> {
        let (key, record) = RemainsRecord::of(remains, noted_at);
        self.put_record(&key, &record)
    }

    /// Writes a record, merged with the known one: the earliest time stays, and its age begins anew. A new one is left out if
    /// the subject has as many topics as are remembered.
    pub(crate) fn merge_remains(&mut self, remains: Remains, noted_at: Millis) -> Result<()> {
        let (subject, earliest) = (remains.subject, remains.earliest);
        let (key, new) = RemainsRecord::of(remains, noted_at);
        let record = match self.view().find::<RemainsRecord>(&key)? {
            // Of many rows that one request takes, most change nothing.
            Some(known) if known.earliest <= earliest && known.noted_at == noted_at => return Ok(()),
            Some(known) => RemainsRecord { earliest: known.earliest.min(earliest), noted_at, ..known },
            None => {
                let known = self.view().prefix_iter(Table::Remains, &subject.to_bytes())?;
                if known.take(subject.max_topics()).count() >= subject.max_topics() {
                    return Ok(());
                }
                new
            }
        };
        self.put_record(&key, &record)
    }

    /// Deletes the remains of an event whose id is forgotten.
    pub(crate) fn drop_remains(&mut self, id: &EventId) -> Result<()> {
        let prefix = Subject::Event(*id).to_bytes();
        for key in self.view().keys_after(Table::Remains, &prefix, &[], usize::MAX)? {
            self.delete(Table::Remains, &key)?;
        }
        Ok(())
    }
}
