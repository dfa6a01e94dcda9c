//! The HTTP front of a node: one port for WebSocket, the information document, the status page, health and metrics. Other
//! crates' routes are mounted beside them.
//!
//! # Layout
//!
//! - [`front`]: what all requests share. [`listener`]: accepting connections. `connections`: how many there may be.
//!   `min_rate`: cuts off clients that do not read.
//! - [`client_address`]: the client's address, also behind a proxy. [`reader`]: who may read over HTTP.
//! - `routes`: what is served here, `/healthz` included. `websocket`: the upgrade. [`exporter`]: `/metrics`. `page`: `/`.

pub mod client_address;
mod connections;
pub mod exporter;
pub mod front;
pub mod listener;
mod min_rate;
mod page;
pub mod reader;
mod routes;
mod websocket;

pub use client_address::Proxy;
pub use exporter::Exporter;
pub use front::{HttpFront, HttpMetrics};
pub use listener::serve;
pub use routes::routes;
