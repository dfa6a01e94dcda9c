//! Queries with a budget (Y-2).

use kukuri_domain::{EventId, Filter, Kind, Letter, Viewer};

use super::{
    build::{NOW, TOPIC, admitted, note},
    subject::{Harness, Subject},
};
use crate::{
    budget::Budget,
    error::StoreError,
    ingest::StoreRules,
    query::{Answer, Completeness, Query},
};

/// More than any store looks at in a first, cheap attempt.
const EVENTS: u64 = 6_000;

/// Y-2, W-1: an answer is the first part of the right one, whatever the budget.
pub(super) async fn a_spent_budget_fails_a_count_and_leaves_a_query_its_first_part<H: Harness>(harness: &H) {
    let store = Subject::open(harness, StoreRules::default()).await;
    let events: Vec<_> = (0..EVENTS).map(|n| admitted(&note(&n.to_string()).at(n * 7 % 900).build())).collect();
    for batch in events.chunks(2_000) {
        store.ingest(batch.to_vec(), NOW).await.expect("a batch");
    }
    let here = || Filter::new().with_tag(Letter::T, [TOPIC]);
    let ids = |answer: &Answer| answer.events.iter().map(|event| event.id).collect::<Vec<EventId>>();
    for (what, filters) in [
        ("one filter", vec![here()]),
        ("two filters", vec![here().with_kinds([Kind(1)]), here()]),
        ("a filter that is done, and one that is not", vec![here().with_limit(2), here()]),
    ] {
        let query = |rows| Query {
            filters: filters.clone(),
            budget: Budget { rows, ..Budget::default() },
            ..Query::of(Filter::new(), Viewer::Node, NOW)
        };
        let whole = store.query(&query(usize::MAX)).await.expect("an answer");
        assert_eq!(whole.events.len() as u64, EVENTS, "{what}");
        assert_eq!(store.count(&query(usize::MAX), None).await.expect("a count").events, EVENTS, "{what}");
        for rows in [1, 500, EVENTS as usize / 2] {
            match store.query(&query(rows)).await {
                Ok(answer) => {
                    assert!(ids(&whole).starts_with(&ids(&answer)), "{what}, {rows} rows: not the first part");
                    let is_whole = answer.events.len() == whole.events.len();
                    assert_eq!(answer.rest == Completeness::BudgetSpent, !is_whole, "{what}: {:?}", answer.rest);
                }
                Err(error) => assert!(matches!(error, StoreError::TooCostly), "{what}: {error}"),
            }
            let count = store.count(&query(rows), None).await;
            assert!(matches!(count, Err(StoreError::TooCostly)), "{what}, {rows} rows: {count:?}");
        }
    }
}
