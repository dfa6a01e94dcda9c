//! `migrate`: creates or migrates the tables of a database before a node starts.

use crate::{
    config::{IndexPlace, Settings, StorePlace, place::ControlPlace},
    output,
    wiring::{control, search_index, stores},
};

const EMBEDDED: &str = "nothing to do: the node migrates it when it opens it";

pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut done = Vec::new();
    let place = settings.store_place();
    match &place {
        StorePlace::Lmdb(_) => done.push(format!("{place}: {EMBEDDED}")),
        StorePlace::Postgres(url) => {
            done.push(format!("{place}: events: {}", in_words(stores::migrate(url).await?)));
            if settings.index_place() == IndexPlace::Postgres {
                done.push(format!("{place}: search: {}", in_words(search_index::migrate(url).await?)));
            }
        }
    }
    let place = settings.control_place();
    match &place {
        ControlPlace::Sqlite(_) => done.push(format!("{place}: {EMBEDDED}")),
        ControlPlace::Postgres(url) => {
            done.push(format!("{place}: people: {}", in_words(control::migrate(url).await?)));
        }
    }
    output::print(&format!("{}\n", done.join("\n")))
}

fn in_words(versions: (u32, u32)) -> String {
    match versions {
        (0, to) => format!("tables made, version {to}"),
        (from, to) if from == to => "the tables are up to date".to_owned(),
        (from, to) => format!("tables migrated from version {from} to {to}"),
    }
}
