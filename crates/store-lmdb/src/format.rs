//! What a store's files are: the format number, and the way from an older one.
//!
//! `Meta` holds `format` (a mark and a number), `state` (the node's counters), and `loading` while a copy comes in. A migration works in steps; each
//! step commits its work with the place it came to, so that one that was interrupted goes on from there.

use heed::{RoTxn, RwTxn};

use crate::{
    error::{Result, damaged, engine},
    pack::{Pack, Unpack},
    record::NodeRecord,
    tables::{LmdbEnv, Opened, Table, Tables},
    traces,
};

/// The format this program writes.
pub(crate) const FORMAT: u32 = 2;

/// All migrations there are, by the format they start from.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration { from: 1, step: traces::migrate_some }];

const FORMAT_KEY: &[u8] = b"format";
const STATE_KEY: &[u8] = b"state";
const MIGRATION_KEY: &[u8] = b"migration";
const LOADING_KEY: &[u8] = b"loading";
const MARK: &[u8] = b"kukuri-store";

/// The way from one format to the next.
pub(crate) struct Migration {
    pub(crate) from: u32,
    /// Does some of the work, from the place it is given (empty at first). Returns the place it came to, or `None`
    /// when nothing is left.
    pub(crate) step: MigrationStep,
}

type MigrationStep = fn(&Tables, &mut RwTxn<'_>, &[u8]) -> Result<Option<Vec<u8>>>;

/// Writes the mark of a new store.
pub(crate) fn initialize(txn: &mut RwTxn<'_>, meta: Opened<'_>) -> Result<()> {
    if meta.get(txn, FORMAT_KEY).map_err(engine)?.is_none() {
        meta.put(txn, FORMAT_KEY, &mark(FORMAT)).map_err(engine)?;
        meta.put(txn, STATE_KEY, &NodeRecord::default().pack()).map_err(engine)?;
    }
    Ok(())
}

fn mark(format: u32) -> Vec<u8> {
    Pack::default().bytes(MARK).u32(format).done()
}

/// The format number in a `Meta` table; `None` if that table is not ours.
pub(crate) fn read(txn: &RoTxn<'_>, meta: Opened<'_>) -> Result<Option<u32>> {
    let Some(record) = meta.get(txn, FORMAT_KEY).map_err(engine)? else { return Ok(None) };
    let Some(number) = record.strip_prefix(MARK) else { return Ok(None) };
    Ok(Unpack::new("format", number).u32().ok())
}

/// Brings an older store up to the newest format of `migrations`.
pub(crate) fn migrate(env: &LmdbEnv, tables: &Tables, migrations: &[Migration]) -> Result<()> {
    let meta = tables.of(Table::Meta);
    loop {
        let mut txn = env.write_txn().map_err(engine)?;
        let format = read(&txn, meta)?.ok_or_else(|| damaged("the format mark is gone"))?;
        let Some(migration) = migrations.iter().find(|migration| migration.from == format) else {
            let newest = migrations.last().map_or(FORMAT, |migration| migration.from + 1);
            let is_known = format == newest;
            return if is_known { Ok(()) } else { Err(damaged(format!("no way leads from format {format}"))) };
        };
        let place = meta.get(&txn, MIGRATION_KEY).map_err(engine)?.unwrap_or_default().to_vec();
        match (migration.step)(tables, &mut txn, &place)? {
            Some(place) => meta.put(&mut txn, MIGRATION_KEY, &place).map_err(engine)?,
            None => {
                meta.delete(&mut txn, MIGRATION_KEY).map_err(engine)?;
                meta.put(&mut txn, FORMAT_KEY, &mark(format + 1)).map_err(engine)?;
                tracing::info!(from = format, to = format + 1, "store migrated");
            }
        }
        txn.commit().map_err(engine)?;
    }
}

pub(crate) fn node_record(tables: &Tables, txn: &RoTxn<'_>) -> Result<NodeRecord> {
    let record = tables.get(txn, Table::Meta, STATE_KEY)?.ok_or_else(|| damaged("the node's state is gone"))?;
    Ok(NodeRecord::unpack(record)?)
}

pub(crate) fn put_node_record(tables: &Tables, txn: &mut RwTxn<'_>, node: &NodeRecord) -> Result<()> {
    tables.put(txn, Table::Meta, STATE_KEY, &node.pack())
}

/// Whether pieces of another store are being loaded, or were and it broke off.
pub(crate) fn is_loading(tables: &Tables, txn: &RoTxn<'_>) -> Result<bool> {
    Ok(tables.get(txn, Table::Meta, LOADING_KEY)?.is_some())
}

pub(crate) fn set_loading(tables: &Tables, txn: &mut RwTxn<'_>, loading: bool) -> Result<()> {
    if loading {
        tables.put(txn, Table::Meta, LOADING_KEY, &[1])
    } else {
        tables.delete(txn, Table::Meta, LOADING_KEY).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{LmdbOptions, LmdbStore, Sync};

    /// A made-up migration: marks the offsets of ten consumers, two at a step.
    const FROM_ONE: &[Migration] = &[Migration { from: FORMAT, step: mark_some }];
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    static STEPS: AtomicU32 = AtomicU32::new(0);

    fn mark_some(tables: &Tables, txn: &mut RwTxn<'_>, place: &[u8]) -> Result<Option<Vec<u8>>> {
        let step = STEPS.fetch_add(1, Ordering::Relaxed);
        let done = place.first().copied().unwrap_or_default();
        for name in NAMES.iter().skip(done.into()).take(2) {
            let times = tables.get(txn, Table::Offsets, name.as_bytes())?.map_or(0, |mark| mark[0]);
            tables.put(txn, Table::Offsets, name.as_bytes(), &[times + 1])?;
        }
        if step == 2 {
            // What this step has put is lost with its transaction.
            return Err(damaged("the power fails in the third step"));
        }
        Ok((usize::from(done) + 2 < NAMES.len()).then(|| vec![done + 2]))
    }

    #[test]
    fn a_migration_that_was_interrupted_goes_on_where_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { sync: Sync::Off, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        store.with_writer(|writer| {
            assert!(migrate(&writer.env, &writer.tables, FROM_ONE).is_err());
            let format = |writer: &crate::writer::Writer| {
                read(&writer.env.read_txn().unwrap(), writer.tables.of(Table::Meta)).unwrap()
            };
            assert_eq!(format(writer), Some(FORMAT), "it is not done");

            migrate(&writer.env, &writer.tables, FROM_ONE).unwrap();
            assert_eq!(format(writer), Some(FORMAT + 1));
            assert_eq!(STEPS.load(Ordering::Relaxed), 6, "two steps, one lost, three more");
            let txn = writer.env.read_txn().unwrap();
            for name in NAMES {
                let mark = writer.tables.get(&txn, Table::Offsets, name.as_bytes()).unwrap();
                assert_eq!(mark, Some(&[1][..]), "{name} is marked exactly once");
            }
        });
    }
}
