//! The on-disk format number, and migrations from older formats.
//!
//! `Meta` holds `format` (a magic value and a number), `state` (the node's counters), `epoch` (the history that sequences belong
//! to), `loading` during a load, and `migration` during a migration. A migration works in steps. Each step commits its work together with its position,
//! so that an interrupted migration continues from there.

use heed::{RoTxn, RwTxn};
use kukuri_store::Epoch;

use crate::{
    error::{Result, damaged},
    hidden,
    pack::{Field as _, Pack},
    record::NodeRecord,
    tables::{Opened, Table, Tables, View},
    traces,
};

/// The format this program writes.
pub(crate) const FORMAT: u32 = 3;

/// All migrations, by the format they start from.
pub(crate) const MIGRATIONS: &[Migration] =
    &[Migration { from: 1, step: traces::migrate_some }, Migration { from: 2, step: hidden::migrate_some }];

const FORMAT_KEY: &[u8] = b"format";
pub(crate) const STATE_KEY: &[u8] = b"state";
const MIGRATION_KEY: &[u8] = b"migration";
pub(crate) const LOADING_KEY: &[u8] = b"loading";
const EPOCH_KEY: &[u8] = b"epoch";
const MARK: &[u8] = b"kukuri-store";

/// A migration from one format to the next.
pub(crate) struct Migration {
    pub(crate) from: u32,
    /// One bounded step, from a position (empty at first). Returns the next position, or `None` when nothing is left.
    pub(crate) step: MigrationStep,
}

type MigrationStep = fn(&Tables, &mut RwTxn<'_>, &[u8]) -> Result<Option<Vec<u8>>>;

/// Writes the format number of a new store.
pub(crate) fn initialize(txn: &mut RwTxn<'_>, meta: Opened<'_>) -> Result<()> {
    if meta.get(txn, FORMAT_KEY)?.is_none() {
        meta.put(txn, FORMAT_KEY, &mark(FORMAT))?;
        meta.put(txn, STATE_KEY, &NodeRecord::default().pack())?;
    }
    Ok(())
}

/// Writes another format number, for tests of migrations.
#[cfg(test)]
pub(crate) fn write(txn: &mut RwTxn<'_>, meta: Opened<'_>, format: u32) -> Result<()> {
    Ok(meta.put(txn, FORMAT_KEY, &mark(format))?)
}

fn mark(format: u32) -> Vec<u8> {
    Pack::with_capacity(16).bytes(MARK).field(&format).done()
}

/// The format number in a `Meta` table; `None` if another program wrote the table.
pub(crate) fn read(txn: &RoTxn<'_>, meta: Opened<'_>) -> Result<Option<u32>> {
    let Some(record) = meta.get(txn, FORMAT_KEY)? else { return Ok(None) };
    let Some(number) = record.strip_prefix(MARK) else { return Ok(None) };
    Ok(number.first_chunk().copied().map(u32::from_be_bytes))
}

/// Migrates an older store to the newest format of `migrations`.
pub(crate) fn migrate(tables: &Tables, migrations: &[Migration]) -> Result<()> {
    let meta = tables.of(Table::Meta);
    loop {
        let mut txn = tables.env.write_txn()?;
        let format = read(&txn, meta)?.ok_or_else(|| damaged("the format mark is gone"))?;
        let Some(migration) = migrations.iter().find(|migration| migration.from == format) else {
            let newest = migrations.last().map_or(FORMAT, |migration| migration.from + 1);
            return if format == newest { Ok(()) } else { Err(damaged(format!("no migration from format {format}"))) };
        };
        let place = meta.get(&txn, MIGRATION_KEY)?.unwrap_or_default().to_vec();
        match (migration.step)(tables, &mut txn, &place)? {
            Some(place) => meta.put(&mut txn, MIGRATION_KEY, &place)?,
            None => {
                meta.delete(&mut txn, MIGRATION_KEY)?;
                meta.put(&mut txn, FORMAT_KEY, &mark(format + 1))?;
                tracing::info!(from = format, to = format + 1, "store migrated");
            }
        }
        txn.commit()?;
    }
}

/// The epoch of the outbox's sequences (Y-5). Absent: no version that knows epochs has written to the store yet.
pub(crate) fn epoch(view: View<'_>) -> Result<Epoch> {
    let stored = view.get(Table::Meta, EPOCH_KEY)?.and_then(|bytes| bytes.first_chunk().copied());
    Ok(stored.map_or(Epoch::default(), |bytes| Epoch(u64::from_be_bytes(bytes))))
}

/// Gives a store an epoch if it has none, or another one if it `went_back`. No record may be pending.
pub(crate) fn ensure_epoch(tables: &Tables, went_back: bool) -> Result<()> {
    if !went_back && tables.read(|view| view.get(Table::Meta, EPOCH_KEY).map(|epoch| epoch.is_some()))? {
        return Ok(());
    }
    let mut txn = tables.env.write_txn()?;
    tables.of(Table::Meta).put(&mut txn, EPOCH_KEY, &Epoch::random()?.0.to_be_bytes())?;
    Ok(txn.commit()?)
}

/// Whether a load of another store is in progress or was interrupted.
pub(crate) fn is_loading(view: View<'_>) -> Result<bool> {
    Ok(view.get(Table::Meta, LOADING_KEY)?.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore};

    /// A migration for this test: marks the offsets of ten consumers, two per step.
    const FROM_ONE: &[Migration] = &[Migration { from: FORMAT, step: mark_some }];
    const NAMES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    static STEPS: AtomicU32 = AtomicU32::new(0);

    fn mark_some(tables: &Tables, txn: &mut RwTxn<'_>, place: &[u8]) -> Result<Option<Vec<u8>>> {
        let step = STEPS.fetch_add(1, Ordering::Relaxed);
        let done = place.first().copied().unwrap_or_default();
        for name in NAMES.iter().skip(done.into()).take(2) {
            let times = tables.of(Table::Offsets).get(txn, name.as_bytes())?.map_or(0, |mark| mark[0]);
            tables.of(Table::Offsets).put(txn, name.as_bytes(), &[times + 1])?;
        }
        if step == 2 {
            // The transaction of this step is aborted, and its writes with it.
            return Err(damaged("the power fails in the third step"));
        }
        Ok((usize::from(done) + 2 < NAMES.len()).then(|| vec![done + 2]))
    }

    #[test]
    fn interrupted_migration_continues_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let options = LmdbOptions { durability: Durability::Unsynced, map_size: 1 << 26, ..LmdbOptions::default() };
        let store = LmdbStore::open(dir.path(), options).unwrap();
        store.with_writer(|writer| {
            assert!(migrate(&writer.tables, FROM_ONE).is_err());
            let format = |writer: &crate::writer::Writer| {
                read(&writer.tables.env.read_txn().unwrap(), writer.tables.of(Table::Meta)).unwrap()
            };
            assert_eq!(format(writer), Some(FORMAT), "it is not done");

            migrate(&writer.tables, FROM_ONE).unwrap();
            assert_eq!(format(writer), Some(FORMAT + 1));
            assert_eq!(STEPS.load(Ordering::Relaxed), 6, "two steps, one lost, three more");
            let txn = writer.tables.env.read_txn().unwrap();
            for name in NAMES {
                let mark = writer.tables.of(Table::Offsets).get(&txn, name.as_bytes()).unwrap();
                assert_eq!(mark, Some(&[1][..]), "{name} is marked exactly once");
            }
        });
    }
}
