//! Dump of a whole store, piece by piece, and load into another store.
//!
//! A dump takes the writers' lock with its first page and holds it until the last, in one session that also reads all
//! pages: writers wait, so the pages are consistent and the copy misses no write. If that session is lost, so is the
//! dump. A caller that reads no further releases the lock by closing the store.
//!
//! A load is a sequence of ordinary write transactions, filled with another store's state instead of decisions. Until
//! the last of them the node's row marks the load as unfinished, and no other process can write.

mod dump;
mod load;

pub(crate) use dump::Dumping;
