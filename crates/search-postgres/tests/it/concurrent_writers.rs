//! Several writers on one index, and a writer that is cancelled.

use std::time::Duration;

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_search::{Document, DocumentChange, IndexError, Search, SearchIndex, SearchQuery, Text};
use kukuri_search_postgres::PostgresIndex;
use kukuri_store::Seq;

use crate::{
    patient,
    support::{Database, block_on},
};

const NOW: Timestamp = Timestamp(1_700_000_000);

async fn open(database: &Database) -> PostgresIndex {
    PostgresIndex::connect(&database.url(), patient()).await.unwrap()
}

fn put(number: u8) -> DocumentChange {
    DocumentChange::Put(Box::new(Document {
        id: EventId::from_bytes([number; 32]),
        author: PublicKey::from_bytes([1; 32]),
        kind: Kind(1),
        created_at: NOW,
        topics: vec![TopicId::new_unchecked("kukuri:global")],
        text: Text { title: String::new(), body: format!("tea {number}") },
    }))
}

async fn found(index: &PostgresIndex) -> usize {
    let search = Search::new(SearchQuery::parse("tea").unwrap(), NOW, 1_000);
    index.search(&search).await.unwrap().len()
}

async fn reached(index: &PostgresIndex) -> Option<Seq> {
    index.reached().await.unwrap().map(|position| position.seq)
}

#[test]
fn writer_is_refused_after_another_process_wrote_until_it_reads_the_position() {
    // O-6
    block_on(async {
        let database = Database::new().await;
        let (one, other) = (open(&database).await, open(&database).await);
        one.reached().await.unwrap();
        one.apply(vec![put(1)], Seq(1).into()).await.unwrap();
        assert_eq!(reached(&other).await, Some(Seq(1)));
        other.apply(vec![put(2)], Seq(2).into()).await.unwrap();

        // A search reads the position too, which must not hide the other write from the writer.
        assert_eq!(reached(&one).await, Some(Seq(2)));
        let refused =
            one.apply(vec![DocumentChange::Remove(EventId::from_bytes([2; 32]))], Seq(2).into()).await.err().unwrap();
        assert!(matches!(refused, IndexError::Overtaken(_)), "{refused}");
        assert_eq!((found(&one).await, reached(&one).await), (2, Some(Seq(2))), "nothing was written");
        one.apply(vec![put(3)], Seq(3).into()).await.unwrap();
        assert!(other.apply(vec![put(4)], Seq(3).into()).await.is_err());
    });
}

#[test]
fn rebuild_that_began_last_is_the_one_that_switches() {
    // O-8
    block_on(async {
        let database = Database::new().await;
        let (one, other) = (open(&database).await, open(&database).await);
        one.apply(vec![put(1)], Seq(1).into()).await.unwrap();
        one.begin().await.unwrap();
        one.fill(vec![put(1)], Some(Seq(1).into())).await.unwrap();
        other.begin().await.unwrap();
        assert!(one.fill(vec![put(2)], Some(Seq(2).into())).await.is_err(), "the other rebuild discarded its copy");
        assert!(one.switch().await.is_err());
        other.fill(vec![put(1), put(2)], Some(Seq(2).into())).await.unwrap();
        assert_eq!(found(&one).await, 1, "the searched copy is unchanged");
        other.switch().await.unwrap();
        assert_eq!((found(&one).await, reached(&one).await), (2, Some(Seq(2))));
        assert!(one.apply(vec![put(3)], Seq(3).into()).await.is_err(), "it has not read this copy's position");
        other.apply(vec![put(3)], Seq(3).into()).await.unwrap();
        assert_eq!(other.stats().await.unwrap().documents, 3);
    });
}

#[test]
fn cancelled_batch_is_applied_completely_or_not_at_all() {
    // O-6
    block_on(async {
        let database = Database::new().await;
        for round in 0..60_u8 {
            let index = open(&database).await;
            let before = index.reached().await.unwrap();
            let changes = (0..4).map(|number| put(4 * round + number)).collect();
            let timeout = Duration::from_micros(u64::from(round) * 150);
            let _ = tokio::time::timeout(timeout, index.apply(changes, Seq(u64::from(round) + 1).into())).await;
            // Another instance waits for the row lock of a transaction that still runs.
            let index = open(&database).await;
            index.apply(Vec::new(), Seq(1_000).into()).await.unwrap();
            let documents = index.stats().await.unwrap().documents;
            assert_eq!(documents % 4, 0, "all of a batch or nothing, after {before:?}");
            assert_eq!(documents, found(&index).await as u64, "the counters agree");
            index.close().await;
        }
    });
}

#[test]
fn searches_see_one_complete_copy_during_switches() {
    // O-8
    block_on(async {
        let database = Database::new().await;
        let (index, reader) = (open(&database).await, open(&database).await);
        index.apply(vec![put(1)], Seq(1).into()).await.unwrap();
        let searching = async {
            for _ in 0..200 {
                assert_eq!(found(&reader).await, 1, "never nothing, never twice");
            }
        };
        let rebuilding = async {
            for _ in 0..5 {
                index.begin().await.unwrap();
                index.fill(vec![put(1)], Some(Seq(1).into())).await.unwrap();
                index.switch().await.unwrap();
            }
        };
        tokio::join!(searching, rebuilding);
    });
}
