//! Conversion of rows to values, and of events to columns.

use std::collections::BTreeSet;

use kukuri_domain::{
    Address, Event, EventId, Kind, Letter, PublicKey, Rank, Signature, State, Tags, Timestamp, TopicId,
    capacity::Usage,
    clock::Clock,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    vanish::VanishMark,
};
use kukuri_store::{ConsumerOffset, IdRecord, OutboxRow, Seq, Standing, StoredEvent, counters::Counters};
use sqlx::{Row as _, postgres::PgRow};

use crate::{
    codes::{self, Class, event_id, millis, timestamp, unsigned},
    error::{Result, damaged},
    work::{Filed, Key, KnownId, Node, Noted, Row, RowPlace, Topic, TopicNo},
};

/// Selects rows joined with the records of their ids, as [`row`] and [`known_id`] read them.
macro_rules! select_rows {
    ($from:literal) => {
        concat!(
            "SELECT e.class, e.ingested_at, e.no, e.id, e.pubkey, e.created_at, e.kind, e.effective, e.identifier, \
             e.parties, e.topics, octet_length(e.json)::bigint AS bytes, \
             d.source, d.first_seen_at, d.last_seen_at, d.seen_count, d.reason, d.cause, d.since ",
            $from
        )
    };
}
pub(crate) use select_rows;

/// Digest of a tag that filters can ask for. Sixteen bytes: collisions of eight can be made on purpose.
pub(crate) fn tag_digest(letter: Letter, value: &str) -> [u8; 16] {
    let mut hash = blake3::Hasher::new();
    hash.update(&[letter.code()]);
    hash.update(value.as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
    digest
}

/// Each tag once; topics have a table of their own.
pub(crate) fn tag_digests(event: &Event, topics: &[TopicId]) -> Vec<[u8; 16]> {
    let is_topic = |letter, value| letter == Letter::T && topics.iter().any(|topic| topic.as_str() == value);
    let tags: BTreeSet<_> = event.tags.indexed().filter(|&(letter, value)| !is_topic(letter, value)).collect();
    tags.into_iter().map(|(letter, value)| tag_digest(letter, value)).collect()
}

/// Public keys that may see a private event (E-10), its author first. `None`: public.
pub(crate) fn parties(event: &Event) -> Option<Vec<[u8; 32]>> {
    event.kind.is_private().then(|| {
        let mut parties = vec![*event.pubkey.as_bytes()];
        for recipient in event.recipients() {
            if !parties.contains(recipient.as_bytes()) {
                parties.push(*recipient.as_bytes());
            }
        }
        parties
    })
}

/// The `d` identifier that tells addressable events of one kind and author apart.
pub(crate) fn identifier(address: &Address) -> Option<&str> {
    (address.kind().class() == kukuri_domain::KindClass::Addressable).then(|| address.identifier())
}

pub(crate) fn place(row: &PgRow) -> Result<Option<RowPlace>> {
    let (class, at, no): (Option<&str>, Option<i64>, Option<i64>) =
        (row.try_get("class")?, row.try_get("ingested_at")?, row.try_get("no")?);
    match (class, at, no) {
        (Some(class), Some(at), Some(no)) => {
            Ok(Some(RowPlace { class: Class::read(class)?, ingested_at: millis(at), no: unsigned(no) }))
        }
        _ => Ok(None),
    }
}

pub(crate) fn known_id(row: &PgRow) -> Result<KnownId> {
    let reason: Option<i16> = row.try_get("reason")?;
    let standing = match reason {
        None => Standing::Effective,
        Some(reason) => Standing::Gone {
            reason: codes::reason(reason)?,
            cause: row.try_get::<Option<[u8; 32]>, _>("cause")?.map(event_id),
            since: millis(row.try_get::<Option<i64>, _>("since")?.unwrap_or_default()),
        },
    };
    let record = IdRecord {
        source: codes::source(row.try_get("source")?)?,
        first_seen_at: millis(row.try_get("first_seen_at")?),
        last_seen_at: millis(row.try_get("last_seen_at")?),
        seen_count: unsigned(row.try_get("seen_count")?),
        standing,
    };
    Ok(KnownId { record, place: place(row)? })
}

/// A row and the record of its id.
pub(crate) fn row(row: &PgRow) -> Result<(Row, KnownId)> {
    let known = known_id(row)?;
    let place = known.place.ok_or_else(|| damaged("a row is nowhere"))?;
    let kind = codes::kind(row.try_get("kind")?)?;
    let pubkey = PublicKey::from_bytes(row.try_get("pubkey")?);
    let parties: Option<Vec<[u8; 32]>> = row.try_get("parties")?;
    let outline = Event {
        id: event_id(row.try_get("id")?),
        pubkey,
        created_at: timestamp(row.try_get("created_at")?),
        kind,
        tags: outline_tags(kind, row.try_get("identifier")?, parties.as_deref().unwrap_or_default()),
        content: String::new(),
        sig: Signature::from_bytes([0; 64]),
    };
    let state = known.record.standing.state();
    let effective: bool = row.try_get("effective")?;
    if effective != (state == State::Effective) {
        return Err(damaged(format!("event {}: its id and its row do not agree on its state", outline.id)));
    }
    let row = Row {
        place,
        outline,
        bytes: unsigned(row.try_get("bytes")?),
        topics: row.try_get("topics")?,
        state,
        filed: Filed::Stored { effective },
        is_gone: false,
    };
    Ok((row, known))
}

/// Tags that determine the owners of an event and its key.
fn outline_tags(kind: Kind, identifier: Option<&str>, parties: &[[u8; 32]]) -> Tags {
    let mut tags: Vec<Vec<String>> = Vec::new();
    tags.extend(identifier.map(|identifier| vec!["d".to_owned(), identifier.to_owned()]));
    if kind == Kind::GIFT_WRAP {
        tags.extend(parties.iter().skip(1).map(|key| vec!["p".to_owned(), PublicKey::from_bytes(*key).to_string()]));
    }
    tags.into_iter().collect()
}

pub(crate) fn key(row: &PgRow, address: Address) -> Result<Key> {
    Ok(Key {
        address,
        floor: Rank { created_at: timestamp(row.try_get("created_at")?), id: event_id(row.try_get("id")?) },
        raised_at: millis(row.try_get("raised_at")?),
        current: row.try_get::<Option<[u8; 32]>, _>("current")?.map(event_id),
    })
}

pub(crate) fn tombstone(row: &PgRow) -> Result<Noted<Tombstone>> {
    let target = match row.try_get::<Option<&str>, _>("target_a")? {
        None => DeletionTargetKind::EventId(event_id(row.try_get("target")?)),
        Some(address) => {
            let address = address.parse().map_err(|_| damaged(format!("a tombstone names {address}")))?;
            DeletionTargetKind::Address(address)
        }
    };
    let tombstone = Tombstone {
        target: DeletionTarget {
            target,
            requester_pubkey: PublicKey::from_bytes(row.try_get("requester")?),
            request_created_at: timestamp(row.try_get("requested_at")?),
        },
        deletion_id: event_id(row.try_get("deletion_event_id")?),
        applied_at: row.try_get::<Option<i64>, _>("applied_at")?.map(millis),
    };
    Ok(Noted { what: tombstone, at: millis(row.try_get("noted_at")?) })
}

pub(crate) fn vanish_mark(row: &PgRow) -> Result<Noted<VanishMark>> {
    let mark = VanishMark {
        pubkey: PublicKey::from_bytes(row.try_get("pubkey")?),
        until: timestamp(row.try_get("until")?),
        request_id: event_id(row.try_get("request_id")?),
    };
    Ok(Noted { what: mark, at: millis(row.try_get("noted_at")?) })
}

fn counters(row: &PgRow) -> Result<Counters> {
    let (events, bytes): (Vec<i64>, Vec<i64>) = (row.try_get("events")?, row.try_get("bytes")?);
    let mut by_class = [Usage::default(); 4];
    if events.len() != by_class.len() || bytes.len() != by_class.len() {
        return Err(damaged("there are four counters, by class"));
    }
    for (usage, (events, bytes)) in by_class.iter_mut().zip(events.into_iter().zip(bytes)) {
        *usage = Usage { events: unsigned(events), bytes: unsigned(bytes) };
    }
    Ok(Counters {
        effective: unsigned(row.try_get("effective")?),
        by_class,
        stage: codes::stage(row.try_get("stage")?)?,
    })
}

/// Counters as two columns, events and bytes, each an array by class.
pub(crate) fn counter_columns(counters: &Counters) -> (Vec<i64>, Vec<i64>) {
    counters.by_class.iter().map(|usage| (codes::signed(usage.events), codes::signed(usage.bytes))).unzip()
}

pub(crate) fn topic(row: &PgRow) -> Result<(TopicNo, Topic)> {
    let topic = Topic {
        id: TopicId::trusted(row.try_get("topic_id")?),
        counters: counters(row)?,
        last_event_at: millis(row.try_get("last_event_at")?),
    };
    Ok((row.try_get("no")?, topic))
}

pub(crate) fn node(row: &PgRow) -> Result<Node> {
    Ok(Node {
        head: Seq(unsigned(row.try_get("head")?)),
        outbox_dropped: Seq(unsigned(row.try_get("outbox_dropped")?)),
        last_event: unsigned(row.try_get("last_event")?),
        last_topic: row.try_get("last_topic")?,
        clock: Clock {
            latest: millis(row.try_get("clock_latest")?),
            last: millis(row.try_get("clock_last")?),
            held: row.try_get("clock_held")?,
        },
        counters: counters(row)?,
        ids: unsigned(row.try_get("ids")?),
        failed: unsigned(row.try_get("failed")?),
        subscriptions_version: unsigned(row.try_get("subscriptions_version")?),
        loading: row.try_get("loading")?,
    })
}

pub(crate) fn offset(row: &PgRow) -> Result<ConsumerOffset> {
    Ok(ConsumerOffset {
        consumer: row.try_get("consumer")?,
        last_seq: Seq(unsigned(row.try_get("last_seq")?)),
        updated_at: millis(row.try_get("updated_at")?),
    })
}

pub(crate) fn outbox_row(row: &PgRow) -> Result<OutboxRow> {
    let effective_key = match row.try_get::<Option<&str>, _>("effective_key")? {
        None => None,
        Some(address) => Some(address.parse().map_err(|_| damaged(format!("an outbox row is of {address}")))?),
    };
    Ok(OutboxRow {
        seq: Seq(unsigned(row.try_get("seq")?)),
        op: codes::op(row.try_get("op")?, row.try_get("reason")?)?,
        event_id: event_id(row.try_get("event_id")?),
        topic: TopicId::trusted(row.try_get("topic_id")?),
        kind: codes::kind(row.try_get("kind")?)?,
        created_at: timestamp(row.try_get("created_at")?),
        ingested_at: millis(row.try_get("ingested_at")?),
        effective_key,
        written_at: millis(row.try_get("written_at")?),
    })
}

pub(crate) fn event(id: &EventId, json: &[u8]) -> Result<Event> {
    Event::from_json(json).map_err(|error| damaged(format!("event {id}: {error}")))
}

/// Expiration of an event as a column.
pub(crate) fn expires_at(event: &Event) -> Option<i64> {
    event.expiration().map(|Timestamp(seconds)| codes::signed(seconds))
}

pub(crate) fn stored_event(row: &PgRow) -> Result<StoredEvent> {
    Ok(StoredEvent {
        id: event_id(row.try_get("id")?),
        created_at: timestamp(row.try_get("created_at")?),
        json: row.try_get::<Vec<u8>, _>("json")?.into(),
    })
}
