//! The storage port: one small trait per concern.
//!
//! A store reads the facts that a decision needs, lets `kukuri_domain` decide, and writes the result, all in one
//! transaction (P-3). Time is always an argument. A returned `Ok` is durable.
//!
//! `use kukuri_store::port::*` brings all methods into scope. Callers with a `dyn Store` need only [`Store`].

mod events;
mod inspect;
mod outbox;
mod sharing;
mod topics;
mod upkeep;

pub use events::Events;
pub use inspect::Inspect;
pub use outbox::Outbox;
pub use sharing::Sharing;
pub use topics::Topics;
pub use upkeep::Upkeep;

/// An event store that follows the rules of `kukuri_domain`.
pub trait Store: Events + Sharing + Upkeep + Outbox + Topics + Inspect {}

impl<S: Events + Sharing + Upkeep + Outbox + Topics + Inspect> Store for S {}
