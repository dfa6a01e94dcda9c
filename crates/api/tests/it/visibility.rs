//! A withheld event is in no answer of the API (M-5).

use std::sync::Arc;

use kukuri_domain::{Event, Filter, PublicKey, TopicId, Viewer, Visibility, topic::TopicsMode, visibility::Overlay};
use kukuri_store::conformance::build::{ALICE, BOB, TOPIC, note};

use crate::support::Node;

#[derive(Debug)]
struct WithheldAuthor(PublicKey);

impl Overlay for WithheldAuthor {
    fn withholds(&self, event: &Event, _: &[TopicId], _: &Viewer, _: Option<&Filter>) -> bool {
        event.pubkey == self.0
    }
}

#[tokio::test]
async fn search_feed_and_snapshot_leave_withheld_events_out() {
    let node = Node::searching(TopicsMode::Required);
    let (shown, withheld) = (note("a lantern").by(ALICE).build(), note("another lantern").by(BOB).build());
    node.send(&[shown.clone(), withheld.clone()]).await;
    node.index(std::slice::from_ref(&withheld)).await;
    let paths = [
        format!("/v1/search?topic={TOPIC}&q=lantern"),
        format!("/v1/topics/{TOPIC}/changes"),
        format!("/v1/topics/{TOPIC}/snapshot"),
    ];
    for (visibility, count) in
        [(Visibility::with_overlay(Arc::new(WithheldAuthor(BOB))), 0), (Visibility::default(), 1)]
    {
        *node.visibility.lock().unwrap() = visibility;
        for path in &paths {
            let answer = node.get(path).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(
                answer.text.matches(&format!("\"id\":\"{}\"", withheld.id)).count(),
                count,
                "{path}: {answer:?}"
            );
        }
    }
}
