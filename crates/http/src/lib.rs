//! The HTTP front of a node: one port for WebSocket, the information document, the status page, health and metrics. Other
//! crates' routes are mounted beside them.
//!
//! # Layout
//!
//! - [`front`]: what all requests share. [`listener`]: accepting connections. `connections`: how many there may be.
//!   `door`: what every request passes. `min_rate`: cuts off clients that do not read. `held_answer`: what an answer holds until it
//!   is read.
//! - [`client_address`]: the client's address, also behind a proxy. [`reader`]: rates and memory of requests over HTTP. [`streams`]: how many streams
//!   there may be, and their turns.
//! - `routes`: what is served here, `/healthz` included. `websocket`: the upgrade. [`exporter`]: `/metrics`. `page`: `/`.
//! - `fuzzing` (a feature): what must hold for any request.

pub mod client_address;
mod connections;
mod door;
pub mod exporter;
pub mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod held_answer;
pub mod listener;
mod min_rate;
mod page;
pub mod reader;
mod routes;
pub mod streams;
mod websocket;

pub use client_address::Proxy;
pub use exporter::Exporter;
pub use front::{HttpFront, HttpMetrics};
pub use listener::{listen, serve, serve_monitors};
pub use routes::{monitor_routes, routes, routes_without_metrics};
