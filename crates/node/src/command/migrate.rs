//! `migrate`: creates or migrates the tables of a database before a node starts.

use crate::{
    config::{IndexPlace, Settings, StorePlace},
    output,
    wiring::{search_index, stores},
};

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let place = settings.store_place();
    let done = match &place {
        StorePlace::Lmdb(_) => "nothing to do: the node migrates an embedded store when it opens it".to_owned(),
        StorePlace::Postgres(url) => {
            let store = in_words(stores::migrate(url).await?);
            if settings.index_place() == IndexPlace::Postgres {
                format!("events: {store}; search: {}", in_words(search_index::migrate(url).await?))
            } else {
                store
            }
        }
    };
    output::print(&format!("{place}: {done}\n"))
}

fn in_words(versions: (u32, u32)) -> String {
    match versions {
        (0, to) => format!("tables made, version {to}"),
        (from, to) if from == to => "the tables are up to date".to_owned(),
        (from, to) => format!("tables migrated from version {from} to {to}"),
    }
}
