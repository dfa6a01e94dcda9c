//! Value layouts. Fields are packed in the order in which a record lists them.

use bytes::Bytes;
use kukuri_domain::{
    Address, Event, EventId, Kind, Millis, PublicKey, Rank, Reason, Source, State, Timestamp, TopicId,
    capacity::{Stage, Usage},
    clock::Clock,
    decision::KeyState,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    subscription::Keeper,
    vanish::VanishMark,
};
use kukuri_store::{IdRecord, Op, OutboxRow, Seq, Standing, counters::Counters};

use crate::{
    error::{Result, damaged},
    key::{AuthorNo, EventNo, TopicNo},
    pack::{Field, Pack, Record, Unpack},
    tables::Table,
};

/// Defines how types are packed and unpacked.
macro_rules! fields {
    ($($type:ty: |$value:ident, $pack:ident| $packed:expr, |$record:ident| $unpacked:expr;)+) => {$(
        impl Field for $type {
            fn pack_into(&self, $pack: Pack) -> Pack {
                let $value = self;
                $packed
            }

            fn unpack_from($record: &mut Unpack<'_>) -> Result<Self> {
                $unpacked
            }
        }
    )+};
}
pub(crate) use fields;

/// Defines the record of a table.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident in $table:ident { $($field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)+
        }

        fields! {
            $name: |value, pack| pack$(.field(&value.$field))+, |record| Ok(Self { $($field: record.field()?,)+ });
        }

        impl Record for $name {
            const TABLE: Table = Table::$table;
        }
    };
}

fields! {
    bool: |value, pack| pack.u8((*value).into()), |record| Ok(record.u8()? != 0);
    u64: |value, pack| pack.u64(*value), |record| record.u64();
    Seq: |value, pack| pack.u64(value.0), |record| record.u64().map(Seq);
    Millis: |value, pack| pack.u64(value.0), |record| record.u64().map(Millis);
    Timestamp: |value, pack| pack.u64(value.0), |record| record.u64().map(Timestamp);
    EventNo: |value, pack| pack.u64(value.0), |record| record.u64().map(EventNo);
    TopicNo: |value, pack| pack.u32(value.0), |record| record.u32().map(TopicNo);
    AuthorNo: |value, pack| pack.u32(value.0), |record| record.u32().map(AuthorNo);
    Kind: |value, pack| pack.u16(value.0), |record| record.u16().map(Kind);
    Traits: |value, pack| pack.u8(value.0), |record| record.u8().map(Traits);
    EventId: |value, pack| pack.bytes(value.as_bytes()), |record| record.array().map(EventId::from_bytes);
    PublicKey: |value, pack| pack.bytes(value.as_bytes()), |record| record.array().map(PublicKey::from_bytes);

    State: |value, pack| pack.u8(code_of(&ROW_STATES, value)), |record| decode(&ROW_STATES, record.u8()?, record);
    Source: |value, pack| pack.u8(code_of(&SOURCES, value)), |record| decode(&SOURCES, record.u8()?, record);
    Reason: |value, pack| pack.u8(code_of(&REASONS, value)), |record| decode(&REASONS, record.u8()?, record);
    Stage: |value, pack| pack.u8(code_of(&STAGES, value)), |record| decode(&STAGES, record.u8()?, record);
    Keeper: |value, pack| pack.u8(code_of(&KEEPERS, value)), |record| decode(&KEEPERS, record.u8()?, record);

    // Rows are numbered from 1.
    Option<EventNo>: |value, pack| pack.u64(value.map_or(0, |no| no.0)),
        |record| Ok(Some(record.u64()?).filter(|no| *no != 0).map(EventNo));
    Rank: |rank, pack| pack.field(&rank.created_at).field(&rank.id),
        |record| Ok(Self { created_at: record.field()?, id: record.field()? });
    VanishMark: |mark, pack| pack.field(&mark.pubkey).field(&mark.until).field(&mark.request_id),
        |record| Ok(Self { pubkey: record.field()?, until: record.field()?, request_id: record.field()? });
    Clock: |clock, pack| pack.field(&clock.latest).field(&clock.last).field(&clock.held),
        |record| Ok(Self { latest: record.field()?, last: record.field()?, held: record.field()? });
    Usage: |usage, pack| pack.u64(usage.events).u64(usage.bytes),
        |record| Ok(Self { events: record.u64()?, bytes: record.u64()? });
    [Usage; 4]: |usages, pack| usages.iter().fold(pack, Pack::field),
        |record| Ok([record.field()?, record.field()?, record.field()?, record.field()?]);
    Counters: |counters, pack| pack.u64(counters.effective).field(&counters.stage).field(&counters.by_class),
        |record| Ok(Self { effective: record.u64()?, stage: record.field()?, by_class: record.field()? });

    // The last field of its record.
    Address: |address, pack| pack.bytes(address.to_string().as_bytes()), |record| {
        let text = std::str::from_utf8(record.rest()).ok();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| record.damaged())
    };
    // The last field of its record.
    Option<Address>: |address, pack| address.iter().fold(pack, Pack::field),
        |record| if record.is_empty() { Ok(None) } else { record.field().map(Some) };
    // The last field of its record.
    DeletionTargetKind: |target, pack| match target {
            Self::EventId(id) => pack.u8(b'e').field(id),
            Self::Address(address) => pack.u8(b'a').field(address),
        },
        |record| match record.u8()? {
            b'e' => record.field().map(Self::EventId),
            b'a' => record.field().map(Self::Address),
            _ => Err(record.damaged()),
        };
    // The last field of its record.
    Standing: |standing, pack| match standing {
            Self::Effective => pack,
            Self::Gone { reason, cause, since } => cause.iter().fold(pack.field(reason).field(since), Pack::field),
        },
        |record| {
            if record.is_empty() {
                return Ok(Self::Effective);
            }
            let (reason, since) = (record.field()?, record.field()?);
            let cause = if record.is_empty() { None } else { Some(record.field()?) };
            Ok(Self::Gone { reason, cause, since })
        };
    Op: |op, pack| match op {
            Self::Upsert => pack.u8(UPSERT),
            Self::Delete(reason) => pack.field(reason),
        },
        |record| match record.u8()? {
            UPSERT => Ok(Self::Upsert),
            code => decode(&REASONS, code, record).map(Self::Delete),
        };
    Cover: |cover, pack| pack.field(&cover.kind).field(&cover.author).field(&cover.topic).field(&cover.traits),
        |record| Ok(Self {
            kind: record.field()?,
            author: record.field()?,
            topic: record.field()?,
            traits: record.field()?,
        });
    KnownId: |known, pack| pack
            .field(&known.record.source)
            .field(&known.no)
            .field(&known.record.first_seen_at)
            .field(&known.record.last_seen_at)
            .u64(known.record.seen_count)
            .field(&known.record.standing),
        |record| {
            let (source, no) = (record.field()?, record.field()?);
            let (first_seen_at, last_seen_at, seen_count) = (record.field()?, record.field()?, record.u64()?);
            let standing = record.field()?;
            Ok(Self { record: IdRecord { source, first_seen_at, last_seen_at, seen_count, standing }, no })
        };
    TombstoneRecord: |record, pack| pack
            .field(&record.tombstone.deletion_id)
            .field(&record.tombstone.target.requester_pubkey)
            .field(&record.tombstone.target.request_created_at)
            .field(&record.noted_at)
            .u64(record.tombstone.applied_at.map_or(0, |at| at.0 + 1))
            .field(&record.tombstone.target.target),
        |record| {
            let (deletion_id, requester_pubkey, request_created_at) =
                (record.field()?, record.field()?, record.field()?);
            let (noted_at, applied_at) = (record.field()?, record.u64()?.checked_sub(1).map(Millis));
            let target = DeletionTarget { target: record.field()?, requester_pubkey, request_created_at };
            Ok(Self { tombstone: Tombstone { target, deletion_id, applied_at }, noted_at })
        };
}

// The index of a value in its list is its code on disk: lists may grow at the end, never change.
/// The states that a row can have; events in other states keep no row.
const ROW_STATES: [State; 3] = [State::Effective, State::Replaced, State::Deleted];
pub(crate) const SOURCES: [Source; 5] = [Source::Client, Source::Gossip, Source::Sync, Source::Import, Source::Node];
const REASONS: [Reason; 6] =
    [Reason::Nip09, Reason::Expiration, Reason::Replaced, Reason::Vanish, Reason::Retention, Reason::Capacity];
const STAGES: [Stage; 4] = [Stage::Open, Stage::LiveOnly, Stage::Shedding, Stage::Purging];
const KEEPERS: [Keeper; 2] = [Keeper::Operator, Keeper::Use];
/// In place of a reason.
const UPSERT: u8 = u8::MAX;

pub(crate) fn code_of<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|listed| listed == value).unwrap_or(list.len()) as u8
}

pub(crate) fn decode<T: Copy>(list: &[T], code: u8, record: &Unpack<'_>) -> Result<T> {
    list.get(usize::from(code)).copied().ok_or_else(|| record.damaged())
}

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
        let pack = Pack::with_capacity(12 + 4 * self.topics.len() + self.json.len())
            .field(&self.ingested_at)
            .field(&self.state)
            .field(&self.traits)
            .u16(self.topics.len() as u16);
        self.topics.iter().fold(pack, Pack::field).bytes(self.json).done()
    }

    pub(crate) fn unpack(record: &'a [u8]) -> Result<Self> {
        let mut record = Unpack::new(Table::Events.name(), record);
        let (ingested_at, state, traits) = (record.field()?, record.field()?, record.field()?);
        let topics = (0..record.u16()?).map(|_| record.field()).collect::<Result<_>>()?;
        Ok(Self { ingested_at, state, traits, topics, json: record.rest() })
    }

    pub(crate) fn is_effective(&self) -> bool {
        self.state == State::Effective
    }

    pub(crate) fn event(&self) -> Result<Event> {
        Event::from_json(self.json).map_err(|error| damaged(format!("a stored event: {error}")))
    }

    /// The id has a fixed position in the JSON that this node writes.
    pub(crate) fn id(&self) -> Result<EventId> {
        let digits = self.json.get(7..71).unwrap_or_default();
        EventId::from_hex(digits).map_err(|_| damaged("a stored event has no id where it belongs"))
    }

    /// Like the id, at a fixed position.
    pub(crate) fn pubkey(&self) -> Result<PublicKey> {
        let digits = self.json.get(83..147).unwrap_or_default();
        PublicKey::from_hex(digits).map_err(|_| damaged("a stored event has no author where it belongs"))
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
        read().ok_or_else(|| damaged("a stored event has no time and kind where they belong"))
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

impl Cover {
    pub(crate) fn unpack(record: &[u8]) -> Result<Self> {
        Unpack::new("an index", record).field()
    }
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

impl Record for AuthorNo {
    const TABLE: Table = Table::Authors;
}

/// The record of an id, and its row number if it has a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownId {
    pub(crate) record: IdRecord,
    pub(crate) no: Option<EventNo>,
}

impl Record for KnownId {
    const TABLE: Table = Table::Ids;
}

record! {
    /// A key's floor, when it was last raised, and the row of its effective version.
    #[derive(Clone, Copy, Debug)]
    KeyRecord in Keys {
        floor: Rank,
        raised_at: Millis,
        current: Option<EventNo>,
    }
}

impl KeyRecord {
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

impl Record for TombstoneRecord {
    const TABLE: Table = Table::Tombstones;
}

record! {
    /// A vanish mark and when it was last written.
    VanishRecord in Vanished {
        mark: VanishMark,
        noted_at: Millis,
    }
}

record! {
    /// An outbox row. Its sequence is the key; its topic is stored by number.
    #[derive(Clone)]
    OutboxRecord in Outbox {
        op: Op,
        event_id: EventId,
        topic: TopicNo,
        kind: Kind,
        created_at: Timestamp,
        ingested_at: Millis,
        written_at: Millis,
        effective_key: Option<Address>,
    }
}

impl OutboxRecord {
    pub(crate) fn row(self, seq: Seq, topic: TopicId) -> OutboxRow {
        let Self { op, event_id, kind, created_at, ingested_at, written_at, effective_key, .. } = self;
        OutboxRow { seq, op, event_id, topic, kind, created_at, ingested_at, effective_key, written_at }
    }
}

record! {
    /// The offset of a consumer, whose name is the key.
    OffsetRecord in Offsets {
        last_seq: Seq,
        updated_at: Millis,
    }
}

record! {
    /// A topic's number and counters.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    TopicRecord in Topics {
        no: TopicNo,
        last_event_at: Millis,
        counters: Counters,
    }
}

record! {
    /// The node's own counters: read when a transaction begins, written when it ends.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    NodeRecord in Meta {
        last_event: EventNo,
        head: Seq,
        outbox_dropped: Seq,
        last_topic: TopicNo,
        last_author: AuthorNo,
        failed: u64,
        clock: Clock,
        counters: Counters,
    }
}
