//! Nodes that catch up with each other. One program, so that it is linked once.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

mod support;

mod hostile;
mod sessions;
