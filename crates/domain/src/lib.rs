//! The rules of a kukuri community node. Pure: no I/O, no async, no clock (time is an argument), no global state.
//!
//! # Layout
//!
//! Events:
//! [`event`] · [`sign`] · [`id`] · [`kind`] · [`tags`] · [`time`] · [`address`] · [`topic`] · [`hex`] · [`nip19`] (and `json`, `verify`)
//!
//! Admission and decision:
//! [`authentication`] checks proofs of a key; [`admission`] checks the event alone; [`limits`] bounds its sizes; [`refusal`] lists every reason to refuse it;
//! [`decision`] decides, given the facts of a store, with [`deletion`] and [`vanish`] for the two requests.
//!
//! Storage and access:
//! [`retention`] · [`capacity`] · [`clock`] · [`subscription`] · [`filter`] · [`sketch`] ·
//! [`visibility`] · [`sharing`] · [`remains`]
//!
//! `fuzzing` (a feature): what must hold for any bytes from outside.
//!
//! Comments name rules by number (`D-6`); `docs/rules.md` lists them.

pub mod address;
pub mod admission;
pub mod authentication;
pub mod capacity;
pub mod clock;
pub mod decision;
pub mod deletion;
pub mod event;
pub mod filter;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod hex;
pub mod id;
mod json;
pub mod kind;
pub mod limits;
pub mod nip19;
mod parsed_keys;
pub mod refusal;
mod relay_urls;
pub mod remains;
pub mod retention;
pub mod sharing;
pub mod sign;
pub mod sketch;
pub mod subscription;
pub mod tags;
pub mod time;
pub mod topic;
pub mod vanish;
mod verify;
pub mod visibility;

pub use address::{Address, AddressDigest, Rank};
pub use admission::{Admission, Admitted, Origin, Source};
pub use decision::{DeletionMode, Reason, State};
pub use event::Event;
pub use filter::Filter;
pub use hex::HexError;
pub use id::{EventId, PublicKey, Signature};
pub use kind::{Kind, KindClass};
pub use limits::Limits;
pub use refusal::{Malformed, Refusal};
pub use relay_urls::RelayUrls;
pub use sign::UnsignedEvent;
pub use sketch::Sketch;
pub use tags::{Letter, Tags};
pub use time::{Millis, Timestamp};
pub use topic::TopicId;
pub use visibility::{Viewer, Visibility};
