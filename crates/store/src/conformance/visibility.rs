//! Private kinds are shown only to their parties (E-10).

use kukuri_domain::{Filter, Kind, Letter, PublicKey, Viewer};

use super::{
    build::{ALICE, BOB, CAROL, NOW, TOPIC, event, note},
    subject::{Harness, Subject},
};
use crate::{ingest::StoreRules, query::Query};

/// E-10: on REQ and COUNT.
pub(super) async fn private_events_are_shown_to_their_parties_only<H: Harness>(harness: &H) {
    let to_bob = |kind| event(kind).tag(["p", &BOB.to_string()]).at(2).build();
    let [public, message, wrap] = [note("public").tag(["p", &BOB.to_string()]).at(1).build(), to_bob(4), to_bob(1059)];
    let store = Subject::open(harness, StoreRules::default()).await;
    store.send(&[&public, &message, &wrap]).await;

    let client = |keys: &[PublicKey]| Viewer::Client(keys.into());
    for (why, viewer, sees_all) in [
        ("the node itself", Viewer::Node, true),
        ("a stranger", Viewer::unauthenticated(), false),
        ("its author", client(&[ALICE]), true),
        ("its recipient", client(&[BOB]), true),
        ("somebody else", client(&[CAROL]), false),
        ("one of several keys is a party", client(&[CAROL, BOB]), true),
    ] {
        for (how, filter) in [
            ("everything", Filter::new()),
            ("by id", Filter::new().with_ids([public.id, message.id, wrap.id])),
            ("by author", Filter::new().with_authors([ALICE])),
            ("by topic", Filter::new().with_tag(Letter::T, [TOPIC])),
            ("by recipient", Filter::new().with_tag(Letter::P, [BOB.to_string()])),
            ("by kind", Filter::new().with_kinds([Kind(1), Kind(4), Kind(1059)])),
        ] {
            let query = Query::of(filter.clone(), viewer.clone(), NOW);
            let count = if sees_all { 3 } else { 1 };
            let answer = store.query(&query).await.expect("an answer");
            assert_eq!(answer.events.len(), count, "{why}, {how}");
            assert_eq!(store.count(&query, None).await.expect("a count").events, count as u64, "{why}, {how}: count");
            let one = Query::of(filter.with_limit(1), viewer.clone(), NOW);
            let first = store.query(&one).await.expect("an answer").events.remove(0).id;
            assert_eq!(first == public.id, !sees_all, "{why}, {how}: what is not shown does not use up a limit");
        }
    }
}
