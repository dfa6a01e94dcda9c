//! The control plane of a kukuri community node: what it knows of people, and every change that an operator makes.
//!
//! # Layout
//!
//! - [`Control`]: the control plane of a running node. [`actions`]: what an operator can change.
//! - [`database`]: one model on SQLite or Postgres. [`Error`], [`Refused`].
//! - Who somebody is: [`account`], [`sign_in`] (challenges), [`token`], [`admission`] with [`invite`], [`ban`].
//! - What they agreed to: [`policy`], [`consent`]. What they may use: [`plan`], [`metric`], [`usage`]; [`member_usage`]: counted in memory.
//! - [`idempotency`]: answers to requests that may be sent again. [`topic_name`]: names of topics.
//! - What they asked for: [`request`], [`subscription`].
//! - [`people`]: all of that in memory, for checks that may not wait for a database.
//! - [`job`]: work that outlives a request and a crash. [`personal_data`]: export and deletion. [`retention`]: what is removed by age.
//! - [`audit`]: what was changed, by whom. [`secret`]: keys and pseudonyms. `service_key`: keys of services. [`setting`]: what is
//!   changed while the node runs.
//!
//! A function takes the [`Database`] if it is one statement, a [`Transaction`] if it has to be true together with others.
//! Time is an argument.

pub mod account;
pub mod actions;
pub mod admission;
pub mod audit;
pub mod ban;
pub mod consent;
mod control;
pub mod database;
mod error;
pub mod idempotency;
pub mod invite;
pub mod job;
pub mod member_usage;
pub mod metric;
pub mod people;
pub mod personal_data;
pub mod plan;
pub mod policy;
pub mod request;
pub mod retention;
pub mod secret;
mod service_key;
pub mod setting;
pub mod sign_in;
pub mod subscription;
pub mod token;
pub mod topic_name;
pub mod usage;

pub use control::{Acting, Action, Control};
pub use database::{Database, PostgresSettings, Transaction};
pub use error::{Error, Refused};

/// A result whose error is the database's.
pub type Result<T, E = Error> = std::result::Result<T, E>;
