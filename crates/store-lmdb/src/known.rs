//! Vanish marks of an event's owners, and tombstones that name the event.

use heed::RoTxn;
use kukuri_domain::{
    Event,
    deletion::{DeletionTargetKind, Tombstone},
    vanish::VanishMark,
};

use crate::{
    error::{Result, engine},
    key,
    record::{TombstoneRecord, VanishRecord},
    tables::{Table, Tables},
};

pub(crate) fn vanish_marks_of(tables: &Tables, txn: &RoTxn<'_>, event: &Event) -> Result<Vec<VanishMark>> {
    let mut marks = Vec::new();
    for owner in event.owners() {
        if let Some(record) = tables.get(txn, Table::Vanished, owner.as_bytes())? {
            marks.push(VanishRecord::unpack(record)?.mark);
        }
    }
    Ok(marks)
}

/// Tombstones that name an event's id or its address.
pub(crate) fn tombstones_of(tables: &Tables, txn: &RoTxn<'_>, event: &Event) -> Result<Vec<Tombstone>> {
    let mut tombstones = tombstones_under(tables, txn, &DeletionTargetKind::EventId(event.id))?;
    if let Some(address) = event.address() {
        tombstones.extend(tombstones_under(tables, txn, &DeletionTargetKind::Address(address))?);
    }
    Ok(tombstones)
}

pub(crate) fn tombstones_under(
    tables: &Tables,
    txn: &RoTxn<'_>,
    target: &DeletionTargetKind,
) -> Result<Vec<Tombstone>> {
    let mut tombstones = Vec::new();
    for entry in tables.of(Table::Tombstones).prefix_iter(txn, &key::tombstones(target)).map_err(engine)? {
        let (_, record) = entry.map_err(engine)?;
        tombstones.push(TombstoneRecord::unpack(record)?.tombstone);
    }
    Ok(tombstones)
}
