//! Known ids and their records (P-1, E-5, E-9).

use kukuri_domain::{Origin, Source, State};

use super::{
    build::{NOW, admitted, admitted_from, deletion, event, later, note, topic},
    probe::{rows_after, topics},
    story::{DELETED, DUPLICATE, EPHEMERAL, STORED, Story, all_come_true},
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    outbox::Seq,
    report::{Explanation, IdRecord, Standing, Stats},
};

/// P-1.
pub(super) async fn a_repeat_is_counted_and_changes_nothing_else<H: Harness>(harness: &H) {
    let text = note("text").build();
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let imported = admitted_from(&text, Origin::Import);
    store.ingest(vec![imported.clone(), imported], NOW).await.expect("a batch");
    let head = store.ingest(vec![admitted(&text)], later(5)).await.expect("a batch").head;
    assert_eq!(head, Seq(1), "a repeat writes no row");
    store.write_duplicate_counts().await.expect("a flush");
    store.reopen().await;

    let expected = IdRecord {
        source: Source::Import,
        first_seen_at: NOW,
        last_seen_at: later(5),
        seen_count: 3,
        standing: Standing::Effective,
    };
    let explained = store.explain(&text.id).await.expect("an explanation");
    assert_eq!(explained.record, Some(expected));
    assert_eq!(explained.row.map(|row| row.ingested_at), Some(NOW));
    let last_event_at = topics(&*store).await[0].last_event_at;
    assert_eq!(last_event_at, Some(NOW), "a repeat is no sign of life of its topic");
}

/// T-8, B-2: else nodes would keep topics open for each other that nobody uses.
pub(super) async fn a_node_that_tells_of_itself_is_no_sign_of_use<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    let last_event_at = async || topics(&*store).await[0].last_event_at;
    let service = |at: u64| event(39001).tag(["d", "topic_service"]).tag(["k", "kukuri"]).at(at).build();
    store.ingest(vec![admitted_from(&service(1), Origin::Node)], NOW).await.expect("a batch");
    assert_eq!(last_event_at().await, None);
    store.ingest(vec![admitted(&note("text").build())], later(5)).await.expect("a batch");
    let gossiped = Origin::Gossip { peer: [7; 32], topic: topic() };
    store.ingest(vec![admitted_from(&service(2), gossiped)], later(9)).await.expect("a batch");
    assert_eq!(last_event_at().await, Some(later(5)));
    // Of NIP-29, which has nothing to do with nodes.
    store.ingest(vec![admitted(&event(39001).tag(["d", "group"]).build())], later(12)).await.expect("a batch");
    assert_eq!(last_event_at().await, Some(later(12)));
}

/// E-9: also within one batch.
pub(super) async fn a_copy_gets_the_answer_its_state_demands<H: Harness>(harness: &H) {
    let [text, doomed] = [note("text").build(), note("doomed").build()];
    let request = deletion().of(&doomed).build();
    all_come_true(
        harness,
        vec![
            Story {
                why: "an effective event",
                arrivals: vec![(&text, STORED), (&text, DUPLICATE), (&text, DUPLICATE)],
                effective: vec![&text],
            },
            Story {
                why: "a deleted event",
                arrivals: vec![(&doomed, STORED), (&doomed, DUPLICATE), (&request, STORED), (&doomed, DELETED)],
                effective: vec![&request],
            },
            Story {
                why: "an event kept out",
                arrivals: vec![(&request, STORED), (&doomed, DELETED), (&doomed, DELETED), (&request, DUPLICATE)],
                effective: vec![&request],
            },
        ],
    )
    .await;
}

/// E-9, P-1: a copy is answered without verification.
pub(super) async fn known_ids_are_recalled_and_counted_as_seen_again<H: Harness>(harness: &H) {
    let [text, doomed, unseen] = ["text", "doomed", "unseen"].map(|content| note(content).build());
    let request = deletion().of(&doomed).build();
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&text, &doomed, &request]).await;
    let ids = [unseen.id, text.id, doomed.id, text.id];
    let states = store.known_states(&ids, later(5)).await.expect("states");
    assert_eq!(states, [None, Some(State::Effective), Some(State::Deleted), Some(State::Effective)], "by their places");

    store.write_duplicate_counts().await.expect("a flush");
    store.reopen().await;
    for (event, seen) in [(&unseen, None), (&text, Some((3, later(5)))), (&doomed, Some((2, later(5))))] {
        let record = store.explain(&event.id).await.expect("an explanation").record;
        assert_eq!(record.map(|record| (record.seen_count, record.last_seen_at)), seen);
    }
}

/// E-5.
pub(super) async fn an_ephemeral_event_leaves_no_trace<H: Harness>(harness: &H) {
    let ephemeral = event(20_001).build();
    let store = Subject::open(harness, StoreRules::default()).await;
    let ingested = store.send(&[&ephemeral, &ephemeral]).await;
    assert_eq!((ingested.outcomes.as_slice(), ingested.head), ([EPHEMERAL, EPHEMERAL].as_slice(), Seq(0)));
    assert_eq!(store.explain(&ephemeral.id).await.expect("an explanation"), Explanation::default());
    let nothing = Stats { outbox_first: Seq(1), ..Stats::default() };
    assert_eq!(Stats { disk_bytes: None, ..store.stats().await.expect("figures") }, nothing);
    assert_eq!(rows_after(&*store, Seq(0)).await, []);

    let request = deletion().of(&ephemeral).build();
    store.send(&[&request]).await;
    assert_eq!(store.send(&[&ephemeral]).await.outcomes, [EPHEMERAL], "a tombstone does not concern it");
    assert_eq!(store.explain(&ephemeral.id).await.expect("an explanation").record, None);
}

/// P-1, E-9: a crash may lose counts, never ids.
pub(super) async fn ids_are_known_after_a_restart<H: Harness>(harness: &H) {
    let [text, doomed] = [note("text").build(), note("doomed").build()];
    let request = deletion().of(&doomed).build();
    let mut store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&text, &request, &doomed]).await;
    store.reopen().await;
    let ingested = store.send(&[&text, &doomed, &request]).await;
    assert_eq!(ingested.outcomes, [DUPLICATE, DELETED, DUPLICATE]);
    assert_eq!(ingested.head, Seq(2), "sequences go on where they were");
    for (event, state) in [(&text, State::Effective), (&doomed, State::Deleted), (&request, State::Effective)] {
        let record = store.explain(&event.id).await.expect("an explanation").record.expect("a record");
        assert_eq!(record.standing.state(), state);
    }
    assert_eq!(store.send(&[&note("new").build()]).await.head, Seq(3));
}
