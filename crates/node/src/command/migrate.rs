//! `migrate`: the tables of a database, made or brought up to date before a node starts.

use crate::{
    config::{IndexPlace, Settings, StorePlace},
    output,
    wiring::{searching, stores},
};

/// Runs the command.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let place = settings.store_place();
    let done = match &place {
        StorePlace::Lmdb(_) => {
            "nothing to do: an embedded store is brought up to date when the node opens it".to_owned()
        }
        StorePlace::Postgres(url) => {
            let store = in_words(stores::migrate(url).await?);
            if settings.index_place() == IndexPlace::Postgres {
                format!("events: {store}; search: {}", in_words(searching::migrate(url).await?))
            } else {
                store
            }
        }
    };
    Ok(output::print(&format!("{place}: {done}\n"))?)
}

fn in_words(versions: (u32, u32)) -> String {
    match versions {
        (0, to) => format!("tables made, version {to}"),
        (from, to) if from == to => "the tables are up to date".to_owned(),
        (from, to) => format!("tables brought from version {from} to {to}"),
    }
}
