//! Answers as JSON, with events as they are stored: nothing is written anew.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use kukuri_store::{StoreError, StoredEvent};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::Problem;

/// An answer.
pub(crate) fn json(answer: &impl Serialize) -> Result<Response, Problem> {
    Ok(([(header::CONTENT_TYPE, "application/json")], text(answer)?).into_response())
}

/// A value as one line of JSON.
pub(crate) fn text(value: &impl Serialize) -> Result<String, Problem> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string()).into())
}

/// An event as it is stored.
pub(crate) fn raw(stored: &StoredEvent) -> Result<&RawValue, Problem> {
    let read = serde_json::from_slice(&stored.json);
    read.map_err(|error| StoreError::Damaged(format!("event {}: {error}", stored.id)).into())
}
