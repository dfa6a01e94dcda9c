//! Value layouts. Fields are packed in the order in which a record lists them.

use bytes::Bytes;
use kukuri_domain::{
    Address, Event, EventId, Kind, Millis, PublicKey, Rank, Reason, Source, State, Timestamp, TopicId,
    capacity::{Stage, Usage},
    clock::Clock,
    decision::KeyState,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    sharing::RequestRef,
    subscription::Keeper,
    vanish::VanishMark,
};
use kukuri_store::{IdRecord, Op, OutboxRow, Seq, Standing, counters::Counters};

use crate::{
    error::{Result, damaged},
    key::{AuthorNo, EventNo, TopicNo},
    pack::{Field, Pack, Record, take, unpack},
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

            fn unpack_from($record: &mut &[u8]) -> Option<Self> {
                $unpacked
            }
        }
    )+};
}
pub(crate) use fields;

/// Packs structs as their fields, in this order.
macro_rules! structs {
    ($($name:ident { $($field:ident),+ })+) => {
        fields! {
            $($name: |value, pack| pack$(.field(&value.$field))+, |record| Some(Self { $($field: take(record)?),+ });)+
        }
    };
}

/// Defines the record of a table.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident in $table:ident { $($field:ident: $type:ty,)+ }) => {
        $(#[$meta])*
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)+
        }

        structs! { $name { $($field),+ } }

        impl Record for $name {
            const TABLE: Table = Table::$table;
        }
    };
}

impl<const N: usize> Field for [u8; N] {
    fn pack_into(&self, pack: Pack) -> Pack {
        pack.bytes(self)
    }

    fn unpack_from(record: &mut &[u8]) -> Option<Self> {
        let (front, rest) = record.split_first_chunk()?;
        *record = rest;
        Some(*front)
    }
}

fields! {
    u8: |value, pack| pack.bytes(&[*value]), |record| take(record).map(u8::from_be_bytes);
    u16: |value, pack| pack.bytes(&value.to_be_bytes()), |record| take(record).map(u16::from_be_bytes);
    u32: |value, pack| pack.bytes(&value.to_be_bytes()), |record| take(record).map(u32::from_be_bytes);
    u64: |value, pack| pack.bytes(&value.to_be_bytes()), |record| take(record).map(u64::from_be_bytes);
    bool: |value, pack| pack.field(&u8::from(*value)), |record| take(record).map(|byte: u8| byte != 0);
    Seq: |value, pack| pack.field(&value.0), |record| take(record).map(Seq);
    Millis: |value, pack| pack.field(&value.0), |record| take(record).map(Millis);
    Timestamp: |value, pack| pack.field(&value.0), |record| take(record).map(Timestamp);
    EventNo: |value, pack| pack.field(&value.0), |record| take(record).map(EventNo);
    TopicNo: |value, pack| pack.field(&value.0), |record| take(record).map(TopicNo);
    AuthorNo: |value, pack| pack.field(&value.0), |record| take(record).map(AuthorNo);
    Kind: |value, pack| pack.field(&value.0), |record| take(record).map(Kind);
    Traits: |value, pack| pack.field(&value.0), |record| take(record).map(Traits);
    EventId: |value, pack| pack.bytes(value.as_bytes()), |record| take(record).map(EventId::from_bytes);
    PublicKey: |value, pack| pack.bytes(value.as_bytes()), |record| take(record).map(PublicKey::from_bytes);

    State: |value, pack| pack.field(&code_of(&ROW_STATES, value)), |record| decode(&ROW_STATES, take(record)?);
    Source: |value, pack| pack.field(&code_of(&SOURCES, value)), |record| decode(&SOURCES, take(record)?);
    Reason: |value, pack| pack.field(&code_of(&REASONS, value)), |record| decode(&REASONS, take(record)?);
    Stage: |value, pack| pack.field(&code_of(&STAGES, value)), |record| decode(&STAGES, take(record)?);
    Keeper: |value, pack| pack.field(&code_of(&KEEPERS, value)), |record| decode(&KEEPERS, take(record)?);

    // Rows are numbered from 1.
    Option<EventNo>: |value, pack| pack.field(&value.unwrap_or_default()),
        |record| Some(Some(take(record)?).filter(|no: &EventNo| no.0 != 0));
    [Usage; 4]: |usages, pack| usages.iter().fold(pack, Pack::field),
        |record| Some([take(record)?, take(record)?, take(record)?, take(record)?]);

    // The last field of its record.
    Address: |address, pack| pack.bytes(address.to_string().as_bytes()),
        |record| std::str::from_utf8(std::mem::take(record)).ok()?.parse().ok();
    // The last field of its record.
    Option<Address>: |address, pack| address.iter().fold(pack, Pack::field), |record| take_last(record);
    // The last field of its record.
    DeletionTargetKind: |target, pack| match target {
            Self::EventId(id) => pack.field(b"e").field(id),
            Self::Address(address) => pack.field(b"a").field(address),
        },
        |record| match take(record)? {
            b'e' => take(record).map(Self::EventId),
            b'a' => take(record).map(Self::Address),
            _ => None,
        };
    // The last field of its record.
    Standing: |standing, pack| match standing {
            Self::Effective => pack,
            Self::Gone { reason, cause, since } => cause.iter().fold(pack.field(reason).field(since), Pack::field),
        },
        |record| Some(match take_last(record)? {
            None => Self::Effective,
            Some(reason) => Self::Gone { reason, since: take(record)?, cause: take_last(record)? },
        });
    Op: |op, pack| match op {
            Self::Upsert => pack.field(&UPSERT),
            Self::Delete(reason) => pack.field(reason),
        },
        |record| match take(record)? {
            UPSERT => Some(Self::Upsert),
            code => decode(&REASONS, code).map(Self::Delete),
        };
    KnownId: |known, pack| {
            let IdRecord { source, first_seen_at, last_seen_at, seen_count, standing } = &known.record;
            let pack = pack.field(source).field(&known.no).field(first_seen_at).field(last_seen_at);
            pack.field(seen_count).field(standing)
        },
        |record| {
            let (source, no) = (take(record)?, take(record)?);
            let (first_seen_at, last_seen_at, seen_count) = (take(record)?, take(record)?, take(record)?);
            let standing = take(record)?;
            Some(Self { record: IdRecord { source, first_seen_at, last_seen_at, seen_count, standing }, no })
        };
    TombstoneRecord: |record, pack| {
            let Tombstone { target, deletion_id, applied_at, shareable } = &record.tombstone;
            let pack = pack.field(deletion_id).field(&target.requester_pubkey).field(&target.request_created_at);
            let pack = pack.field(&record.noted_at).field(&applied_at.map_or(0, |at| at.0 + 1));
            let pack = if record.has_shareable { pack.field(&SHAREABLE).field(shareable) } else { pack };
            pack.field(&target.target)
        },
        |record| {
            let (deletion_id, requester_pubkey, request_created_at) = (take(record)?, take(record)?, take(record)?);
            let (noted_at, applied_at) = (take(record)?, take::<u64>(record)?.checked_sub(1).map(Millis));
            // Until format 2 the target follows here.
            let has_shareable = record.first() == Some(&SHAREABLE);
            let shareable = match has_shareable {
                true => take::<u8>(record).and_then(|_| take(record))?,
                false => None,
            };
            let target = DeletionTarget { target: take(record)?, requester_pubkey, request_created_at };
            Some(Self { tombstone: Tombstone { target, deletion_id, applied_at, shareable }, noted_at, has_shareable })
        };
    VanishRecord: |record, pack| {
            let VanishMark { pubkey, until, request_id, shareable } = &record.mark;
            let pack = pack.field(pubkey).field(until).field(request_id).field(&record.noted_at);
            if record.has_shareable { pack.field(shareable) } else { pack }
        },
        |record| {
            let (pubkey, until, request_id, noted_at) = (take(record)?, take(record)?, take(record)?, take(record)?);
            // Until format 2 a record ends here.
            let shareable = take_last(record)?;
            let mark = VanishMark { pubkey, until, request_id, shareable: shareable.unwrap_or_default() };
            Some(Self { mark, noted_at, has_shareable: shareable.is_some() })
        };
    Option<RequestRef>: |request, pack| {
            let pack = pack.field(&request.is_some());
            request.iter().fold(pack, |pack, request| pack.field(&request.created_at).field(&request.id))
        },
        |record| match take(record)? {
            true => Some(Some(RequestRef { created_at: take(record)?, id: take(record)? })),
            false => Some(None),
        };
}

structs! {
    Rank { created_at, id }
    Usage { events, bytes }
    Counters { effective, stage, by_class }
    Cover { kind, author, topic, traits }
}

/// A topic's name, after its length.
pub(crate) fn take_topic(record: &mut &[u8]) -> Option<TopicId> {
    let length: u16 = take(record)?;
    std::str::from_utf8(record.split_off(..usize::from(length))?).ok().map(TopicId::new_unchecked)
}

/// A field that its record may end without.
pub(crate) fn take_last<F: Field>(record: &mut &[u8]) -> Option<Option<F>> {
    if record.is_empty() { Some(None) } else { take(record).map(Some) }
}

// The index of a value in its list is its code on disk: lists may grow at the end, never change.
/// The states that a row can have; events in other states keep no row.
const ROW_STATES: [State; 3] = [State::Effective, State::Replaced, State::Deleted];
const SOURCES: [Source; 5] = [Source::Client, Source::Gossip, Source::Sync, Source::Import, Source::Node];
const REASONS: [Reason; 6] =
    [Reason::Nip09, Reason::Expiration, Reason::Replaced, Reason::Vanish, Reason::Retention, Reason::Capacity];
const STAGES: [Stage; 4] = [Stage::Open, Stage::LiveOnly, Stage::Shedding, Stage::Purging];
const KEEPERS: [Keeper; 3] = [Keeper::Operator, Keeper::Use, Keeper::People];
/// Before the shareable request of a tombstone, in place of the code of its target.
const SHAREABLE: u8 = b's';
/// In place of a reason.
const UPSERT: u8 = u8::MAX;

fn code_of<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|listed| listed == value).unwrap_or(list.len()) as u8
}

fn decode<T: Copy>(list: &[T], code: u8) -> Option<T> {
    list.get(usize::from(code)).copied()
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
    pub(crate) fn unpack(record: &'a [u8]) -> Result<Self> {
        unpack(Table::Events.name(), record, |record| {
            let (ingested_at, state, traits) = (take(record)?, take(record)?, take(record)?);
            let topics = (0..take::<u16>(record)?).map(|_| take(record)).collect::<Option<_>>()?;
            Some(Self { ingested_at, state, traits, topics, json: record })
        })
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
        unpack("an index", record, take)
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
    /// Records of format 2 do not say which request may be shared: [`View::tombstone_in`] looks it up.
    ///
    /// [`View::tombstone_in`]: crate::tables::View::tombstone_in
    pub(crate) has_shareable: bool,
}

impl TombstoneRecord {
    pub(crate) fn new(tombstone: Tombstone, noted_at: Millis) -> Self {
        Self { tombstone, noted_at, has_shareable: true }
    }
}

impl Record for TombstoneRecord {
    const TABLE: Table = Table::Tombstones;
}

/// A vanish mark and when it was last written.
pub(crate) struct VanishRecord {
    pub(crate) mark: VanishMark,
    pub(crate) noted_at: Millis,
    /// As in [`TombstoneRecord`].
    pub(crate) has_shareable: bool,
}

impl VanishRecord {
    pub(crate) fn new(mark: VanishMark, noted_at: Millis) -> Self {
        Self { mark, noted_at, has_shareable: true }
    }
}

impl Record for VanishRecord {
    const TABLE: Table = Table::Vanished;
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

fields! {
    NodeRecord: |node, pack| {
            let pack = pack.field(&node.last_event).field(&node.head).field(&node.outbox_dropped);
            let pack = pack.field(&node.last_topic).field(&node.last_author).field(&node.failed);
            let Clock { latest, last, held_since } = node.clock;
            let pack = pack.field(&latest).field(&last).field(&held_since.is_some()).field(&node.counters);
            pack.field(&held_since.unwrap_or_default())
        },
        |record| {
            let (last_event, head, outbox_dropped) = (take(record)?, take(record)?, take(record)?);
            let (last_topic, last_author, failed) = (take(record)?, take(record)?, take(record)?);
            let (latest, last, is_held): (Millis, Millis, bool) = (take(record)?, take(record)?, take(record)?);
            let counters = take(record)?;
            // Until version 0.1 a record ends here.
            let held_since: Millis = take_last(record)?.unwrap_or(latest);
            let clock = Clock { latest, last, held_since: is_held.then_some(held_since) };
            Some(Self { last_event, head, outbox_dropped, last_topic, last_author, failed, clock, counters })
        };
    // In the write-ahead log.
    Clock: |clock, pack| {
            let pack = pack.field(&clock.latest).field(&clock.last).field(&clock.is_held());
            pack.field(&clock.held_since.unwrap_or_default())
        },
        |record| {
            let (latest, last, is_held): (_, _, bool) = (take(record)?, take(record)?, take(record)?);
            let held_since = take(record)?;
            Some(Self { latest, last, held_since: is_held.then_some(held_since) })
        };
}

impl Record for NodeRecord {
    const TABLE: Table = Table::Meta;
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn tombstones_and_marks_of_format_2_are_read_and_said_to_lack_their_shareable_request() {
        let (id, pubkey) = (EventId::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        let shareable = Some(RequestRef { created_at: Timestamp(5), id: EventId::from_bytes([3; 32]) });
        let address = Address::replaceable(Kind(0), pubkey);
        for target in [DeletionTargetKind::EventId(id), DeletionTargetKind::Address(address)] {
            let of_format_2 = Pack::with_capacity(160).field(&id).field(&pubkey).field(&Timestamp(6)).field(&Millis(7));
            let of_format_2 = of_format_2.field(&9u64).field(&target).done();
            let target = DeletionTarget { target, requester_pubkey: pubkey, request_created_at: Timestamp(6) };
            let known = Tombstone { target, deletion_id: id, applied_at: Some(Millis(8)), shareable: None };
            let read = TombstoneRecord::unpack(&of_format_2).unwrap();
            assert_eq!((read.tombstone, read.noted_at, read.has_shareable), (known.clone(), Millis(7), false));
            for shareable in [None, shareable] {
                let written = TombstoneRecord::new(Tombstone { shareable, ..known.clone() }, Millis(7));
                let read = TombstoneRecord::unpack(&written.pack()).unwrap();
                assert_eq!((read.tombstone, read.has_shareable), (written.tombstone, true));
            }
        }

        let of_format_2 =
            Pack::with_capacity(96).field(&pubkey).field(&Timestamp(6)).field(&id).field(&Millis(7)).done();
        let known = VanishMark { pubkey, until: Timestamp(6), request_id: id, shareable: None };
        let read = VanishRecord::unpack(&of_format_2).unwrap();
        assert_eq!((read.mark, read.noted_at, read.has_shareable), (known, Millis(7), false));
        for shareable in [None, shareable] {
            let written = VanishRecord::new(VanishMark { shareable, ..known }, Millis(7));
            let read = VanishRecord::unpack(&written.pack()).unwrap();
            assert_eq!((read.mark, read.has_shareable), (written.mark, true));
        }
    }
}
