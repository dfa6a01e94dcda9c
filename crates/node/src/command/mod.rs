//! The commands other than `serve`, one file each.
//!
//! A command that only reads opens the store itself, also while a node runs. A command that changes data asks the
//! running node, or works on the store itself if no node runs (`admin_socket`). A command that needs exclusive access
//! to the files fails if a node runs. Only `wiring::stores` knows the kind of store.
//!
//! Commands about people work on the control database, beside a running node or without one (`people`).

pub(crate) mod account;
pub(crate) mod admission;
pub(crate) mod auth;
pub(crate) mod backup;
pub(crate) mod check;
pub(crate) mod clock;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod gossip;
pub(crate) mod import;
pub(crate) mod invite;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod migrate;
pub(crate) mod outbox;
mod people;
pub(crate) mod plan;
pub(crate) mod policy;
mod policy_template;
mod progress;
pub(crate) mod request;
pub(crate) mod retention;
pub(crate) mod salvage;
pub(crate) mod service;
pub(crate) mod stats;
mod table;
pub(crate) mod topic;
pub(crate) mod usage;

/// The output format of a command.
#[derive(clap::Args)]
pub(crate) struct Output {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}
