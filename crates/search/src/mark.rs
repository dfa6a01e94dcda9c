//! Whose index it is. An index tells how far it has come by the number of a row, and every store counts from 1: one that was
//! restored, or is another, has other rows by the same numbers. So what that row is stands with the number, and the kinds
//! that are indexed.

use std::collections::BTreeSet;

use kukuri_domain::{EventId, Kind};
use kukuri_store::{Seq, Store, StoreError};
use serde_json::{Value, json};

use crate::index::Place;

/// A place in the outbox of a store, marked.
pub(crate) async fn place(store: &dyn Store, kinds: &BTreeSet<Kind>, seq: Seq) -> Result<Place, StoreError> {
    let row = row(store, seq).await?;
    Ok(Place { seq, mark: json!({ "kinds": numbers(kinds), "row": row }).to_string() })
}

/// Why an index that has come to a place is not the one of this store and these kinds; `None`: it is.
pub(crate) async fn why_not(
    place: &Place,
    store: &dyn Store,
    kinds: &BTreeSet<Kind>,
) -> Result<Option<&'static str>, StoreError> {
    if place.seq == Seq(0) {
        // It is empty.
        return Ok(None);
    }
    let mark: Value = serde_json::from_str(&place.mark).unwrap_or_default();
    if mark["kinds"] != json!(numbers(kinds)) {
        return Ok(Some("other kinds are to be indexed"));
    }
    if store.stats().await?.head < place.seq {
        return Ok(Some("it is ahead of the store"));
    }
    // A row that is there no more tells nothing. Whoever can't be followed is told so by the consumer (O-8).
    let is_another = row(store, place.seq).await?.is_some_and(|row| mark["row"] != row);
    Ok(is_another.then_some("it follows another store"))
}

/// A row, told from every other.
async fn row(store: &dyn Store, seq: Seq) -> Result<Option<Value>, StoreError> {
    let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
    let rows = match store.outbox(Seq(before), 1).await {
        Err(StoreError::Truncated { .. }) => return Ok(None),
        rows => rows?,
    };
    let row = rows.into_iter().find(|row| row.seq == seq);
    Ok(row.map(|row| {
        let id: EventId = row.event_id;
        json!([id.to_string(), row.written_at.0])
    }))
}

fn numbers(kinds: &BTreeSet<Kind>) -> BTreeSet<u16> {
    kinds.iter().map(|kind| kind.0).collect()
}
