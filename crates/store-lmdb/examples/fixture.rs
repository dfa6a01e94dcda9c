//! Writes a small store of the current format, with a bit of everything in it, for tests of later programs to open.

use std::{fs, path::Path};

use kukuri_domain::subscription::SubscriptionChange;
use kukuri_store::{
    Seq,
    conformance::build::{BOB, NOW, admitted, article, deletion, later, note, profile, topic, vanish},
    port::*,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-3");
    // A released fixture never changes: a new format gets a directory of its own.
    fs::create_dir(&target)?;
    let dir = tempfile::tempdir()?;
    let store = LmdbStore::open(dir.path(), LmdbOptions { reserve: 0, map_size: 1 << 26, ..LmdbOptions::default() })?;

    let deleted = note("deleted").at(1).build();
    let withdrawn = article("b", "withdrawn").at(6).build();
    let events = [
        note("a note").at(2).tag(["t", "hashtag"]).build(),
        deleted.clone(),
        deletion().at(3).of(&deleted).build(),
        deletion().at(3).tag(["e", &"ab".repeat(32)]).build(),
        profile("old").at(4).build(),
        profile("new").at(5).build(),
        article("a", "an article").at(6).build(),
        withdrawn.clone(),
        deletion().at(8).of(&withdrawn).build(),
        note("ends").at(7).until(1_000_000_000).build(),
        note("gone").by(BOB).at(8).build(),
        vanish().by(BOB).at(9).build(),
    ];
    store.ingest(events.iter().map(admitted).collect(), NOW).await?;
    store.change_subscription(&topic(), SubscriptionChange::enable(), later(1)).await?;
    store.set_offset("index-v1", Seq(3), later(2)).await?;

    let page = store.snapshot(Default::default(), 1_000).await?;
    let lines: Vec<_> = page.events.iter().map(|event| String::from_utf8_lossy(&event.event.json) + "\n").collect();
    fs::write(target.join("effective.jsonl"), lines.concat())?;
    fs::write(target.join("deleted.json"), deleted.to_json())?;
    store.copy_to(target.join("data.mdb"))?;
    Ok(())
}
