//! No statement of a write changes more rows than one may.

use std::time::Duration;

use kukuri_domain::retention::{Keep, Retention};
use kukuri_store::{
    conformance::build::{NOW, admitted, bare},
    port::*,
};

use super::{
    patient,
    support::{Database, block_on, numbers, run},
};
use crate::{PostgresStore, batch::STATEMENT_ROWS};

/// Rejects a statement that changes more topics than one may.
fn limit() -> String {
    let trigger = |event: &str, rows: &str| {
        format!(
            "CREATE TRIGGER limit_{event} AFTER {event} ON cn_relay.topics REFERENCING {rows} TABLE AS changed \
             FOR EACH STATEMENT EXECUTE FUNCTION cn_relay.limit_rows(); "
        )
    };
    let function = format!(
        "CREATE FUNCTION cn_relay.limit_rows() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF (SELECT count(*) FROM changed) > {STATEMENT_ROWS} THEN RAISE EXCEPTION '% of too many topics', TG_OP; END IF; \
         RETURN NULL; END $$; "
    );
    [function, trigger("INSERT", "NEW"), trigger("UPDATE", "NEW"), trigger("DELETE", "OLD")].concat()
}

#[test]
fn topics_of_a_dropped_month_are_written_some_at_a_time() {
    // O-5, P-7
    block_on(async {
        let database = Database::new().await;
        let store = PostgresStore::connect(&database.url(), patient()).await.unwrap();
        run(&database.url(), &limit()).await.unwrap();
        let topics = 3 * STATEMENT_ROWS;
        let topic = |number: usize| format!("kukuri:{number:064x}");
        let notes = (0..topics).map(|number| bare(1).tag(["t", &topic(number)]).build());
        // Every second topic keeps a version of a key.
        let versions = (0..topics).step_by(2).map(|number| {
            let name = number.to_string();
            bare(30_023).tag(["d", &name]).tag(["t", &topic(number)]).build()
        });
        store.ingest(notes.chain(versions).map(|event| admitted(&event)).collect(), NOW).await.unwrap();
        let later = NOW.after(Duration::from_secs(70 * 24 * 3_600));
        store.confirm_clock(later).await.unwrap();
        let retention = Retention { outbox: Keep::Forever, ..Retention::default() };
        assert_eq!(store.purge(&retention, later).await.unwrap().by_retention, topics as u64);
        let left =
            format!("SELECT count(*) FROM cn_relay.partitions WHERE class = 'default' AND begins_at <= {}", NOW.0);
        assert_eq!(numbers(&database.url(), &left).await, [0], "the month was dropped");
        let left = numbers(&database.url(), "SELECT count(*) FROM cn_relay.topics").await;
        assert_eq!(left, [topics as i64 / 2]);
        assert_eq!(store.check().await.unwrap().problems, Vec::<String>::new());
        run(&database.url(), "DROP FUNCTION cn_relay.limit_rows CASCADE").await.unwrap();
    });
}
