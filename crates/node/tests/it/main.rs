//! Black-box tests of the real binary: clients, operators, peers, and the benchmark. One test program is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[path = "../../../store-postgres/tests/support/mod.rs"]
mod database;
mod support;

mod bench;
mod bootstrap;
mod clocks;
mod copy;
mod description;
mod documents;
mod feed;
mod flooding;
mod gossip;
mod gossip_catchup;
mod gossip_faults;
mod gossip_peers;
mod members;
mod metrics;
mod nostr_sdk;
mod nostr_tools;
mod operating;
mod people;
mod personal_data;
mod postgres;
mod reading;
mod searching;
mod searching_postgres;
mod service;
mod several;
mod stopping;
