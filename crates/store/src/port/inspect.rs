//! Statistics, explanations and checks for operators.

use async_trait::async_trait;
use kukuri_domain::{Address, EventId};

use crate::{
    error::Result,
    report::{AddressExplanation, CheckReport, Explanation, Stats},
};

/// Statistics, explanations and checks for operators.
#[async_trait]
pub trait Inspect: Send + Sync + 'static {
    /// Statistics, from running counters.
    async fn stats(&self) -> Result<Stats>;

    /// Explains why an event is, or is not, visible.
    async fn explain(&self, id: &EventId) -> Result<Explanation>;

    /// The floor, tombstone and vanish mark of a key.
    async fn explain_address(&self, address: &Address) -> Result<AddressExplanation>;

    /// Reads the whole store and checks its indexes, counters, outbox and events against each other. Slow; changes
    /// nothing.
    async fn check(&self) -> Result<CheckReport>;
}
