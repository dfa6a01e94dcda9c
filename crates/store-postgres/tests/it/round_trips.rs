//! How often a batch waits for the server: each round trip costs the distance to it.

use std::{net::SocketAddr, time::Duration};

use kukuri_postgres::{Session, query};
use kukuri_store::{
    Outcome,
    conformance::build::{NOW, admitted, article, deletion, note, profile, vanish},
    port::*,
};
use kukuri_store_postgres::PostgresStore;
use kukuri_testing::delay::DelayingProxy;

use crate::{
    patient,
    support::{Database, block_on, server},
};

/// The URL of a database through a proxy.
async fn through_proxy(database: &Database) -> (DelayingProxy, String) {
    let session = Session::connect(server()).await.unwrap();
    let port: String = query("SELECT current_setting('port')").fetch_value(&session).await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    let proxy = DelayingProxy::start(address, Duration::from_millis(1)).await;
    let url = format!("postgres://postgres@{}/{}?sslmode=disable", proxy.address, database.name());
    (proxy, url)
}

#[test]
fn a_batch_takes_few_round_trips() {
    block_on(async {
        let database = Database::new().await;
        let (proxy, url) = through_proxy(&database).await;
        let store = PostgresStore::connect(&url, patient()).await.unwrap();
        // The follower polls on a session of its own, once a second, in two round trips.
        const OF_FOLLOWER: u64 = 2;
        let first = [note("first").build(), profile("first").build(), article("a", "first").build()];
        let batches = [
            ("notes", vec![note("one").build(), note("two").build()], 2),
            ("versions", vec![profile("second").at(1).build(), article("a", "second").at(1).build()], 4),
            ("a deletion", vec![deletion().of(&first[0]).at(2).build()], 6),
            ("notes again", vec![note("three").build()], 2),
        ];
        store.ingest(first.iter().map(admitted).collect(), NOW).await.unwrap();
        // Statements are prepared once for each session.
        let before: Vec<_> = [
            vec![note("warm").build(), profile("warm").at(1).build(), article("w", "first").build()],
            vec![article("w", "second").at(1).build()],
        ]
        .into();
        for batch in &before {
            store.ingest(batch.iter().map(admitted).collect(), NOW).await.unwrap();
        }
        let mut warm = deletion();
        for event in &before[1] {
            warm = warm.of(event);
        }
        store.ingest(vec![admitted(&warm.at(3).build())], NOW).await.unwrap();
        store.ingest(vec![admitted(&vanish().by(kukuri_store::conformance::build::BOB).build())], NOW).await.unwrap();
        for (what, batch, most) in batches {
            let begun = proxy.round_trips();
            let outcomes = store.ingest(batch.iter().map(admitted).collect(), NOW).await.unwrap().outcomes;
            assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Stored), "{what}: {outcomes:?}");
            let taken = proxy.round_trips() - begun;
            assert!(taken <= most + OF_FOLLOWER, "{what}: {taken} round trips");
        }
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        store.close().await.unwrap();
    });
}
