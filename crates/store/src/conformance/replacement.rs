//! Versions of a key: one is effective, and the floor never sinks (E-3, E-4, D-9).

use kukuri_domain::decision::KeyState;

use super::{
    build::{BOB, article, by_id, deletion, event, profile, vanish},
    story::{DELETED, DUPLICATE, REPLACED, STORED, Story, VANISHED, all_come_true},
    subject::{Harness, Subject},
};
use crate::ingest::StoreRules;

/// E-3, E-4.
pub(super) async fn the_highest_version_of_a_key_is_effective<H: Harness>(harness: &H) {
    let [old, new] = [profile("old").at(1).build(), profile("new").at(2).build()];
    let [lower, higher] = by_id([profile("one").at(3), profile("other").at(3)]);
    let bobs = profile("Bob").by(BOB).at(1).build();
    let relays = event(10_002).at(1).build();
    let [plain, named] = [article("", "plain").at(1).build(), article("a", "named").at(2).build()];
    let twice = event(30_023).tag(["d", "a"]).tag(["d", "b"]).at(3).build();
    let second = article("b", "second").at(1).build();

    all_come_true(
        harness,
        vec![
            Story {
                why: "a newer version takes the place of an older",
                arrivals: vec![(&old, STORED), (&new, STORED), (&new, DUPLICATE), (&old, REPLACED)],
                effective: vec![&new],
            },
            Story {
                why: "an older version comes too late",
                arrivals: vec![(&new, STORED), (&old, REPLACED), (&old, REPLACED)],
                effective: vec![&new],
            },
            Story {
                why: "on a tie the lower id wins when it comes last",
                arrivals: vec![(&higher, STORED), (&lower, STORED)],
                effective: vec![&lower],
            },
            Story {
                why: "on a tie the lower id wins when it comes first",
                arrivals: vec![(&lower, STORED), (&higher, REPLACED)],
                effective: vec![&lower],
            },
            Story {
                why: "authors and kinds have keys of their own",
                arrivals: vec![(&new, STORED), (&bobs, STORED), (&relays, STORED)],
                effective: vec![&new, &bobs, &relays],
            },
            Story {
                why: "every d is a key of its own, the empty one too",
                arrivals: vec![(&plain, STORED), (&named, STORED)],
                effective: vec![&plain, &named],
            },
            Story {
                why: "the first d counts",
                arrivals: vec![(&named, STORED), (&second, STORED), (&twice, STORED)],
                effective: vec![&second, &twice],
            },
        ],
    )
    .await;
}

/// D-9.
pub(super) async fn an_older_version_never_comes_back<H: Harness>(harness: &H) {
    let [old, middle, new] = [1, 2, 3].map(|second| profile("version").at(second).build());
    let of_new = deletion().of(&new).at(4).build();
    let of_key = deletion().of_key(&middle).at(2).build();
    let [lower, higher] = by_id([profile("one").at(5), profile("other").at(5)]);
    let of_lower = deletion().of(&lower).at(5).build();
    let of_higher = deletion().of(&higher).at(5).build();
    let farewell = vanish().at(2).build();

    all_come_true(
        harness,
        vec![
            Story {
                why: "the deletion of a version leaves its floor",
                arrivals: vec![(&new, STORED), (&of_new, STORED), (&old, REPLACED)],
                effective: vec![&of_new],
            },
            Story {
                why: "the deletion of a version does not bring back what it replaced",
                arrivals: vec![(&old, STORED), (&new, STORED), (&of_new, STORED), (&old, REPLACED)],
                effective: vec![&of_new],
            },
            Story {
                why: "a version refused as deleted takes down a lower one",
                arrivals: vec![(&of_new, STORED), (&middle, STORED), (&new, DELETED), (&old, REPLACED)],
                effective: vec![&of_new],
            },
            Story {
                why: "a version refused as deleted by address takes down a lower one",
                arrivals: vec![(&old, STORED), (&of_key, STORED), (&middle, DELETED), (&new, STORED)],
                effective: vec![&of_key, &new],
            },
            Story {
                why: "a deleted version above a lower id of its second takes it down",
                arrivals: vec![(&of_lower, STORED), (&higher, STORED), (&lower, DELETED)],
                effective: vec![&of_lower],
            },
            Story {
                why: "a deleted version below another of its second does nothing",
                arrivals: vec![(&of_higher, STORED), (&lower, STORED), (&higher, DELETED)],
                effective: vec![&of_higher, &lower],
            },
            Story {
                why: "a version refused as vanished raises the floor",
                arrivals: vec![(&farewell, STORED), (&middle, VANISHED), (&new, STORED)],
                effective: vec![&farewell, &new],
            },
        ],
    )
    .await;
}

/// D-9: the floor and the effective version, as an operator sees them.
pub(super) async fn a_key_shows_its_floor_and_its_effective_version<H: Harness>(harness: &H) {
    let [old, new] = [article("x", "old").at(1).build(), article("x", "new").at(2).build()];
    let address = new.address().expect("a key");
    let mut store = Subject::open(harness, StoreRules::default()).await;
    let explained = store.explain_address(&address).await.expect("an explanation");
    assert_eq!(explained.key, None, "no version was seen");

    store.send(&[&old, &new]).await;
    let request = deletion().of(&new).at(3).build();
    let current = Some(KeyState { floor: new.rank(), current: Some(new.id) });
    assert_eq!(store.explain_address(&address).await.expect("an explanation").key, current);
    assert_eq!(store.explain(&old.id).await.expect("an explanation").key, current, "of a hidden version, too");

    store.send(&[&request]).await;
    store.reopen().await;
    let bare_floor = Some(KeyState { floor: new.rank(), current: None });
    assert_eq!(store.explain_address(&address).await.expect("an explanation").key, bare_floor);
}
