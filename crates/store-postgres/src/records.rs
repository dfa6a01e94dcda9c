//! Conversion of rows to values, and of events to columns.

use std::collections::BTreeSet;

use kukuri_domain::{
    Address, Event, EventId, Kind, KindClass, Letter, Millis, PublicKey, Rank, Reason, Signature, State, Tags, TopicId,
    capacity::Usage,
    clock::Clock,
    deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
    sharing::RequestRef,
    vanish::VanishMark,
};
use kukuri_postgres::{FixedBytes, SqlRow};
use kukuri_store::{
    BoundEvent, ConsumerOffset, IdRecord, Op, OutboxRow, RowRecord, Standing, StoredEvent, counters::Counters,
};

use crate::{
    columns::{Column as _, Digest, REASONS, ReadColumn as _, TagDigest, from_columns, unsigned},
    error::{Result, damaged},
    work::{Key, Node, Noted, Row, RowPlace, RowSource, Topic},
};

/// Selects rows joined with the records of their ids, as [`row`] reads them.
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

/// The ids of the topics of a row `e`, in order.
macro_rules! topic_ids {
    () => {
        "ARRAY(SELECT t.topic_id FROM unnest(e.topics) WITH ORDINALITY AS u (no, place) \
         JOIN cn_relay.topics t ON t.no = u.no ORDER BY u.place)"
    };
}
pub(crate) use topic_ids;

/// Digest of a tag that filters can ask for. Sixteen bytes: collisions of eight can be made on purpose.
pub(crate) fn tag_digest(letter: Letter, value: &str) -> TagDigest {
    let mut hash = blake3::Hasher::new();
    hash.update(&[letter.code()]);
    hash.update(value.as_bytes());
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
    FixedBytes(digest)
}

/// Each tag once; topics have a table of their own.
pub(crate) fn tag_digests(event: &Event, topics: &[TopicId]) -> Vec<TagDigest> {
    let is_topic = |letter, value| letter == Letter::T && topics.iter().any(|topic| topic.as_str() == value);
    let tags: BTreeSet<_> = event.tags.indexed().filter(|&(letter, value)| !is_topic(letter, value)).collect();
    tags.into_iter().map(|(letter, value)| tag_digest(letter, value)).collect()
}

/// Public keys that may see a private event (E-10), its author first. `None`: public.
pub(crate) fn parties(event: &Event) -> Option<Vec<Digest>> {
    event.kind.is_private().then(|| {
        let mut parties = vec![event.pubkey.to_sql()];
        for recipient in event.recipients().map(|recipient| recipient.to_sql()) {
            if !parties.contains(&recipient) {
                parties.push(recipient);
            }
        }
        parties
    })
}

/// The `d` identifier that tells addressable events of one kind and author apart.
pub(crate) fn identifier(address: &Address) -> Option<&str> {
    (address.kind().class() == KindClass::Addressable).then(|| address.identifier())
}

/// The states of known ids, as [`state`] reads them.
pub(crate) const STATES: &str = "SELECT event_id, reason FROM cn_relay.ids WHERE event_id = ANY($1)";

pub(crate) fn state(row: &SqlRow) -> Result<(EventId, State)> {
    let reason: Option<Reason> = row.read("reason")?;
    Ok((row.read("event_id")?, reason.map_or(State::Effective, |reason| reason.state())))
}

fn standing(row: &SqlRow) -> Result<Standing> {
    Ok(match row.read("reason")? {
        None => Standing::Effective,
        Some(reason) => {
            let since = row.read::<Option<_>>("since")?.unwrap_or_default();
            Standing::Gone { reason, cause: row.read("cause")?, since }
        }
    })
}

/// `reason`, `cause` and `since` of an id.
pub(crate) fn standing_columns(standing: Standing) -> (Option<Reason>, Option<EventId>, Option<Millis>) {
    match standing {
        Standing::Effective => (None, None, None),
        Standing::Gone { reason, cause, since } => (Some(reason), cause, Some(since)),
    }
}

pub(crate) fn id_record(row: &SqlRow) -> Result<IdRecord> {
    Ok(from_columns!(row => IdRecord { source, first_seen_at, last_seen_at, seen_count; standing: standing(row)? }))
}

/// A row and the record of its id.
pub(crate) fn row(row: &SqlRow) -> Result<Row> {
    let kind = row.read("kind")?;
    let parties: Option<Vec<Digest>> = row.get("parties")?;
    let tags = outline_tags(kind, row.get("identifier")?, parties.as_deref().unwrap_or_default());
    let sig = Signature::from_bytes([0; 64]);
    let outline = from_columns!(row => Event { id, pubkey, created_at; kind, tags, content: String::new(), sig });
    let place = from_columns!(row => RowPlace { class, ingested_at, no });
    let record = id_record(row)?;
    if row.read::<bool>("effective")? != (record.standing == Standing::Effective) {
        return Err(damaged(format!("event {}: its id and its row do not agree on its state", outline.id)));
    }
    let source = RowSource::Stored { record, class: place.class };
    Ok(from_columns!(row => Row { bytes, topics; place, outline, record, source, is_gone: false }))
}

/// Tags that determine the owners of an event and its key.
fn outline_tags(kind: Kind, identifier: Option<&str>, parties: &[Digest]) -> Tags {
    let mut tags: Vec<Vec<String>> = Vec::new();
    tags.extend(identifier.map(|identifier| vec!["d".to_owned(), identifier.to_owned()]));
    if kind == Kind::GIFT_WRAP {
        tags.extend(parties.iter().skip(1).map(|key| vec!["p".to_owned(), PublicKey::from_bytes(key.0).to_string()]));
    }
    tags.into_iter().collect()
}

pub(crate) fn rank(row: &SqlRow) -> Result<Rank> {
    Ok(from_columns!(row => Rank { created_at, id }))
}

pub(crate) fn key(row: &SqlRow, address: Address) -> Result<Key> {
    Ok(from_columns!(row => Key { raised_at, current; floor: rank(row)?, address }))
}

pub(crate) fn tombstone(row: &SqlRow) -> Result<Noted<Tombstone>> {
    let target = match row.read("target_a")? {
        None => DeletionTargetKind::EventId(row.read("target")?),
        Some(address) => DeletionTargetKind::Address(address),
    };
    let target = DeletionTarget {
        target,
        requester_pubkey: row.read("requester")?,
        request_created_at: row.read("requested_at")?,
    };
    let deletion_id = row.read("deletion_event_id")?;
    let tombstone = from_columns!(row => Tombstone { applied_at; target, deletion_id, shareable: shareable(row)? });
    Ok(Noted { what: tombstone, at: row.read("noted_at")? })
}

pub(crate) fn vanish_mark(row: &SqlRow) -> Result<Noted<VanishMark>> {
    let mark = from_columns!(row => VanishMark { pubkey, until, request_id; shareable: shareable(row)? });
    Ok(Noted { what: mark, at: row.read("noted_at")? })
}

fn shareable(row: &SqlRow) -> Result<Option<RequestRef>> {
    let (at, id) = (row.read("shareable_at")?, row.read("shareable_id")?);
    Ok(Option::zip(at, id).map(|(created_at, id)| RequestRef { created_at, id }))
}

fn counters(row: &SqlRow) -> Result<Counters> {
    let (events, bytes): (Vec<i64>, Vec<i64>) = (row.get("events")?, row.get("bytes")?);
    let usage = events.into_iter().zip(bytes);
    let usage = usage.map(|(events, bytes)| Usage { events: unsigned(events), bytes: unsigned(bytes) });
    let by_class = usage.collect::<Vec<_>>().try_into().map_err(|_| damaged("there are four counters, by class"))?;
    Ok(from_columns!(row => Counters { effective, stage; by_class }))
}

pub(crate) fn topic(row: &SqlRow) -> Result<Topic> {
    Ok(from_columns!(row => Topic { no, last_event_at; id: row.read("topic_id")?, counters: counters(row)? }))
}

pub(crate) fn node(row: &SqlRow) -> Result<Node> {
    let clock = Clock {
        latest: row.read("clock_latest")?,
        last: row.read("clock_last")?,
        held_since: row.read("clock_held_since")?,
    };
    Ok(from_columns!(row => Node {
        head, outbox_dropped, last_event, last_topic, ids, failed, subscriptions_version, loading;
        clock, counters: counters(row)?
    }))
}

pub(crate) fn offset(row: &SqlRow) -> Result<ConsumerOffset> {
    Ok(from_columns!(row => ConsumerOffset { consumer, last_seq, updated_at }))
}

/// `op` and `reason` of an outbox row, as other services read them (O-1).
pub(crate) fn op_columns(op: Op) -> (&'static str, Option<&'static str>) {
    match op {
        Op::Upsert => ("upsert", None),
        Op::Delete(reason) => ("delete", Some(reason.as_str())),
    }
}

pub(crate) fn outbox_row(row: &SqlRow) -> Result<OutboxRow> {
    let op = match (row.get("op")?, row.get::<Option<&str>>("reason")?) {
        ("upsert", _) => Op::Upsert,
        (_, name) => {
            let reason = REASONS.into_iter().find(|reason| Some(reason.as_str()) == name);
            Op::Delete(reason.ok_or_else(|| damaged(format!("an outbox row is deleted for {name:?}")))?)
        }
    };
    Ok(from_columns!(row => OutboxRow {
        seq, event_id, kind, created_at, ingested_at, effective_key, written_at; op, topic: row.read("topic_id")?
    }))
}

pub(crate) fn event(id: &EventId, json: &[u8]) -> Result<Event> {
    Event::from_json(json).map_err(|error| damaged(format!("event {id}: {error}")))
}

pub(crate) fn stored_event(row: &SqlRow) -> Result<StoredEvent> {
    Ok(from_columns!(row => StoredEvent { id, created_at, json }))
}

/// The event of a row with its topics, selected by [`topic_ids`].
pub(crate) fn bound_event(row: &SqlRow) -> Result<BoundEvent> {
    Ok(from_columns!(row => BoundEvent { topics, ingested_at; event: stored_event(row)? }))
}

/// The stored part of a row with its topics, selected by [`topic_ids`].
pub(crate) fn row_record(row: &SqlRow) -> Result<RowRecord> {
    Ok(from_columns!(row => RowRecord { json, ingested_at, topics }))
}
