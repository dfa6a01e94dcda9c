//! Catch-up between two nodes that share a topic: they compare their sets of it and exchange the missing items (G-7).
//!
//! Works over any byte stream and through a [`Node`]; knows neither networks nor how a node decides on events.
//!
//! # Layout
//!
//! - [`node`]: the node, as a session sees it. [`settings`]: the bounds of a session. [`report`]: its outcome.
//! - `session`: the parts that both sides share; `initiator` and `responder`: the two sides. `exchange`: items, in both
//!   directions.
//! - `comparison`: compares a part of a set by negentropy.
//! - `frames`: frames on a stream, with timeouts. `message`: the messages in them.
//! - `fuzzing` (a feature): what must hold for any bytes of a peer.
//!
//! # A session
//!
//! The initiator names a topic and since when it keeps regular events; the responder answers with its own time, and the
//! later one counts. Then both compare the set part by part, newest first. A part has no more items than either side may
//! hold in memory: if the responder has more, it answers where to cut. negentropy finds the difference of a part. The
//! initiator asks for the items it lacks, then offers those the responder lacks. A session keeps no state but the stores, so
//! the next session continues one that broke.

mod comparison;
mod exchange;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod initiator;
mod message;
pub mod node;
pub mod report;
mod responder;
mod session;
pub mod settings;

pub use node::{Node, Peer};
pub use report::{Report, SessionEnd};
pub use session::{initiate, respond};
pub use settings::Settings;
