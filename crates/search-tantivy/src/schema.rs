//! Documents and searches in tantivy's terms.

use std::ops::Bound;

use kukuri_domain::{EventId, PublicKey};
use kukuri_search::{Document, IndexError, Search, analyzer::tokens, index::Result, ranking::TITLE_WEIGHT};
use tantivy::{
    TantivyDocument, Term,
    query::{BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, RangeQuery, TermQuery, TermSetQuery},
    schema::{
        BytesOptions, FAST, Field, INDEXED, IndexRecordOption, NumericOptions, STRING, Schema, TextFieldIndexing,
        TextOptions, Value,
    },
    tokenizer::PreTokenizedString,
};

pub(crate) const CREATED_AT: &str = "created_at";

/// The fields of the schema.
#[derive(Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) id: Field,
    author: Field,
    kind: Field,
    created_at: Field,
    topic: Field,
    title: Field,
    body: Field,
}

pub(crate) fn schema() -> (Schema, Fields) {
    let mut builder = Schema::builder();
    // Frequencies for BM25. No positions: snippets are cut from the event.
    let indexing = TextFieldIndexing::default().set_tokenizer("raw").set_index_option(IndexRecordOption::WithFreqs);
    // Without field norms: most documents have no title, so the average length would rank every title as long.
    let title = TextOptions::default().set_indexing_options(indexing.clone().set_fieldnorms(false));
    let text = TextOptions::default().set_indexing_options(indexing);
    let number = NumericOptions::default().set_indexed();
    let fields = Fields {
        id: builder.add_bytes_field("id", BytesOptions::default().set_indexed().set_stored()),
        author: builder.add_bytes_field("author", INDEXED),
        kind: builder.add_u64_field("kind", number),
        created_at: builder.add_u64_field(CREATED_AT, FAST),
        topic: builder.add_text_field("topic", STRING),
        title: builder.add_text_field("title", title),
        body: builder.add_text_field("body", text),
    };
    (builder.build(), fields)
}

impl Fields {
    pub(crate) fn document(&self, document: &Document) -> TantivyDocument {
        let mut fields = TantivyDocument::new();
        fields.add_bytes(self.id, document.id.as_bytes());
        fields.add_bytes(self.author, document.author.as_bytes());
        fields.add_u64(self.kind, u64::from(document.kind.0));
        fields.add_u64(self.created_at, document.created_at.0);
        for topic in &document.topics {
            fields.add_text(self.topic, topic.as_str());
        }
        fields.add_pre_tokenized_text(self.title, pre_tokenized(&document.text.title));
        fields.add_pre_tokenized_text(self.body, pre_tokenized(&document.text.body));
        fields
    }

    pub(crate) fn id_of(&self, document: &TantivyDocument) -> Result<EventId> {
        let bytes = document.get_first(self.id).and_then(|value| value.as_bytes());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(EventId::from_bytes).ok_or_else(|| IndexError::Damaged("a document has no id".to_owned()))
    }

    pub(crate) fn by_id(&self, id: &EventId) -> Term {
        Term::from_field_bytes(self.id, id.as_bytes())
    }

    /// All words must match; the restrictions do not score.
    pub(crate) fn query(&self, search: &Search) -> BooleanQuery {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for token in search.query.tokens() {
            clauses.push((Occur::Must, Box::new(self.word(token))));
        }
        let mut restrict =
            |query: Box<dyn Query>| clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(query, 0.0))));
        let mut among = |terms: Vec<Term>| restrict(Box::new(TermSetQuery::new(terms)));
        if let Some(topics) = &search.topics {
            among(topics.iter().map(|topic| Term::from_field_text(self.topic, topic.as_str())).collect());
        }
        if let Some(kinds) = &search.kinds {
            among(kinds.iter().map(|kind| Term::from_field_u64(self.kind, u64::from(kind.0))).collect());
        }
        if let Some(authors) = &search.authors {
            let term = |author: &PublicKey| Term::from_field_bytes(self.author, author.as_bytes());
            among(authors.iter().map(term).collect());
        }
        if search.since.is_some() || search.until.is_some() {
            let bound = |time: Option<kukuri_domain::Timestamp>| match time {
                Some(time) => Bound::Included(Term::from_field_u64(self.created_at, time.0)),
                None => Bound::Unbounded,
            };
            restrict(Box::new(RangeQuery::new(bound(search.since), bound(search.until))));
        }
        BooleanQuery::new(clauses)
    }

    fn word(&self, token: &str) -> BooleanQuery {
        let term = |field| TermQuery::new(Term::from_field_text(field, token), IndexRecordOption::WithFreqs);
        BooleanQuery::new(vec![
            (Occur::Should, Box::new(BoostQuery::new(Box::new(term(self.title)), TITLE_WEIGHT))),
            (Occur::Should, Box::new(term(self.body))),
        ])
    }
}

/// The tokens of our analyzer as tantivy's. The text itself is not stored.
fn pre_tokenized(text: &str) -> PreTokenizedString {
    let tokens = tokens(text).into_iter().enumerate().map(|(position, token)| tantivy::tokenizer::Token {
        offset_from: token.range.start,
        offset_to: token.range.end,
        position,
        text: token.text,
        position_length: 1,
    });
    PreTokenizedString { text: String::new(), tokens: tokens.collect() }
}
