//! Several who write, and one who leaves halfway.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../../store-postgres/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp, TopicId};
use kukuri_search::{Change, Document, IndexError, Search, SearchIndex, SearchQuery, Text};
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_store::Seq;

use support::{Database, block_on};

const NOW: Timestamp = Timestamp(1_700_000_000);

async fn open(database: &Database) -> PostgresIndex {
    PostgresIndex::connect(&database.url(), PostgresIndexOptions::default()).await.unwrap()
}

fn put(number: u8) -> Change {
    Change::Put(Box::new(Document {
        id: EventId::from_bytes([number; 32]),
        author: PublicKey::from_bytes([1; 32]),
        kind: Kind(1),
        created_at: NOW,
        topics: vec![TopicId::trusted("kukuri:global")],
        text: Text { title: String::new(), body: format!("tea {number}") },
    }))
}

async fn found(index: &PostgresIndex) -> usize {
    let search = Search::new(SearchQuery::parse("tea").unwrap(), NOW, 1_000);
    index.search(&search).await.unwrap().len()
}

async fn reached(index: &PostgresIndex) -> Option<Seq> {
    index.reached().await.unwrap().map(|place| place.seq)
}

#[test]
fn an_instance_that_was_overtaken_writes_nothing_until_it_has_looked_again() {
    // O-6
    block_on(async {
        let database = Database::new().await;
        let (one, other) = (open(&database).await, open(&database).await);
        one.reached().await.unwrap();
        one.apply(vec![put(1)], Seq(1).into()).await.unwrap();
        assert_eq!(reached(&other).await, Some(Seq(1)));
        other.apply(vec![put(2)], Seq(2).into()).await.unwrap();

        // Searching asks how far it reaches, and must not make good what its writer has missed.
        assert_eq!(reached(&one).await, Some(Seq(2)));
        let refused = one.apply(vec![Change::Remove(EventId::from_bytes([2; 32]))], Seq(2).into()).await.err().unwrap();
        assert!(matches!(refused, IndexError::Locked(_)), "{refused}");
        assert_eq!((found(&one).await, reached(&one).await), (2, Some(Seq(2))), "nothing was written");
        one.apply(vec![put(3)], Seq(3).into()).await.unwrap();
        assert!(other.apply(vec![put(4)], Seq(3).into()).await.is_err());
    });
}

#[test]
fn who_builds_anew_last_is_who_puts_in_place() {
    // O-8
    block_on(async {
        let database = Database::new().await;
        let (one, other) = (open(&database).await, open(&database).await);
        one.apply(vec![put(1)], Seq(1).into()).await.unwrap();
        one.begin().await.unwrap();
        one.fill(vec![put(1)], Some(Seq(1).into())).await.unwrap();
        other.begin().await.unwrap();
        assert!(one.fill(vec![put(2)], Some(Seq(2).into())).await.is_err(), "its copy is gone");
        assert!(one.switch().await.is_err());
        other.fill(vec![put(1), put(2)], Some(Seq(2).into())).await.unwrap();
        assert_eq!(found(&one).await, 1, "the one in use is as it was");
        other.switch().await.unwrap();
        assert_eq!((found(&one).await, reached(&one).await), (2, Some(Seq(2))));
        assert!(one.apply(vec![put(3)], Seq(3).into()).await.is_err(), "it has not seen this copy");
        other.apply(vec![put(3)], Seq(3).into()).await.unwrap();
        assert_eq!(other.stats().await.unwrap().documents, 3);
    });
}

#[test]
fn what_is_left_halfway_is_whole_or_not_there() {
    // O-6: a process that dies, or a client that leaves, at any moment.
    block_on(async {
        let database = Database::new().await;
        for round in 0..60_u8 {
            let index = open(&database).await;
            let before = index.reached().await.unwrap();
            let changes = (0..4).map(|number| put(4 * round + number)).collect();
            let patience = Duration::from_micros(u64::from(round) * 150);
            let _ = tokio::time::timeout(patience, index.apply(changes, Seq(u64::from(round) + 1).into())).await;
            // Another instance waits for what the server is still at.
            let index = open(&database).await;
            index.apply(Vec::new(), Seq(1_000).into()).await.unwrap();
            let documents = index.stats().await.unwrap().documents;
            assert_eq!(documents % 4, 0, "all of a batch or nothing, after {before:?}");
            assert_eq!(documents, found(&index).await as u64, "the figures follow");
            index.close().await;
        }
    });
}

#[test]
fn a_copy_is_put_in_place_while_others_search() {
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
