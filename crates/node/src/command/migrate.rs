//! `migrate`: the tables of a database, made or brought up to date before a node starts.

use crate::{
    config::{Settings, StorePlace},
    output,
    wiring::stores,
};

/// Runs the command.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let place = settings.store_place();
    let done = match &place {
        StorePlace::Lmdb(_) => {
            "nothing to do: an embedded store is brought up to date when the node opens it".to_owned()
        }
        StorePlace::Postgres(url) => match stores::migrate(url).await? {
            (0, to) => format!("tables made, version {to}"),
            (from, to) if from == to => "the tables are up to date".to_owned(),
            (from, to) => format!("tables brought from version {from} to {to}"),
        },
    };
    Ok(output::print(&format!("{place}: {done}\n"))?)
}
