//! Hidden rows by their owners and addresses, oldest first: requests read only the rows that they cover.

use std::ops::Bound;

use heed::RwTxn;
use kukuri_domain::{Kind, Letter, Timestamp, vanish::VanishMark};

use crate::{
    batch::StoredRow,
    error::{Result, damaged},
    index::IndexRows,
    key::{self, AuthorNo, EventNo, Order, prefix},
    record::Cover,
    scan::next_distinct,
    tables::{Table, Tables, View},
};

/// Keys that a step of the migration reads.
const STEP: usize = 1_000;

impl View<'_> {
    /// Hidden rows under a prefix, created no later than `until`.
    pub(crate) fn hidden_until(self, prefix: &[u8], until: Timestamp) -> Result<Vec<EventNo>> {
        let last = key::hidden(prefix.to_vec(), until, EventNo(u64::MAX));
        let entries = self.range(Table::Hidden, Bound::Included(prefix), Bound::Included(&last))?;
        entries.map(|entry| EventNo::of_key(entry?.0)).collect()
    }

    /// Rows that a vanish mark covers: of its author, gift wraps for the author, and hidden rows of either (D-12).
    /// Index rows up to `earlier`, the time of the mark that this one replaces, are not read: that mark has removed what it
    /// covers, and kept it out since. So a mention of the author, which stays, is read once, however many requests there are.
    pub(crate) fn rows_covered_by(self, mark: &VanishMark, earlier: Option<Timestamp>) -> Result<Vec<EventNo>> {
        let mut rows = self.hidden_until(&key::hidden_rows(&mark.pubkey), mark.until)?;
        if let Some(author) = self.find::<AuthorNo>(mark.pubkey.as_bytes())? {
            let (of_author, mut topic) = (prefix::author(author), None);
            while let Some(next) = next_distinct(self, Table::ByAuthor, &of_author, topic, 4)? {
                self.indexed_between(earlier, mark.until, Table::ByAuthor, next.prefix, |_| true, &mut rows)?;
                topic = Some(next.prefix);
            }
        }
        let recipient = prefix::tag(Letter::P, &mark.pubkey.to_string());
        let is_wrap = |cover: &Cover| cover.kind == Kind::GIFT_WRAP;
        self.indexed_between(earlier, mark.until, Table::ByTag, &recipient, is_wrap, &mut rows)?;
        Ok(rows)
    }

    /// Rows of a newest-first table under a complete prefix, created after `after` and no later than `until`.
    fn indexed_between(
        self,
        after: Option<Timestamp>,
        until: Timestamp,
        table: Table,
        prefix: &[u8],
        wanted: impl Fn(&Cover) -> bool,
        numbers: &mut Vec<EventNo>,
    ) -> Result<()> {
        let first = [prefix, Order::at(until.min(Timestamp::MAX_IN_EVENT)).as_bytes()].concat();
        let last =
            after.map_or([u8::MAX; Order::LEN], |after| *Order::at(after.min(Timestamp::MAX_IN_EVENT)).as_bytes());
        let last = [prefix, &last].concat();
        for entry in self.range(table, Bound::Included(&first), Bound::Included(&last))? {
            let (key, cover) = entry?;
            let order = Order::of_key(key).ok_or_else(|| damaged(format!("a key of {} is too short", table.name())))?;
            if wanted(&Cover::unpack(cover)?) {
                numbers.push(order.no());
            }
        }
        Ok(())
    }
}

/// One step of the migration: until format 2 the keys of hidden rows had no time, and rows were under their address or
/// under their owner, not under both. Then topics without rows lose their records.
pub(crate) fn migrate_some(tables: &Tables, txn: &mut RwTxn<'_>, place: &[u8]) -> Result<Option<Vec<u8>>> {
    // The first byte of the position: hidden rows, or topics.
    match place {
        [] => migrate_hidden(tables, txn, &[]),
        [0, after @ ..] => migrate_hidden(tables, txn, after),
        [_, after @ ..] => migrate_topics(tables, txn, after),
    }
}

fn position(phase: u8, after: &[u8]) -> Option<Vec<u8>> {
    Some([&[phase], after].concat())
}

fn migrate_hidden(tables: &Tables, txn: &mut RwTxn<'_>, after: &[u8]) -> Result<Option<Vec<u8>>> {
    let keys = View { tables, txn }.keys_after(Table::Hidden, &[], after, STEP)?;
    // New keys are longer; some of them come after the position.
    for key in keys.iter().filter(|key| key.len() < key::HIDDEN_LEN) {
        let view = View { tables, txn };
        let no = EventNo::of_key(key)?;
        let row = view.row(no)?.ok_or_else(|| damaged(format!("row {} is missing", no.0)))?;
        let rows = IndexRows::of_hidden(&StoredRow::read(no, row)?);
        tables.of(Table::Hidden).delete(txn, key)?;
        for (_, new) in rows.keys.iter().filter(|(table, _)| *table == Table::Hidden) {
            tables.of(Table::Hidden).put(txn, new, &[])?;
        }
    }
    Ok(match keys.last() {
        Some(last) if keys.len() == STEP => position(0, last),
        _ => position(1, &[]),
    })
}

fn migrate_topics(tables: &Tables, txn: &mut RwTxn<'_>, after: &[u8]) -> Result<Option<Vec<u8>>> {
    let view = View { tables, txn };
    let (subscriptions, head) = (crate::subscriptions::load(view)?, view.node()?.head);
    let keys = view.keys_after(Table::Topics, &[], after, STEP)?;
    for key in &keys {
        crate::former_topics::remove_if_over(tables, txn, &subscriptions, head, key)?;
    }
    Ok(match keys.last() {
        Some(last) if keys.len() == STEP => position(1, last),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Event, EventId};
    use kukuri_store::{
        Outcome,
        conformance::build::{ALICE, BOB, NOW, admitted, at, bare, deletion, later, note, profile, topic, vanish},
        ingest::Ledger as _,
        port::*,
    };

    use super::*;
    use crate::{Durability, LmdbOptions, LmdbStore, batch::Batch, format, record::NodeRecord};

    fn options() -> LmdbOptions {
        // Without group commit: what is read was committed.
        let group_commit_window = std::time::Duration::ZERO;
        LmdbOptions {
            durability: Durability::Unsynced,
            map_size: 1 << 26,
            group_commit_window,
            ..LmdbOptions::default()
        }
    }

    fn block_on<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    async fn ingest(store: &LmdbStore, events: &[Event]) {
        for some in events.chunks(200) {
            let outcomes = store.ingest(some.iter().map(admitted).collect(), NOW).await.unwrap().outcomes;
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Stored), "{outcomes:?}");
        }
    }

    #[test]
    fn requests_read_only_the_hidden_rows_that_they_cover() {
        // D-4, D-12: 200 versions, of which each request covers the first ones.
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(async {
            let versions: Vec<Event> = (10..210).map(|n| profile(&n.to_string()).at(n).build()).collect();
            ingest(&store, &versions).await;
            let notes: Vec<Event> = (10..60).map(|n| note(&n.to_string()).at(n).build()).collect();
            ingest(&store, &notes).await;
            ingest(&store, &[notes.iter().take(20).fold(deletion().at(300), |draft, note| draft.of(note)).build()])
                .await;
            let wraps: Vec<Event> = (10..60)
                .map(|n| bare(1059).by(BOB).at(n).tag(["p", &ALICE.to_string()]).content(&n.to_string()).build())
                .collect();
            ingest(&store, &wraps).await;
        });
        for (until, covered) in [(5, 0), (10, 3), (12, 9), (400, 301)] {
            let (of_owner, of_key) = store.with_writer(move |writer| {
                let batch = Batch::resume(writer.context()).unwrap();
                let request_id = EventId::from_bytes([1; 32]);
                let mark = VanishMark { pubkey: ALICE, until: at(until), request_id, shareable: None };
                let address = profile("any").build().address().unwrap();
                let mut owned = batch.rows_owned_by(&mark).unwrap();
                owned.sort_unstable();
                owned.dedup();
                (owned.len(), batch.versions_until(&address, at(until)).unwrap().len())
            });
            // A version, a deleted or effective note and a wrap each second; one more request at the end.
            assert_eq!(of_owner, covered, "until {until}");
            let versions = if until < 10 { 0 } else { (until - 9).min(199) as usize };
            assert_eq!(of_key, versions + 1, "until {until}: and the effective version, which is compared by its time");
        }
    }

    #[test]
    fn each_vanish_request_reads_only_the_rows_since_the_earlier_one() {
        // D-12, M1: 100 mentions and 100 wraps for the author, and 100 notes of the author.
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        let alice = ALICE.to_string();
        let to_alice = |kind, n: u64| bare(kind).by(BOB).at(n).tag(["p", &alice]).tag(["t", topic().as_str()]).build();
        block_on(async {
            let mentions: Vec<Event> = (0..100).map(|n| to_alice(1, n)).collect();
            let wraps: Vec<Event> = (0..100).map(|n| to_alice(1059, n)).collect();
            let notes: Vec<Event> = (0..100).map(|n| note("text").at(n).build()).collect();
            for events in [&mentions, &wraps, &notes] {
                ingest(&store, events).await;
            }
            for (until, left) in [(29, 70), (9, 70), (69, 30), (500, 0)] {
                ingest(&store, &[vanish().at(until).build()]).await;
                let states = |events: &[Event]| events.iter().map(|event| event.id).collect::<Vec<_>>();
                for (what, events, expected) in
                    [("mentions", &mentions, 100), ("wraps", &wraps, left), ("notes", &notes, left)]
                {
                    let states = store.known_states(&states(events), later(1)).await.unwrap();
                    let effective = states.iter().filter(|state| **state == Some(kukuri_domain::State::Effective));
                    assert_eq!(effective.count(), expected, "{what} after a request until {until}");
                }
            }
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
        // The rows that a request reads, which does not remove them here.
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(async {
            let wraps: Vec<Event> = (0..100).map(|n| to_alice(1059, n)).collect();
            let notes: Vec<Event> = (0..100).map(|n| note("text").at(n).build()).collect();
            ingest(&store, &wraps).await;
            ingest(&store, &notes).await;
        });
        let read = store.with_writer(|writer| {
            let mut batch = Batch::resume(writer.context()).unwrap();
            [(29, ALICE), (69, BOB), (69, ALICE), (500, ALICE)].map(|(until, pubkey)| {
                let request_id = EventId::from_bytes([until as u8; 32]);
                let mark = VanishMark { pubkey, until: at(until), request_id, shareable: None };
                batch.put_vanish_mark(mark).unwrap();
                batch.rows_owned_by(&mark).unwrap().len()
            })
        });
        assert_eq!(read, [60, 70, 80, 60], "wraps and notes, but Bob's wraps are 70 of his own events");
    }

    /// Rewrites the hidden rows as format 2 had them: owner, address or zeros, row number.
    fn write_format_2(tables: &Tables) {
        let mut txn = tables.env.write_txn().unwrap();
        let keys = View { tables, txn: &txn }.keys_after(Table::Hidden, &[], &[], usize::MAX).unwrap();
        for key in &keys {
            tables.of(Table::Hidden).delete(&mut txn, key).unwrap();
        }
        let keys = View { tables, txn: &txn }.keys_after(Table::Events, &[], &[], usize::MAX).unwrap();
        for key in keys {
            let (view, no) = (View { tables, txn: &txn }, EventNo::of_key(&key).unwrap());
            let row = StoredRow::read(no, view.row(no).unwrap().unwrap()).unwrap();
            if !row.is_effective() {
                let address = row.event.address().filter(|_| row.state != kukuri_domain::State::Deleted);
                let digest = address.map_or([0; 32], |address| address.digest().0);
                let old = [row.event.pubkey.as_bytes(), &digest[..8], &no.key()].concat();
                tables.of(Table::Hidden).put(&mut txn, &old, &[]).unwrap();
            }
        }
        format::write(&mut txn, tables.of(Table::Meta), 2).unwrap();
        txn.commit().unwrap();
    }

    #[test]
    fn migration_moves_hidden_rows_and_continues_after_an_interruption() {
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(async {
            let versions: Vec<Event> = (0..1_600).map(|n| profile(&n.to_string()).at(n).build()).collect();
            ingest(&store, &versions).await;
            let notes: Vec<Event> = (0..900).map(|n| note(&n.to_string()).by(BOB).at(n).build()).collect();
            ingest(&store, &notes).await;
            for some in notes.chunks(300) {
                ingest(&store, &[some.iter().fold(deletion().by(BOB).at(1_000), |draft, it| draft.of(it)).build()])
                    .await;
            }
        });
        store.with_writer(|writer| {
            write_format_2(&writer.tables);
            // Two steps, then the process ends; the third is lost.
            for _ in 0..2 {
                let mut txn = writer.tables.env.write_txn().unwrap();
                let place = View { tables: &writer.tables, txn: &txn };
                let place = place.get(Table::Meta, b"migration").unwrap().unwrap_or_default().to_vec();
                let next = migrate_some(&writer.tables, &mut txn, &place).unwrap().unwrap();
                writer.tables.of(Table::Meta).put(&mut txn, b"migration", &next).unwrap();
                txn.commit().unwrap();
            }
        });
        drop(store);
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(async {
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
            ingest(&store, &[deletion().of_key(&profile("any").build()).at(799).build()]).await;
            let deleted = profile("799").at(799).build();
            let state = store.known_states(&[deleted.id], later(1)).await.unwrap()[0];
            assert_eq!(state, Some(kukuri_domain::State::Deleted), "an old version is found by its address");
        });
    }

    #[test]
    fn migration_removes_topics_that_hold_nothing() {
        // T-10
        let dir = tempfile::tempdir().unwrap();
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(ingest(&store, &[note("text").build()]));
        store.with_writer(|writer| {
            let mut batch = Batch::begin(writer.context(), NOW).unwrap();
            batch.is_loading = true;
            for number in 0..2_500 {
                let topic = kukuri_domain::TopicId::new_unchecked(&format!("kukuri:{number:064x}"));
                batch.load_topic(&topic, Default::default(), NOW).unwrap();
            }
            batch.commit().unwrap();
            let mut txn = writer.tables.env.write_txn().unwrap();
            format::write(&mut txn, writer.tables.of(Table::Meta), 2).unwrap();
            txn.commit().unwrap();
        });
        drop(store);
        let store = LmdbStore::open(dir.path(), options()).unwrap();
        block_on(async {
            let topics = store.list_topics(None, 10_000).await.unwrap();
            assert_eq!(topics.into_iter().map(|stats| stats.topic).collect::<Vec<_>>(), [topic()]);
            assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        });
        let last: NodeRecord = store.with_writer(|writer| writer.tables.read(|view| view.node()).unwrap());
        assert_eq!(last.last_topic.0, 2_501, "numbers are not given away again");
    }
}
