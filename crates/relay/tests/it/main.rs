//! The relay over real sockets, on a real store. One test program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

mod access;
mod backlog;
mod bad_input;
mod bridging;
mod budgets;
mod capacity;
mod counting;
mod floors;
mod http;
mod lifetimes;
mod nip01;
mod nip09;
mod nip42;
mod nip50;
mod rates;
mod reconciling;
mod seam;
mod slow_reader;
mod topics;
mod visibility;
