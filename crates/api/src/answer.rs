//! Parts of answers that several endpoints share: pages, and events as they are stored.

use kukuri_store::{StoreError, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::error::Error;

/// One page of a list (U-2).
#[derive(Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// For the next page; null: this is the last one.
    #[schema(required = true)]
    pub(crate) cursor: Option<String>,
}

/// A Nostr event. Answers hold its stored bytes: see [`stored_json`].
#[derive(ToSchema)]
#[allow(dead_code, reason = "it describes stored JSON, which is never taken apart")]
pub(crate) struct Event {
    id: String,
    pubkey: String,
    created_at: u64,
    kind: u16,
    tags: Vec<Vec<String>>,
    content: String,
    sig: String,
}

/// The JSON of an event, byte for byte.
pub(crate) fn stored_json(stored: &StoredEvent) -> Result<Box<RawValue>, Error> {
    let read = serde_json::from_slice(&stored.json);
    read.map_err(|error| StoreError::Damaged(format!("event {}: {error}", stored.id)).into())
}
