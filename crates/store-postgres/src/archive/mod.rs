//! Everything in a store, read piece by piece and loaded into another.
//!
//! A dump takes the writers' lock with its first page and holds it to the last, in one session that also reads all pages:
//! whoever wants to write waits, so the pages fit each other and nothing is written that the copy does not have. If that
//! session is lost, so is the dump. Whoever reads no further gives the lock back with the store.
//!
//! A load is a row of write transactions like any other's, filled with what the other store knew instead of decisions.
//! Until the last of them the node's row says that half a copy is here, and nobody else can write.

mod dump;
mod indexes;
mod load;

pub(crate) use dump::Dumping;
