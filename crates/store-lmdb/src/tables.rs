//! The tables of a store: one LMDB environment, every table an ordered map of bytes.

use std::ops::Bound;

use heed::{CommitOrAbort, Database, Env, PutFlags, RoRange, RoTxn, RwTxn, WithoutTls, types::Bytes};
use kukuri_store::StoreError;

use crate::{
    error::{Failure, Result},
    pack::Record,
};

pub(crate) type LmdbEnv = Env<WithoutTls>;

macro_rules! tables {
    ($($(#[$doc:meta])* $table:ident = $name:literal,)+) => {
        /// One table. `key` has the layouts of keys, `record` those of values.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum Table {
            $($(#[$doc])* $table,)+
        }

        impl Table {
            pub(crate) const ALL: [Self; [$(Self::$table),+].len()] = [$(Self::$table),+];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$table => $name,)+
                }
            }
        }
    };
}

tables! {
    /// `format`, `state`, `loading`, and the cursor of a migration.
    Meta = "meta",
    /// Row number → header and JSON. Effective and hidden events, in order of arrival.
    Events = "events",
    /// Id → its record (P-1) and its row number.
    Ids = "ids",
    /// Topic → its number and counters.
    Topics = "topics",
    /// Topic number → topic.
    TopicNames = "topic-names",
    /// Public key → author number.
    Authors = "authors",
    /// Topic, newest first. Effective events only, as in all `By` tables.
    ByTopic = "by-topic",
    /// Topic and kind, newest first.
    ByTopicKind = "by-topic-kind",
    /// Author and topic, newest first.
    ByAuthor = "by-author",
    /// Kind, newest first.
    ByKind = "by-kind",
    /// Tag letter and value, newest first.
    ByTag = "by-tag",
    /// Digest of an address → its floor and its effective row (P-4).
    Keys = "keys",
    /// Target and requester → deletion (D-6).
    Tombstones = "tombstones",
    /// Public key → vanish mark (D-12).
    Vanished = "vanished",
    /// Hash of a topic, newest first → trace of a request, for other nodes (G-7).
    Traces = "traces",
    /// Id and hash of a topic → `created_at` of the trace.
    TracesById = "traces-by-id",
    /// Owner, address and row number of hidden rows, for requests that apply to hidden rows, too.
    Hidden = "hidden",
    /// Expiration and row number of effective events.
    Expiry = "expiry",
    /// Topic, retention class and row number of every row, oldest first.
    Ages = "ages",
    /// Last-seen time and id of every id without a row, longest unseen first.
    Gone = "gone",
    /// Sequence → outbox row.
    Outbox = "outbox",
    /// Consumer → its offset.
    Offsets = "offsets",
    /// Topic → node-level subscription.
    Subscriptions = "subscriptions",
}

#[derive(Clone, Copy)]
pub(crate) struct Tables([Database<'static, Bytes, Bytes>; Table::ALL.len()]);

impl Tables {
    /// Creates all tables and lets `fill` write to `Meta`, in one transaction.
    pub(crate) fn create(env: &LmdbEnv, fill: impl FnOnce(&mut RwTxn<'_>, Opened<'_>) -> Result<()>) -> Result<Self> {
        let made = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let tables = each(|table| Ok(opener.create_database(txn, Some(table.name()))?))?;
            fill(txn, tables[Table::Meta as usize])?;
            Ok::<_, Failure>(CommitOrAbort::<_, ()>::Commit(tables))
        })?;
        Ok(Self(committed(made)))
    }

    /// Opens all tables for reading.
    pub(crate) fn open(env: &LmdbEnv, missing: impl Fn() -> StoreError) -> Result<Self> {
        let opened = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
            let tables = each(|table| Ok(opener.open_database(txn, Some(table.name()))?.ok_or_else(&missing)?))?;
            Ok::<_, Failure>(CommitOrAbort::<_, ()>::Commit(tables))
        })?;
        Ok(Self(committed(opened)))
    }

    pub(crate) fn of(&self, table: Table) -> Database<'static, Bytes, Bytes> {
        self.0[table as usize]
    }

    pub(crate) fn get<'txn>(&self, txn: &'txn RoTxn<'_>, table: Table, key: &[u8]) -> Result<Option<&'txn [u8]>> {
        Ok(self.of(table).get(txn, key)?)
    }

    pub(crate) fn find<R: Record>(&self, txn: &RoTxn<'_>, key: &[u8]) -> Result<Option<R>> {
        self.get(txn, R::TABLE, key)?.map(R::unpack).transpose()
    }

    /// The entries after a key; all if it is empty, because LMDB takes no empty key as a bound.
    pub(crate) fn after<'t>(&self, txn: &'t RoTxn<'_>, table: Table, key: &[u8]) -> Result<RoRange<'t, Bytes, Bytes>> {
        let from = if key.is_empty() { Bound::Unbounded } else { Bound::Excluded(key) };
        Ok(self.of(table).range(txn, &(from, Bound::Unbounded))?)
    }

    /// At most `limit` keys that start with `prefix` and come after `after`.
    pub(crate) fn keys_after(
        &self,
        txn: &RoTxn<'_>,
        table: Table,
        prefix: &[u8],
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for entry in self.after(txn, table, if after.is_empty() { prefix } else { after })?.take(limit) {
            let (key, _) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    pub(crate) fn put(&self, txn: &mut RwTxn<'_>, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.of(table).put(txn, key, value)?)
    }

    /// Appends a key that is greater than all others, which fills pages completely.
    pub(crate) fn append(&self, txn: &mut RwTxn<'_>, table: Table, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.of(table).put_with_flags(txn, PutFlags::APPEND, key, value)?)
    }

    pub(crate) fn delete(&self, txn: &mut RwTxn<'_>, table: Table, key: &[u8]) -> Result<()> {
        self.of(table).delete(txn, key)?;
        Ok(())
    }

    pub(crate) fn len(&self, txn: &RoTxn<'_>, table: Table) -> Result<u64> {
        Ok(self.of(table).len(txn)?)
    }

    /// Bytes of the file that all tables use.
    pub(crate) fn bytes(&self, txn: &RoTxn<'_>) -> Result<u64> {
        let mut bytes = 0;
        for database in self.0 {
            let stat = database.stat(txn)?;
            let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
            bytes += pages as u64 * u64::from(stat.page_size);
        }
        Ok(bytes)
    }
}

/// High-water mark of the data file in bytes.
pub(crate) fn used_bytes(env: &LmdbEnv) -> u64 {
    (env.info().last_page_number as u64 + 1) * u64::from(env.unnamed_database_stat().page_size)
}

/// A table within the transaction that opens it.
pub(crate) type Opened<'e> = Database<'e, Bytes, Bytes>;

fn each<'e>(mut open: impl FnMut(Table) -> Result<Opened<'e>>) -> Result<[Opened<'e>; Table::ALL.len()]> {
    let first = open(Table::ALL[0])?;
    let mut tables = [first; Table::ALL.len()];
    for table in Table::ALL.into_iter().skip(1) {
        tables[table as usize] = open(table)?;
    }
    Ok(tables)
}

fn committed<T>(made: CommitOrAbort<T, ()>) -> T {
    match made {
        CommitOrAbort::Commit(tables) => tables,
        CommitOrAbort::Abort(()) => unreachable!("the transaction is never aborted"),
    }
}
