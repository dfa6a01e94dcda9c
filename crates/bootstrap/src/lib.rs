//! Signed descriptions of a node, so that clients find it (B-1 to B-5). Pure: no I/O, no clock (time is an argument).
//!
//! # Layout
//!
//! - [`profile`]: everything that the configuration says about the node: the source of its descriptor and of the well-known document.
//! - [`statement`]: the two events, kind 39000 (the descriptor) and kind 39001 (a topic in one role), before they are signed.
//! - [`issuing`]: when one is issued again, decided by the stored version.
//! - [`listing`]: which stored events of any node belong in a list, and when a client asks again.

pub mod issuing;
pub mod listing;
pub mod profile;
pub mod statement;
#[cfg(test)]
mod tests;

pub use issuing::{Cause, Step, next_step};
pub use profile::{Endpoints, ListAccess, Operator, Profile, Shutdown, ShutdownStatus};
pub use statement::{Role, Statement};
