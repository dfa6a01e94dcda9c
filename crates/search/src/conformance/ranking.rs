//! The order of hits.

use kukuri_domain::{EventId, Kind, PublicKey, Timestamp};
use kukuri_store::Seq;

use super::{NOW, id, topic};
use crate::{Document, DocumentChange, Search, SearchIndex, SearchQuery, Text};

/// Titles rank before bodies, frequent words in short texts before rare ones in long texts, new documents before old ones.
pub async fn ranking(index: &dyn SearchIndex) {
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
    let changes = documents.into_iter().map(|document| DocumentChange::Put(Box::new(document))).collect();
    index.apply(changes, Seq(1).into()).await.expect("documents");
    let search = Search::new(SearchQuery::parse("tea").expect("a query"), NOW, 10);
    let hits: Vec<EventId> = index.search(&search).await.expect("hits").into_iter().map(|hit| hit.id).collect();
    let rank = |number| hits.iter().position(|hit| *hit == id(number)).expect("it is found");
    assert_eq!(hits.len(), 5);
    assert!(rank(3) < rank(4), "a title before a body");
    assert!(rank(2) < rank(1), "three times in few words before once in many");
    assert!(rank(5) < rank(4), "new before old");
}
