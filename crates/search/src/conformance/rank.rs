//! The order of hits.

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp};
use kukuri_store::Seq;

use super::{NOW, id, topic};
use crate::{Change, Document, Search, SearchIndex, SearchQuery, Text};

/// What is better stands first: a title before a text, many words before few, the new before the old.
pub async fn rank(index: &dyn SearchIndex) {
    let document = |number, title: &str, body: &str, days: u64| Document {
        id: id(number),
        author: PublicKey::from_bytes([1; 32]),
        kind: Kind(1),
        created_at: Timestamp(NOW.0 - days * 86_400),
        topics: vec![topic(1)],
        text: Text { title: title.to_owned(), body: body.to_owned() },
    };
    let documents = [
        document(1, "", "green tea and much else that has nothing to do with it at all", 10),
        document(2, "", "tea tea tea, as it is made here", 10),
        document(3, "Tea", "as it is made here, every day again", 10),
        document(4, "", "tea, as it is made here, every day", 400),
        document(5, "", "tea, as it is made here, every day", 1),
    ];
    let changes = documents.into_iter().map(|document| Change::Put(Box::new(document))).collect();
    index.apply(changes, Seq(1).into()).await.expect("documents");
    let search = Search::new(SearchQuery::parse("tea").expect("a question"), NOW, 10);
    let hits: Vec<EventId> = index.search(&search).await.expect("hits").into_iter().map(|hit| hit.id).collect();
    let place = |number| hits.iter().position(|hit| *hit == id(number)).expect("it is found");
    assert_eq!(hits.len(), 5);
    assert!(place(3) < place(4), "a title before a text");
    assert!(place(2) < place(1), "often before once, in few words before in many");
    assert!(place(5) < place(4), "the new before the old");
}
