//! Deletion requests (D-1 to D-8).

use kukuri_domain::{DeletionMode, deletion::DeletionResult};

use super::{
    build::{ALICE, BOB, CAROL, NOW, article, bare, deletion, event, note, profile, vanish},
    probe::effective,
    story::{DELETED, DUPLICATE, REPLACED, STORED, Story, all_come_true},
    subject::{Harness, Subject},
};
use crate::{
    ingest::StoreRules,
    report::{Standing, total},
};

/// D-1, D-3, D-5, D-6: by id.
pub(super) async fn a_deletion_by_id_takes_away_what_its_author_owns_in_any_order<H: Harness>(harness: &H) {
    let target = note("target").at(3).build();
    let other = note("other").build();
    let request = deletion().of(&target).at(1).build();
    let again = deletion().of(&target).at(2).build();
    let foreign = deletion().of(&target).by(BOB).at(5).build();
    let of_request = deletion().of(&request).at(4).build();
    let farewell = vanish().at(0).tag(["relay", "ALL_RELAYS"]).by(CAROL).build();
    let of_farewell = deletion().of(&farewell).by(CAROL).at(4).build();
    let of_nothing = deletion().build();
    let spoiled = deletion().tag(["e", "no id"]).tag(["e"]).of(&foreign).of(&target).tag(["a", "1"]).build();
    let advised = deletion().of(&target).tag(["k", "30023"]).build();
    let wrap = bare(1059).tag(["p", &BOB.to_string()]).tag(["p", &CAROL.to_string()]).build();
    let by_sender = deletion().of(&wrap).build();
    let by_recipient = deletion().of(&wrap).by(CAROL).build();
    let mention = note("to Bob").tag(["p", &BOB.to_string()]).build();
    let by_mentioned = deletion().of(&mention).by(BOB).build();

    all_come_true(
        harness,
        vec![
            Story {
                why: "a request takes its target away, however old the request says it is",
                arrivals: vec![(&target, STORED), (&other, STORED), (&request, STORED)],
                effective: vec![&other, &request],
            },
            Story {
                why: "a request waits for its target",
                arrivals: vec![(&request, STORED), (&target, DELETED), (&other, STORED)],
                effective: vec![&other, &request],
            },
            Story {
                why: "a deleted event stays out when it is sent again",
                arrivals: vec![(&target, STORED), (&request, STORED), (&target, DELETED), (&target, DELETED)],
                effective: vec![&request],
            },
            Story {
                why: "a second request is stored like the first",
                arrivals: vec![(&request, STORED), (&again, STORED), (&request, DUPLICATE), (&target, DELETED)],
                effective: vec![&request, &again],
            },
            Story {
                why: "nobody deletes what is another's",
                arrivals: vec![(&target, STORED), (&foreign, STORED)],
                effective: vec![&target, &foreign],
            },
            Story {
                why: "nobody deletes what will be another's",
                arrivals: vec![(&foreign, STORED), (&target, STORED)],
                effective: vec![&target, &foreign],
            },
            Story {
                why: "a foreign tombstone does not stand in the way of the owner's",
                arrivals: vec![(&foreign, STORED), (&request, STORED), (&target, DELETED)],
                effective: vec![&foreign, &request],
            },
            Story {
                why: "the owner's tombstone is not lost to a foreign one",
                arrivals: vec![(&request, STORED), (&foreign, STORED), (&target, DELETED)],
                effective: vec![&foreign, &request],
            },
            Story {
                why: "a request can't be deleted",
                arrivals: vec![(&request, STORED), (&of_request, STORED), (&target, DELETED)],
                effective: vec![&request, &of_request],
            },
            Story {
                why: "a request that is not here yet can't be deleted",
                arrivals: vec![(&of_request, STORED), (&request, STORED), (&target, DELETED)],
                effective: vec![&request, &of_request],
            },
            Story {
                why: "a vanish request can't be deleted",
                arrivals: vec![(&farewell, STORED), (&of_farewell, STORED)],
                effective: vec![&farewell, &of_farewell],
            },
            Story {
                why: "a vanish request that is not here yet can't be deleted",
                arrivals: vec![(&of_farewell, STORED), (&farewell, STORED)],
                effective: vec![&farewell, &of_farewell],
            },
            Story {
                why: "a request without a valid target is stored",
                arrivals: vec![(&of_nothing, STORED)],
                effective: vec![&of_nothing],
            },
            Story {
                why: "what is malformed, foreign or protected does not stop the other targets",
                arrivals: vec![(&target, STORED), (&foreign, STORED), (&spoiled, STORED)],
                effective: vec![&foreign, &spoiled],
            },
            Story {
                why: "a k tag is only advice",
                arrivals: vec![(&target, STORED), (&advised, STORED)],
                effective: vec![&advised],
            },
            Story {
                why: "a gift wrap is its sender's",
                arrivals: vec![(&wrap, STORED), (&by_sender, STORED)],
                effective: vec![&by_sender],
            },
            Story {
                why: "a gift wrap is each recipient's, too",
                arrivals: vec![(&by_recipient, STORED), (&wrap, DELETED)],
                effective: vec![&by_recipient],
            },
            Story {
                why: "no other event is its recipient's",
                arrivals: vec![(&mention, STORED), (&by_mentioned, STORED)],
                effective: vec![&mention, &by_mentioned],
            },
        ],
    )
    .await;
}

/// D-2, D-3, D-4: by address.
pub(super) async fn a_deletion_by_address_covers_versions_up_to_its_time<H: Harness>(harness: &H) {
    let early = article("a:b", "early").at(1).build();
    let middle = article("a:b", "middle").at(2).build();
    let late = article("a:b", "late").at(3).build();
    let request = deletion().of_key(&middle).at(2).build();
    let earlier = deletion().of_key(&middle).at(1).build();
    let other_key = article("a", "another").at(1).build();
    let foreign = deletion().of_key(&middle).by(BOB).at(2).build();
    let name = profile("name").at(1).build();
    let of_name = deletion().of_key(&name).at(1).build();
    let with_d = deletion().tag(["a", &format!("0:{ALICE}:x")]).at(1).build();
    let text = note("text").at(1).build();
    let of_regular = deletion().tag(["a", &format!("1:{ALICE}:")]).at(1).build();

    all_come_true(
        harness,
        vec![
            Story {
                why: "a version of the same second is covered",
                arrivals: vec![(&middle, STORED), (&other_key, STORED), (&request, STORED)],
                effective: vec![&other_key, &request],
            },
            Story {
                why: "a newer version stays",
                arrivals: vec![(&late, STORED), (&request, STORED)],
                effective: vec![&late, &request],
            },
            Story {
                why: "a newer version may come, an older may not",
                arrivals: vec![(&request, STORED), (&middle, DELETED), (&early, DELETED), (&late, STORED)],
                effective: vec![&late, &request],
            },
            Story {
                why: "of two requests the later reaches further, whichever comes first",
                arrivals: vec![(&request, STORED), (&earlier, STORED), (&middle, DELETED)],
                effective: vec![&earlier, &request],
            },
            Story {
                why: "of two requests the later reaches further, whichever comes last",
                arrivals: vec![(&earlier, STORED), (&request, STORED), (&middle, DELETED)],
                effective: vec![&earlier, &request],
            },
            Story {
                why: "an address of another author is passed over",
                arrivals: vec![(&foreign, STORED), (&middle, STORED)],
                effective: vec![&foreign, &middle],
            },
            Story {
                why: "the address of a replaceable event has an empty d",
                arrivals: vec![(&name, STORED), (&of_name, STORED)],
                effective: vec![&of_name],
            },
            Story {
                why: "a replaceable event has no d",
                arrivals: vec![(&name, STORED), (&with_d, STORED)],
                effective: vec![&name, &with_d],
            },
            Story {
                why: "a regular event has no address",
                arrivals: vec![(&text, STORED), (&of_regular, STORED)],
                effective: vec![&text, &of_regular],
            },
            Story {
                why: "a replaced version that is deleted by address is answered as before",
                arrivals: vec![(&late, STORED), (&early, REPLACED), (&request, STORED), (&early, REPLACED)],
                effective: vec![&late, &request],
            },
        ],
    )
    .await;
}

/// D-2, D-11.
pub(super) async fn a_deletion_tells_what_it_took_and_what_it_skipped<H: Harness>(harness: &H) {
    let [first, second] = [note("first").build(), note("second").build()];
    let foreign = note("foreign").by(BOB).build();
    let unseen = note("unseen").build();
    let [old, new] = [article("x", "old").at(1).build(), article("x", "new").at(2).build()];
    for (why, request, deleted_count, skipped_count) in [
        ("two targets", deletion().of(&first).of(&second), 2, 0),
        ("malformed, foreign and unseen ones", deletion().of(&first).of(&foreign).of(&unseen).tag(["a", ""]), 1, 3),
        ("an address takes all its versions", deletion().of_key(&old).at(2), 2, 0),
        ("named by id and by address, taken once", deletion().of(&new).of_key(&new).at(1), 2, 0),
        ("nothing but advice", deletion().tag(["k", "1"]), 0, 0),
    ] {
        let store = Subject::open(harness, StoreRules::default()).await;
        store.send(&[&first, &second, &foreign, &old, &new]).await;
        let ingested = store.send(&[&request.build()]).await;
        assert_eq!(ingested.deletions, DeletionResult { deleted_count, skipped_count }, "{why}");
    }
}

/// D-6.
pub(super) async fn a_tombstone_waits_for_its_target_and_tells_when_it_came<H: Harness>(harness: &H) {
    let target = note("target").build();
    let request = deletion().of(&target).at(1).build();
    let again = deletion().of(&target).at(2).build();
    let foreign = deletion().of(&target).by(BOB).build();
    let store = Subject::open(harness, StoreRules::default()).await;

    store.send(&[&request, &again, &foreign]).await;
    let waiting = store.explain(&target.id).await.expect("an explanation");
    assert_eq!(waiting.record, None, "an event that never came is not known");
    assert_eq!(waiting.tombstones.len(), 2, "one per target and requester: {:?}", waiting.tombstones);
    assert!(waiting.tombstones.iter().all(|tombstone| tombstone.applied_at.is_none()), "nothing was met yet");

    store.send(&[&target]).await;
    let met = store.explain(&target.id).await.expect("an explanation");
    assert!(met.row.is_none(), "it is not stored");
    assert_eq!(met.record.map(|record| record.seen_count), Some(1), "but known");
    for tombstone in met.tombstones {
        let is_the_owners = tombstone.target.requester_pubkey == ALICE;
        assert_eq!(tombstone.applied_at, is_the_owners.then_some(NOW), "{tombstone:?}");
        let first = if is_the_owners { request.id } else { foreign.id };
        assert_eq!(tombstone.deletion_id, first, "the first request for an id stays its reason");
    }
}

/// D-7.
pub(super) async fn a_deleted_row_is_hidden_or_gone_by_the_stores_mode<H: Harness>(harness: &H) {
    let target = note("target").build();
    let request = deletion().of(&target).at(1).build();
    for (deletion, rows) in [(DeletionMode::Soft, 2), (DeletionMode::Physical, 1)] {
        let mut store = Subject::open(harness, StoreRules { deletion, ..StoreRules::default() }).await;
        store.send(&[&target, &request]).await;
        store.reopen().await;
        let explained = store.explain(&target.id).await.expect("an explanation");
        assert_eq!(explained.row.is_some(), deletion == DeletionMode::Soft, "{deletion:?}");
        assert_eq!(explained.tombstones.len(), 1, "{deletion:?}: the tombstone stays");
        let standing = explained.record.map(|record| record.standing);
        assert!(
            matches!(standing, Some(Standing::Gone { cause: Some(cause), .. }) if cause == request.id),
            "{deletion:?}: {standing:?}"
        );
        let stats = store.stats().await.expect("figures");
        assert_eq!((stats.effective, total(&stats.by_class).events), (1, rows), "{deletion:?}");
        assert_eq!(store.get(&[target.id], NOW).await.expect("events"), [None], "{deletion:?}");
    }
}

/// D-8: the effects of a request on several topics and keys are atomic.
pub(super) async fn a_deletion_and_all_its_effects_come_together<H: Harness>(harness: &H) {
    let targets: Vec<_> = (0..40).map(|number| event(1).content(&number.to_string()).build()).collect();
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&targets.iter().collect::<Vec<_>>()).await;
    let request = targets.iter().fold(deletion(), |request, target| request.of(target)).build();
    let ingested = store.send(&[&request]).await;
    assert_eq!(ingested.deletions.deleted_count, targets.len());
    assert_eq!(effective(&*store, NOW).await, [request.id].into());
    assert_eq!(
        ingested.head.0,
        2 * targets.len() as u64 + 1,
        "a row for every target that came and went, and one more"
    );
}
