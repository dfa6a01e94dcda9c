//! Helpers of tests and of the benchmark. No crate depends on this one outside of its tests, except the benchmark.
//!
//! # Layout
//!
//! - [`connection`]: a WebSocket connection with little overhead: sends prepared frames, returns ranges of its buffer.
//!   [`frames`]: the frames of RFC 6455.
//! - [`client`]: a Nostr client on such a connection, which sends and receives JSON. It panics on unexpected answers.
//! - [`raw`]: a TCP connection that sends any bytes, for HTTP and for input that breaks the rules.
//! - [`events`]: makes and signs events.
//! - [`mod@test_name`]: the name of a test that starts itself again.
//! - [`waiting`]: waits until a condition holds.
//! - [`delay`]: a proxy that delays what it passes on, and counts round trips.
//! - [`corpus`]: replays the kept inputs of the fuzz targets.
//! - [`long`]: how many random cases and rounds tests run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

pub mod client;
pub mod connection;
pub mod corpus;
pub mod delay;
pub mod events;
pub mod frames;
pub mod long;
pub mod raw;
pub mod test_name;
pub mod waiting;

pub use client::{Client, Ended};
pub use connection::{Connection, ConnectionError};
pub use events::{Draft, TOPIC, as_json, draft, id_of, key_of, millis, note, now, topic};
pub use raw::{Raw, frame, masked};
pub use waiting::{TIMEOUT, eventually};
