//! Value layouts.

use bytes::Bytes;
use kukuri_domain::{
    Address, Event, EventId, Kind, Millis, PublicKey, Rank, Reason, Source, State, Timestamp, TopicId,
    capacity::{Stage, Usage},
    clock::Clock,
    decision::KeyState,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    vanish::VanishMark,
};
use kukuri_store::{IdRecord, Op, OutboxRow, Seq, Standing, StoreError, counters::Counters};

use crate::{
    key::{AuthorNo, EventNo, TopicNo},
    pack::{Pack, Unpack},
};

type Result<T> = std::result::Result<T, StoreError>;

/// A stored event: a short header and the JSON as it is served.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) ingested_at: Millis,
    pub(crate) state: State,
    pub(crate) traits: Traits,
    pub(crate) topics: Vec<TopicNo>,
    pub(crate) json: &'a [u8],
}

impl<'a> Row<'a> {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let mut pack = Pack::with_capacity(12 + 4 * self.topics.len() + self.json.len())
            .millis(self.ingested_at)
            .u8(code_of(&ROW_STATES, &self.state))
            .u8(self.traits.0)
            .u16(self.topics.len() as u16);
        for topic in &self.topics {
            pack = pack.u32(topic.0);
        }
        pack.bytes(self.json).done()
    }

    pub(crate) fn unpack(record: &'a [u8]) -> Result<Self> {
        let mut record = Unpack::new("events", record);
        let ingested_at = record.millis()?;
        let state = decode(&ROW_STATES, record.u8()?, &record)?;
        let traits = Traits(record.u8()?);
        let count = record.u16()?;
        let topics = (0..count).map(|_| record.u32().map(TopicNo)).collect::<Result<_>>()?;
        Ok(Self { ingested_at, state, traits, topics, json: record.rest() })
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.state == State::Effective
    }

    pub(crate) fn event(&self) -> Result<Event> {
        Event::from_json(self.json).map_err(|error| StoreError::Damaged(format!("a stored event: {error}")))
    }

    /// The id has a fixed position in the JSON that this node writes.
    pub(crate) fn id(&self) -> Result<EventId> {
        let digits = self.json.get(7..71).unwrap_or_default();
        EventId::from_hex(digits).map_err(|_| StoreError::Damaged("a stored event has no id where it belongs".into()))
    }

    /// Like the id, at a fixed position.
    pub(crate) fn pubkey(&self) -> Result<PublicKey> {
        let digits = self.json.get(83..147).unwrap_or_default();
        PublicKey::from_hex(digits)
            .map_err(|_| StoreError::Damaged("a stored event has no author where it belongs".into()))
    }

    pub(crate) fn created_at(&self) -> Result<Timestamp> {
        Ok(self.time_and_kind()?.0)
    }

    /// Both follow the author, one after the other.
    pub(crate) fn time_and_kind(&self) -> Result<(Timestamp, Kind)> {
        fn number<'b>(text: &'b [u8], name: &[u8]) -> Option<(u64, &'b [u8])> {
            let digits = text.strip_prefix(name)?;
            let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
            let (digits, rest) = digits.split_at(end);
            let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some((number, rest))
        }
        let read = || {
            let (seconds, rest) = number(self.json.get(148..)?, br#","created_at":"#)?;
            let (kind, _) = number(rest, br#","kind":"#)?;
            Some((Timestamp(seconds), Kind(u16::try_from(kind).ok()?)))
        };
        read().ok_or_else(|| StoreError::Damaged("a stored event has no time and kind where they belong".into()))
    }

    pub(crate) fn json(&self) -> Bytes {
        Bytes::copy_from_slice(self.json)
    }
}

/// The covering columns of an index row: they decide most filters without reading the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cover {
    pub(crate) kind: Kind,
    pub(crate) author: AuthorNo,
    pub(crate) topic: TopicNo,
    pub(crate) traits: Traits,
}

/// Flags for conditions that require reading the event before it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits(u8);

impl Traits {
    const EXPIRES: u8 = 1;
    const PRIVATE: u8 = 2;
    const MANY_TOPICS: u8 = 4;

    pub(crate) fn of(event: &Event, topics: usize) -> Self {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        Self(
            flag(event.expiration().is_some(), Self::EXPIRES)
                | flag(event.kind.is_private(), Self::PRIVATE)
                | flag(topics > 1, Self::MANY_TOPICS),
        )
    }

    pub(crate) fn is_plain(self) -> bool {
        self.0 & (Self::EXPIRES | Self::PRIVATE) == 0
    }

    pub(crate) fn has_many_topics(self) -> bool {
        self.0 & Self::MANY_TOPICS != 0
    }
}

impl Cover {
    pub(crate) fn pack(&self) -> Vec<u8> {
        Pack::with_capacity(11).u16(self.kind.0).u32(self.author.0).u32(self.topic.0).u8(self.traits.0).done()
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("an index", record);
        Ok(Self {
            kind: Kind(record.u16()?),
            author: AuthorNo(record.u32()?),
            topic: TopicNo(record.u32()?),
            traits: Traits(record.u8()?),
        })
    }
}

/// The record of an id, and its row number if it has a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownId {
    pub(crate) record: IdRecord,
    pub(crate) no: Option<EventNo>,
}

impl KnownId {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let IdRecord { source, first_seen_at, last_seen_at, seen_count, standing } = self.record;
        let pack = Pack::with_capacity(75)
            .u8(code_of(&SOURCES, &source))
            .u64(self.no.unwrap_or_default().0)
            .millis(first_seen_at)
            .millis(last_seen_at)
            .u64(seen_count);
        match standing {
            Standing::Effective => pack.done(),
            Standing::Gone { reason, cause, since } => {
                let cause = cause.as_ref().map_or(&[][..], |cause| cause.as_bytes());
                pack.u8(code_of(&REASONS, &reason)).millis(since).bytes(cause).done()
            }
        }
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("ids", record);
        let source = decode(&SOURCES, record.u8()?, &record)?;
        let no = Some(EventNo(record.u64()?)).filter(|no| *no != EventNo::default());
        let (first_seen_at, last_seen_at, seen_count) = (record.millis()?, record.millis()?, record.u64()?);
        let standing = if record.is_empty() {
            Standing::Effective
        } else {
            let reason = decode(&REASONS, record.u8()?, &record)?;
            let since = record.millis()?;
            let cause = if record.is_empty() { None } else { Some(record.id()?) };
            Standing::Gone { reason, cause, since }
        };
        Ok(Self { record: IdRecord { source, first_seen_at, last_seen_at, seen_count, standing }, no })
    }
}

/// The states that a row can have; events in other states keep no row.
const ROW_STATES: [State; 3] = [State::Effective, State::Replaced, State::Deleted];
pub(crate) const SOURCES: [Source; 5] = [Source::Client, Source::Gossip, Source::Sync, Source::Import, Source::Node];
const REASONS: [Reason; 6] =
    [Reason::Nip09, Reason::Expiration, Reason::Replaced, Reason::Vanish, Reason::Retention, Reason::Capacity];
const STAGES: [Stage; 4] = [Stage::Open, Stage::LiveOnly, Stage::Shedding, Stage::Purging];

/// The index of a value in its list is its code on disk: lists may grow at the end, never change.
pub(crate) fn code_of<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|listed| listed == value).unwrap_or(list.len()) as u8
}

pub(crate) fn decode<T: Copy>(list: &[T], code: u8, record: &Unpack<'_>) -> Result<T> {
    list.get(usize::from(code)).copied().ok_or_else(|| record.damaged())
}

/// A key's floor, when it was last raised, and the row of its effective version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRecord {
    pub(crate) floor: Rank,
    pub(crate) raised_at: Millis,
    pub(crate) current: Option<EventNo>,
}

impl KeyRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        Pack::with_capacity(56)
            .timestamp(self.floor.created_at)
            .bytes(self.floor.id.as_bytes())
            .millis(self.raised_at)
            .u64(self.current.unwrap_or_default().0)
            .done()
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("keys", record);
        Ok(Self {
            floor: Rank { created_at: record.timestamp()?, id: record.id()? },
            raised_at: record.millis()?,
            current: Some(EventNo(record.u64()?)).filter(|no| *no != EventNo::default()),
        })
    }

    /// The effective version, if any, is at the floor: any higher version would have raised it.
    pub(crate) fn state(&self) -> KeyState {
        KeyState { floor: self.floor, current: self.current.map(|_| self.floor.id) }
    }
}

/// A tombstone and when it was last written.
pub(crate) struct TombstoneRecord {
    pub(crate) tombstone: Tombstone,
    pub(crate) noted_at: Millis,
}

impl TombstoneRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let Tombstone { target, deletion_id, applied_at } = &self.tombstone;
        let pack = Pack::default()
            .bytes(deletion_id.as_bytes())
            .bytes(target.requester_pubkey.as_bytes())
            .timestamp(target.request_created_at)
            .millis(self.noted_at)
            .u64(applied_at.map_or(0, |at| at.0 + 1));
        match &target.target {
            DeletionTargetKind::EventId(id) => pack.u8(b'e').bytes(id.as_bytes()).done(),
            DeletionTargetKind::Address(address) => pack.u8(b'a').bytes(address.to_string().as_bytes()).done(),
        }
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("tombstones", record);
        let deletion_id = record.id()?;
        let requester_pubkey = record.pubkey()?;
        let request_created_at = record.timestamp()?;
        let noted_at = record.millis()?;
        let applied_at = record.u64()?.checked_sub(1).map(Millis);
        let target = match record.u8()? {
            b'e' => DeletionTargetKind::EventId(record.id()?),
            b'a' => {
                let damaged = record.damaged();
                DeletionTargetKind::Address(record.text()?.parse().map_err(|_| damaged)?)
            }
            _ => return Err(record.damaged()),
        };
        let target = DeletionTarget { target, requester_pubkey, request_created_at };
        Ok(Self { tombstone: Tombstone { target, deletion_id, applied_at }, noted_at })
    }
}

/// A vanish mark and when it was last written.
pub(crate) struct VanishRecord {
    pub(crate) mark: VanishMark,
    pub(crate) noted_at: Millis,
}

impl VanishRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        Pack::with_capacity(80)
            .bytes(self.mark.pubkey.as_bytes())
            .timestamp(self.mark.until)
            .bytes(self.mark.request_id.as_bytes())
            .millis(self.noted_at)
            .done()
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("vanished", record);
        let mark = VanishMark { pubkey: record.pubkey()?, until: record.timestamp()?, request_id: record.id()? };
        Ok(Self { mark, noted_at: record.millis()? })
    }
}

/// An outbox row. Its sequence is the key; its topic is stored by number.
#[derive(Clone)]
pub(crate) struct OutboxRecord {
    pub(crate) op: Op,
    pub(crate) event_id: EventId,
    pub(crate) topic: TopicNo,
    pub(crate) kind: Kind,
    pub(crate) created_at: Timestamp,
    pub(crate) ingested_at: Millis,
    pub(crate) written_at: Millis,
    pub(crate) effective_key: Option<Address>,
}

impl OutboxRecord {
    const UPSERT: u8 = u8::MAX;

    pub(crate) fn pack(&self) -> Vec<u8> {
        let op = match self.op {
            Op::Upsert => Self::UPSERT,
            Op::Delete(reason) => code_of(&REASONS, &reason),
        };
        let pack = Pack::with_capacity(63)
            .u8(op)
            .bytes(self.event_id.as_bytes())
            .u32(self.topic.0)
            .u16(self.kind.0)
            .timestamp(self.created_at)
            .millis(self.ingested_at)
            .millis(self.written_at);
        match &self.effective_key {
            Some(address) => pack.bytes(address.to_string().as_bytes()).done(),
            None => pack.done(),
        }
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("outbox", record);
        let op = match record.u8()? {
            Self::UPSERT => Op::Upsert,
            code => Op::Delete(decode(&REASONS, code, &record)?),
        };
        Ok(Self {
            op,
            event_id: record.id()?,
            topic: TopicNo(record.u32()?),
            kind: Kind(record.u16()?),
            created_at: record.timestamp()?,
            ingested_at: record.millis()?,
            written_at: record.millis()?,
            effective_key: if record.is_empty() {
                None
            } else {
                let damaged = record.damaged();
                Some(record.text()?.parse().map_err(|_| damaged)?)
            },
        })
    }

    pub(crate) fn row(self, seq: Seq, topic: TopicId) -> OutboxRow {
        OutboxRow {
            seq,
            op: self.op,
            event_id: self.event_id,
            topic,
            kind: self.kind,
            created_at: self.created_at,
            ingested_at: self.ingested_at,
            effective_key: self.effective_key,
            written_at: self.written_at,
        }
    }
}

fn pack_counters(counters: &Counters, mut pack: Pack) -> Pack {
    pack = pack.u64(counters.effective).u8(code_of(&STAGES, &counters.stage));
    for usage in counters.by_class {
        pack = pack.u64(usage.events).u64(usage.bytes);
    }
    pack
}

fn unpack_counters(record: &mut Unpack<'_>) -> Result<Counters> {
    let effective = record.u64()?;
    let stage = decode(&STAGES, record.u8()?, record)?;
    let mut by_class = [Usage::default(); 4];
    for usage in &mut by_class {
        *usage = Usage { events: record.u64()?, bytes: record.u64()? };
    }
    Ok(Counters { effective, by_class, stage })
}

/// A topic's number and counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicRecord {
    pub(crate) no: TopicNo,
    pub(crate) counters: Counters,
    pub(crate) last_event_at: Millis,
}

impl TopicRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        pack_counters(&self.counters, Pack::with_capacity(85).u32(self.no.0).millis(self.last_event_at)).done()
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("topics", record);
        let (no, last_event_at) = (TopicNo(record.u32()?), record.millis()?);
        Ok(Self { no, last_event_at, counters: unpack_counters(&mut record)? })
    }
}

/// The node's own counters: read when a transaction begins, written when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeRecord {
    pub(crate) last_event: EventNo,
    pub(crate) head: Seq,
    pub(crate) outbox_dropped: Seq,
    pub(crate) last_topic: TopicNo,
    pub(crate) last_author: AuthorNo,
    pub(crate) failed: u64,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
}

impl NodeRecord {
    pub(crate) fn pack(&self) -> Vec<u8> {
        let pack = Pack::with_capacity(132)
            .u64(self.last_event.0)
            .u64(self.head.0)
            .u64(self.outbox_dropped.0)
            .u32(self.last_topic.0)
            .u32(self.last_author.0)
            .u64(self.failed)
            .millis(self.clock.latest)
            .millis(self.clock.last)
            .u8(self.clock.held.into());
        pack_counters(&self.counters, pack).done()
    }

    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        let mut record = Unpack::new("the node's state", record);
        Ok(Self {
            last_event: EventNo(record.u64()?),
            head: Seq(record.u64()?),
            outbox_dropped: Seq(record.u64()?),
            last_topic: TopicNo(record.u32()?),
            last_author: AuthorNo(record.u32()?),
            failed: record.u64()?,
            clock: Clock { latest: record.millis()?, last: record.millis()?, held: record.u8()? != 0 },
            counters: unpack_counters(&mut record)?,
        })
    }
}
