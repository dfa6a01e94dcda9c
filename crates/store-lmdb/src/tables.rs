//! The tables of a store: one LMDB environment, every table an ordered map of bytes.

use std::{convert::Infallible, ops::Bound};

use heed::{CommitOrAbort, Database, Env, RoIter, RoPrefix, RoRange, RoTxn, RwTxn, WithoutTls, types::Bytes};
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
    /// `format`, `state`, `epoch`, `loading`, and the cursor of a migration.
    Meta = "meta",
    /// Row number → header and JSON. Effective and hidden events, in order of arrival.
    Events = "events",
    /// Id → its record (P-1) and its row number.
    Ids = "ids",
    /// Topic → its number and counters.
    Topics = "topics",
    /// Topic number → topic. Kept until no outbox row has the number.
    TopicNames = "topic-names",
    /// Head of the outbox and number of every topic that lost its record (T-10), longest gone first.
    FormerTopics = "former-topics",
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
    /// Subject and hash of a topic → remains of events without a row (G-7).
    Remains = "remains",
    /// Hidden rows by owner and time, and versions also by address and time, for requests that apply to hidden rows, too.
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

/// The environment and its tables.
#[derive(Clone)]
pub(crate) struct Tables {
    pub(crate) env: LmdbEnv,
    databases: [Database<'static, Bytes, Bytes>; Table::ALL.len()],
}

impl Tables {
    /// Creates all tables and lets `fill` write to `Meta`, in one transaction.
    pub(crate) fn create(env: LmdbEnv, fill: impl FnOnce(&mut RwTxn<'_>, Opened<'_>) -> Result<()>) -> Result<Self> {
        let CommitOrAbort::Commit(databases) = env.create_databases_and_commit(env.write_txn()?, |opener, txn| {
            let tables = each(|table| Ok(opener.create_database(txn, Some(table.name()))?))?;
            fill(txn, tables[Table::Meta as usize])?;
            Ok::<_, Failure>(CommitOrAbort::<_, Infallible>::Commit(tables))
        })?;
        Ok(Self { env, databases })
    }

    /// Opens all tables for reading.
    pub(crate) fn open(env: LmdbEnv, missing: impl Fn() -> StoreError) -> Result<Self> {
        let CommitOrAbort::Commit(databases) = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
            let tables = each(|table| Ok(opener.open_database(txn, Some(table.name()))?.ok_or_else(&missing)?))?;
            Ok::<_, Failure>(CommitOrAbort::<_, Infallible>::Commit(tables))
        })?;
        Ok(Self { env, databases })
    }

    pub(crate) fn of(&self, table: Table) -> Database<'static, Bytes, Bytes> {
        self.databases[table as usize]
    }

    /// Reads in one transaction. It must not outlive the call: an old transaction keeps LMDB from reusing pages.
    pub(crate) fn read<T>(&self, read: impl FnOnce(View<'_>) -> Result<T>) -> Result<T> {
        let txn = self.env.read_txn()?;
        read(View { tables: self, txn: &txn })
    }

    /// High-water mark of the data file in bytes.
    pub(crate) fn file_bytes(&self) -> u64 {
        (self.env.info().last_page_number as u64 + 1) * u64::from(self.env.unnamed_database_stat().page_size)
    }
}

/// The tables as one transaction sees them.
#[derive(Clone, Copy)]
pub(crate) struct View<'t> {
    pub(crate) tables: &'t Tables,
    pub(crate) txn: &'t RoTxn<'t>,
}

impl<'t> View<'t> {
    pub(crate) fn get(self, table: Table, key: &[u8]) -> Result<Option<&'t [u8]>> {
        Ok(self.tables.of(table).get(self.txn, key)?)
    }

    pub(crate) fn find<R: Record>(self, key: &[u8]) -> Result<Option<R>> {
        self.get(R::TABLE, key)?.map(R::unpack).transpose()
    }

    pub(crate) fn iter(self, table: Table) -> Result<RoIter<'t, Bytes, Bytes>> {
        Ok(self.tables.of(table).iter(self.txn)?)
    }

    pub(crate) fn prefix_iter(self, table: Table, prefix: &[u8]) -> Result<RoPrefix<'t, Bytes, Bytes>> {
        Ok(self.tables.of(table).prefix_iter(self.txn, prefix)?)
    }

    pub(crate) fn range(self, table: Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<RoRange<'t, Bytes, Bytes>> {
        Ok(self.tables.of(table).range(self.txn, &(from, to))?)
    }

    /// The entries after a key; all if it is empty, because LMDB takes no empty key as a bound.
    pub(crate) fn after(self, table: Table, key: &[u8]) -> Result<RoRange<'t, Bytes, Bytes>> {
        self.range(table, if key.is_empty() { Bound::Unbounded } else { Bound::Excluded(key) }, Bound::Unbounded)
    }

    /// At most `limit` keys that start with `prefix` and come after `after`.
    pub(crate) fn keys_after(self, table: Table, prefix: &[u8], after: &[u8], limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for entry in self.after(table, if after.is_empty() { prefix } else { after })?.take(limit) {
            let (key, _) = entry?;
            if !key.starts_with(prefix) {
                break;
            }
            keys.push(key.to_vec());
        }
        Ok(keys)
    }

    pub(crate) fn len(self, table: Table) -> Result<u64> {
        Ok(self.tables.of(table).len(self.txn)?)
    }

    /// Bytes of the file that all tables use.
    pub(crate) fn bytes(self) -> Result<u64> {
        let mut bytes = 0;
        for database in self.tables.databases {
            let stat = database.stat(self.txn)?;
            let pages = stat.branch_pages + stat.leaf_pages + stat.overflow_pages;
            bytes += pages as u64 * u64::from(stat.page_size);
        }
        Ok(bytes)
    }
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
