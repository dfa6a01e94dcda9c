//! Any bytes that stand in a table: a byte for the table, then a record and its key.

use kukuri_domain::Timestamp;

use crate::{
    key::{self, EventNo, Order},
    pack::{Field, Record},
    record::{
        Cover, KeyRecord, KnownId, NodeRecord, OffsetRecord, OutboxRecord, Row, TombstoneRecord, TopicRecord,
        VanishRecord,
    },
};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Some((table, record)) = bytes.split_first() else { return };
    match table % 10 {
        0 => check_record::<KnownId>(record),
        1 => check_record::<KeyRecord>(record),
        2 => check_record::<TombstoneRecord>(record),
        3 => check_record::<VanishRecord>(record),
        4 => check_record::<OutboxRecord>(record),
        5 => check_record::<OffsetRecord>(record),
        6 => check_record::<TopicRecord>(record),
        7 => check_record::<NodeRecord>(record),
        8 => check_cover(record),
        _ => check_row(record),
    }
    check_keys(record);
}

/// What is read is written and read again as the same.
fn check_record<R: Record>(record: &[u8]) {
    let Ok(read) = R::unpack(record) else { return };
    let written = read.pack();
    let again = R::unpack(&written).unwrap_or_else(|error| panic!("what this store writes, it reads: {error}"));
    assert_eq!(again.pack(), written);
}

fn check_cover(record: &[u8]) {
    if let Ok(cover) = Cover::unpack(record) {
        let written = cover.pack();
        assert_eq!(record[..written.len()], written);
        assert_eq!(Cover::unpack(&written).ok(), Some(cover));
    }
}

/// What is read at fixed positions of a stored event is what its JSON says.
fn check_row(record: &[u8]) {
    let Ok(row) = Row::unpack(record) else { return };
    assert!(row.topics.len() * 4 + row.json.len() <= record.len());
    let (id, pubkey, time_and_kind) = (row.id(), row.pubkey(), row.time_and_kind());
    if let Ok(event) = row.event()
        && event.to_json() == row.json
    {
        assert_eq!(id.ok(), Some(event.id));
        assert_eq!(pubkey.ok(), Some(event.pubkey));
        assert_eq!(time_and_kind.ok(), Some((event.created_at, event.kind)));
    }
}

fn check_keys(bytes: &[u8]) {
    let (no, seq) = (EventNo::of_key(bytes), key::seq_of(bytes));
    assert_eq!(no.is_ok(), bytes.len() >= 8);
    assert_eq!(no.ok().map(|no| no.0), seq.ok().map(|seq| seq.0));
    let Some(order) = Order::of_key(bytes) else { return };
    assert!(bytes.ends_with(order.as_bytes()));
    let second = order.created_at();
    if second < Timestamp(1 << 56) {
        assert!(Order::at(second) <= order && order <= Order::end_of(second));
    }
}

/// A record of each table.
#[cfg(test)]
pub(super) fn examples() -> Vec<(&'static str, Vec<u8>)> {
    use kukuri_domain::{
        Address, EventId, Kind, Millis, PublicKey, Rank, Reason, Source, State,
        deletion::{DeletionTarget, DeletionTargetKind, Tombstone},
        sharing::RequestRef,
        vanish::VanishMark,
    };
    use kukuri_store::{IdRecord, Op, Seq, Standing, conformance::build::note};

    use crate::{
        key::{AuthorNo, TopicNo},
        pack::Pack,
        record::Traits,
    };

    let (id, pubkey) = (EventId::from_bytes([3; 32]), PublicKey::from_bytes([4; 32]));
    let key = Address::addressable(Kind(30_023), pubkey, "a:b");
    let target = |target| DeletionTarget { target, requester_pubkey: pubkey, request_created_at: Timestamp(9) };
    let shareable = Some(RequestRef { created_at: Timestamp(8), id });
    let tombstone = |kind| {
        let tombstone = Tombstone { target: target(kind), deletion_id: id, applied_at: Some(Millis(5)), shareable };
        TombstoneRecord::new(tombstone, Millis(6))
    };
    let mark = VanishMark { pubkey, until: Timestamp(3), request_id: id, shareable: None };
    let known = |standing| KnownId {
        record: IdRecord {
            source: Source::Gossip,
            first_seen_at: Millis(1),
            last_seen_at: Millis(2),
            seen_count: 3,
            standing,
        },
        no: Some(EventNo(4)),
    };
    let gone = Standing::Gone { reason: Reason::Nip09, cause: Some(id), since: Millis(8) };
    let outbox = |op, effective_key| OutboxRecord {
        op,
        event_id: id,
        topic: TopicNo(2),
        kind: Kind(30_023),
        created_at: Timestamp(7),
        ingested_at: Millis(8),
        written_at: Millis(9),
        effective_key,
    };
    let cover = Cover { kind: Kind(1), author: AuthorNo(2), topic: TopicNo(3), traits: Traits::default() };
    let event = note("stored").build();
    let row = Pack::with_capacity(0).field(&Millis(7)).field(&State::Effective).field(&Traits::default());
    let row = row.field(&1u16).field(&TopicNo(1)).bytes(&event.to_json()).done();
    let with_table = |table: u8, record: Vec<u8>| [vec![table], record].concat();
    vec![
        ("id_effective", with_table(0, known(Standing::Effective).pack())),
        ("id_gone", with_table(0, known(gone).pack())),
        (
            "key",
            with_table(
                1,
                KeyRecord { floor: Rank { created_at: Timestamp(1), id }, raised_at: Millis(2), current: None }.pack(),
            ),
        ),
        ("tombstone_of_an_id", with_table(2, tombstone(DeletionTargetKind::EventId(id)).pack())),
        ("tombstone_of_an_address", with_table(2, tombstone(DeletionTargetKind::Address(key.clone())).pack())),
        ("vanish", with_table(3, VanishRecord::new(mark, Millis(4)).pack())),
        ("outbox_upsert", with_table(4, outbox(Op::Upsert, Some(key)).pack())),
        ("outbox_delete", with_table(4, outbox(Op::Delete(Reason::Capacity), None).pack())),
        ("offset", with_table(5, OffsetRecord { last_seq: Seq(1), updated_at: Millis(2) }.pack())),
        ("topic", with_table(6, TopicRecord::default().pack())),
        ("node", with_table(7, NodeRecord::default().pack())),
        ("cover", with_table(8, cover.pack())),
        ("row", with_table(9, row)),
    ]
}
