//! A hand-written corpus with queries and their expected hits (`tests/relevance`).

use std::collections::BTreeSet;

use kukuri_domain::EventId;
use kukuri_store::{Seq, conformance::build};
use serde::Deserialize;

use super::{NOW, topic};
use crate::{Document, DocumentChange, Search, SearchIndex, SearchQuery};

const CORPUS: &str = include_str!("../../tests/relevance/corpus.toml");
const QUERIES: &str = include_str!("../../tests/relevance/queries.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    document: Vec<Post>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Post {
    name: String,
    #[serde(default = "note")]
    kind: u16,
    title: Option<String>,
    summary: Option<String>,
    content: String,
    #[serde(default)]
    hashtags: Vec<String>,
}

fn note() -> u16 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Queries {
    query: Vec<Query>,
    limit: Vec<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    text: String,
    finds: BTreeSet<String>,
    best: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    text: String,
    finds: BTreeSet<String>,
    expected: BTreeSet<String>,
}

impl Post {
    fn document(&self) -> Document {
        let tags = [("title", &self.title), ("summary", &self.summary)];
        let tags = tags.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let hashtags = self.hashtags.iter().map(|hashtag| ("t", hashtag.as_str()));
        let draft = build::bare(self.kind).at(0).content(&self.content);
        let draft = tags.chain(hashtags).fold(draft, |draft, (name, value)| draft.tag([name, value]));
        Document::new(&draft.build(), vec![topic(1)])
    }
}

/// Fills an empty index with the corpus and compares the hits of every query.
pub async fn relevance(index: &dyn SearchIndex) {
    let posts = toml::from_str::<Corpus>(CORPUS).expect("a corpus").document;
    let queries: Queries = toml::from_str(QUERIES).expect("queries");
    let documents: Vec<(&str, Document)> = posts.iter().map(|post| (post.name.as_str(), post.document())).collect();
    let puts = documents.iter().map(|(_, document)| DocumentChange::Put(Box::new(document.clone())));
    index.apply(puts.collect(), Seq(1).into()).await.expect("documents");
    let name =
        |id: EventId| documents.iter().find(|(_, document)| document.id == id).expect("a document of the corpus").0;

    let mut wrong = Vec::new();
    for Query { text, finds, best } in &queries.query {
        let found: Vec<&str> = answer(index, text).await.into_iter().map(name).collect();
        if !is_same_set(&found, finds) {
            wrong.push(format!("{text}: found {found:?}, expected {finds:?}"));
        } else if best.as_ref().is_some_and(|best| found.first() != Some(&best.as_str())) {
            wrong.push(format!("{text}: {best:?} is not the first of {found:?}"));
        }
    }
    for Limit { text, finds, expected } in &queries.limit {
        let found: Vec<&str> = answer(index, text).await.into_iter().map(name).collect();
        if !is_same_set(&found, finds) || finds == expected {
            wrong.push(format!("{text}: found {found:?}, so the documented limit has changed"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

async fn answer(index: &dyn SearchIndex, text: &str) -> Vec<EventId> {
    let query = SearchQuery::parse(text).expect("a query");
    let hits = index.search(&Search::new(query, NOW, 100)).await.expect("hits");
    hits.into_iter().map(|hit| hit.id).collect()
}

/// The same names, each once, in any order.
fn is_same_set(found: &[&str], names: &BTreeSet<String>) -> bool {
    found.len() == names.len() && found.iter().all(|name| names.contains(*name))
}
