//! Domain enums as columns: numbers in internal columns, text in columns that other services may read.

use kukuri_domain::{
    EventId, Kind, Millis, PublicKey, Reason, Source, Timestamp, capacity::Stage, retention::RetentionClass,
};
use kukuri_store::Op;

use crate::error::{Result, damaged};

const SOURCES: [Source; 5] = [Source::Client, Source::Gossip, Source::Sync, Source::Import, Source::Node];
const REASONS: [Reason; 6] =
    [Reason::Nip09, Reason::Expiration, Reason::Replaced, Reason::Vanish, Reason::Retention, Reason::Capacity];
const STAGES: [Stage; 4] = [Stage::Open, Stage::LiveOnly, Stage::Shedding, Stage::Purging];

/// The index of a value in its list is its code in the database.
fn code_of<T: PartialEq>(list: &[T], value: &T) -> i16 {
    list.iter().position(|other| other == value).unwrap_or_default() as i16
}

fn decode<T: Copy>(list: &[T], code: i16, what: &str) -> Result<T> {
    let value = usize::try_from(code).ok().and_then(|place| list.get(place));
    value.copied().ok_or_else(|| damaged(format!("{code} is no {what}")))
}

pub(crate) fn source_code(source: Source) -> i16 {
    code_of(&SOURCES, &source)
}

pub(crate) fn source(code: i16) -> Result<Source> {
    decode(&SOURCES, code, "source")
}

pub(crate) fn reason_code(reason: Reason) -> i16 {
    code_of(&REASONS, &reason)
}

pub(crate) fn reason(code: i16) -> Result<Reason> {
    decode(&REASONS, code, "reason")
}

pub(crate) fn stage_code(stage: Stage) -> i16 {
    code_of(&STAGES, &stage)
}

pub(crate) fn stage(code: i16) -> Result<Stage> {
    decode(&STAGES, code, "stage")
}

pub(crate) fn retention_code(class: RetentionClass) -> i16 {
    class as i16
}

/// `op` and `reason` of an outbox row, as the services read them (O-1).
pub(crate) fn op_texts(op: Op) -> (&'static str, Option<&'static str>) {
    match op {
        Op::Upsert => ("upsert", None),
        Op::Delete(reason) => ("delete", Some(reason.as_str())),
    }
}

pub(crate) fn op(op: &str, reason: Option<&str>) -> Result<Op> {
    match (op, reason) {
        ("upsert", _) => Ok(Op::Upsert),
        ("delete", Some(name)) => {
            let reason = REASONS.into_iter().find(|reason| reason.as_str() == name);
            reason.map(Op::Delete).ok_or_else(|| damaged(format!("an outbox row is deleted for {name}")))
        }
        _ => Err(damaged("an outbox row has no operation")),
    }
}

/// Partition class of a row (P-7). It follows from the kind, until a row is moved because it outlives its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Regular events.
    Default,
    /// Versions of keys, and regular events that a topic keeps longer than other topics do.
    Long,
    /// Deletion and vanish requests.
    Requests,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::Default, Self::Long, Self::Requests];

    pub(crate) fn of(kind: Kind) -> Self {
        if kind.is_request() {
            Self::Requests
        } else if kind.is_keyed() {
            Self::Long
        } else {
            Self::Default
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Long => "long",
            Self::Requests => "requests",
        }
    }

    pub(crate) fn read(text: &str) -> Result<Self> {
        let class = Self::ALL.into_iter().find(|class| class.as_str() == text);
        class.ok_or_else(|| damaged(format!("{text} is no class of partitions")))
    }
}

/// Postgres has no unsigned integers; larger values saturate at `i64::MAX`.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    number.max(0) as u64
}

pub(crate) fn millis(number: i64) -> Millis {
    Millis(unsigned(number))
}

pub(crate) fn timestamp(number: i64) -> Timestamp {
    Timestamp(unsigned(number))
}

pub(crate) fn kind(number: i32) -> Result<Kind> {
    u16::try_from(number).map(Kind).map_err(|_| damaged(format!("{number} is no kind")))
}

pub(crate) fn event_id(bytes: [u8; 32]) -> EventId {
    EventId::from_bytes(bytes)
}

pub(crate) fn ids<'a>(ids: impl IntoIterator<Item = &'a EventId>) -> Vec<[u8; 32]> {
    ids.into_iter().map(|id| *id.as_bytes()).collect()
}

pub(crate) fn keys<'a>(keys: impl IntoIterator<Item = &'a PublicKey>) -> Vec<[u8; 32]> {
    keys.into_iter().map(|key| *key.as_bytes()).collect()
}
