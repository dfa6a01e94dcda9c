//! Live delivery: from a commit to the clients that subscribed to what it made effective.
//!
//! - `index`: live subscriptions, found by what their filters name.
//! - `delivery`: reads what was committed, by this process or another, and publishes it to the index.
//! - `queue`: what waits to be sent to one client.

pub(crate) mod delivery;
mod index;
mod queue;

pub use index::{LiveFilter, LiveIndex, LiveSubscription, VALUE_BYTES, VALUES_PER_FILTER, WordsOf, values_of};
pub use queue::{ClientQueue, Delivery, LiveEvent, Outgoing, QueueReceiver, client_queue};
