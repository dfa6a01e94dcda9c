//! Catch-up between nodes: two that share a topic find out what each lacks of it, and give it to each other (G-7).
//!
//! It works over any byte stream and through a [`Node`], and knows neither networks nor how events are taken in.
//!
//! # Layout
//!
//! - [`node`]: what a session needs of the node it runs on. [`settings`]: its bounds. [`report`]: what came of it.
//! - `session`: what both sides have; `initiating` and `responding`: the two sides. `exchange`: items asked for and given.
//! - `comparing`: the items of a part of a set, as negentropy wants them.
//! - `line`: frames on a stream, with time-outs. `message`: what they say. `pace`: how fast.
//!
//! # A session
//!
//! The side that opens the stream names a topic and how far back it keeps regular events; the other answers with its own,
//! and the shorter counts. Then the set is gone through part by part, newest first. A part has no more items than fit in
//! memory on either side: if the other has more, it says where to cut. Within a part negentropy tells who lacks what. The
//! first side asks for what it lacks, then offers what the other lacks. Nothing is kept of a session but what the stores
//! have, so one that broke off is gone on with by the next.

mod comparing;
mod exchange;
mod initiating;
mod line;
mod message;
pub mod node;
mod pace;
pub mod report;
mod responding;
mod session;
pub mod settings;

pub use node::{NoHistory, Node, Peer};
pub use report::{End, Report};
pub use session::{initiate, respond};
pub use settings::Settings;
