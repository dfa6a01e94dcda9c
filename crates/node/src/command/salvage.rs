//! `salvage`: opens an embedded store whose write-ahead log is damaged.

use anyhow::bail;
use kukuri_store::StoreError;
use kukuri_store_lmdb::LmdbStore;

use crate::{config::Settings, output, wiring::stores};

pub(crate) fn run(settings: &Settings) -> anyhow::Result<()> {
    let place = stores::embedded(settings, "the server recovers its own log")?;
    stores::refuse_missing(&place)?;
    let events = match LmdbStore::salvage(&place, stores::lmdb_options(settings)) {
        Err(StoreError::Locked { .. }) => bail!("stop the node that uses {} first", place.display()),
        salvaged => salvaged?,
    };
    output::print(&format!("{}: {events} events stored from the write-ahead log\n", place.display()))
}
