//! What the control plane promises, on both databases.

mod admission;
mod people;
mod policies;
#[path = "../../../store-postgres/tests/support/mod.rs"]
mod postgres;
mod quotas;
mod requests;
mod stories;
mod support;
mod tables;
