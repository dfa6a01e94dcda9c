//! A failing event fails alone.

use kukuri_domain::Refusal;
use kukuri_store::{
    Outcome,
    conformance::{
        build::{NOW, admitted, note},
        faults::Faults,
    },
    port::*,
};

use super::{
    patient,
    support::{Database, block_on, run},
};
use crate::PostgresStore;

#[test]
fn event_that_can_not_be_stored_is_refused_alone_and_counted() {
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        let events: Vec<_> = (0..7).map(|n| note(&format!("note {n}")).at(n).build()).collect();
        *store.writer.faults.lock() = Faults { failing: vec![events[1].id], panicking: vec![events[4].id] };
        // The server itself rejects this event.
        let id = events[6].id;
        let refuse = format!("ALTER TABLE cn_relay.event_dedupe ADD CONSTRAINT no CHECK (event_id <> '\\x{id}')");
        run(&database.url(), &refuse).await.unwrap();
        let batch = events.iter().map(admitted).collect();
        let outcomes = store.ingest(batch, NOW).await.unwrap().outcomes;
        let refused = Outcome::Refused(Refusal::Failed);
        let stored = Outcome::Stored;
        let expected = [&stored, &refused, &stored, &stored, &refused, &stored, &refused];
        assert_eq!(outcomes.iter().collect::<Vec<_>>(), expected);
        assert_eq!(store.stats().await.unwrap().failed, 3);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());

        // The failed event left nothing behind and is stored once the fault is gone (E-9).
        *store.writer.faults.lock() = Faults::default();
        run(&database.url(), "ALTER TABLE cn_relay.event_dedupe DROP CONSTRAINT no").await.unwrap();
        let again = [&events[1], &events[4], &events[6]].map(admitted).to_vec();
        assert!(store.ingest(again, NOW).await.unwrap().outcomes.iter().all(|outcome| *outcome == Outcome::Stored));
    });
}
