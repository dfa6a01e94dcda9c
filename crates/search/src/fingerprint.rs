//! Which store and which kinds an index belongs to. Every store numbers its outbox rows from 1, so a restored or another
//! store has different rows under the same numbers. An index position therefore carries a fingerprint: event id and time of
//! its row, and the indexed kinds.

use std::collections::BTreeSet;

use kukuri_domain::Kind;
use kukuri_store::{Seq, Store, StoreError};
use serde_json::{Value, json};

use crate::index::IndexPosition;

/// The position of a row in the outbox of a store.
pub(crate) async fn position(store: &dyn Store, kinds: &BTreeSet<Kind>, seq: Seq) -> Result<IndexPosition, StoreError> {
    let row = row_fingerprint(store, seq).await?;
    Ok(IndexPosition { seq, fingerprint: json!({ "kinds": kinds, "row": row }).to_string() })
}

/// Why an index at this position can't be continued with this store and these kinds; `None`: it can.
pub(crate) async fn mismatch(
    position: &IndexPosition,
    store: &dyn Store,
    kinds: &BTreeSet<Kind>,
) -> Result<Option<&'static str>, StoreError> {
    if position.seq == Seq(0) {
        return Ok(None);
    }
    let fingerprint: Value = serde_json::from_str(&position.fingerprint).unwrap_or_default();
    if fingerprint["kinds"] != json!(kinds) {
        return Ok(Some("search.kinds has changed"));
    }
    if store.stats().await?.head < position.seq {
        return Ok(Some("it is ahead of the store"));
    }
    // A purged row proves nothing; the consumer reports a gap in the outbox (O-8).
    let is_another = row_fingerprint(store, position.seq).await?.is_some_and(|row| fingerprint["row"] != row);
    Ok(is_another.then_some("it belongs to another store"))
}

async fn row_fingerprint(store: &dyn Store, seq: Seq) -> Result<Option<Value>, StoreError> {
    let Some(before) = seq.0.checked_sub(1) else { return Ok(None) };
    let rows = match store.outbox(Seq(before), 1).await {
        Err(StoreError::Truncated { .. }) => return Ok(None),
        rows => rows?,
    };
    let row = rows.into_iter().find(|row| row.seq == seq);
    Ok(row.map(|row| json!([row.event_id.to_string(), row.written_at.0])))
}
