//! Documents as tantivy keeps them, and questions as it is asked.

use std::ops::Bound;

use kukuri_domain::{EventId, PublicKey};
use tantivy::{
    TantivyDocument, Term,
    query::{BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, RangeQuery, TermQuery, TermSetQuery},
    schema::{
        BytesOptions, FAST, Field, INDEXED, IndexRecordOption, NumericOptions, STRING, Schema, TextFieldIndexing,
        TextOptions, Value,
    },
    tokenizer::PreTokenizedString,
};

use crate::{
    analyzer::tokens,
    index::{Document, IndexError, Result, Search},
    ranking::TITLE_WEIGHT,
};

/// Where `created_at` is.
pub(super) const CREATED_AT: &str = "created_at";

/// The fields.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    pub(super) id: Field,
    author: Field,
    kind: Field,
    created_at: Field,
    topic: Field,
    title: Field,
    body: Field,
}

/// The schema and its fields.
pub(super) fn schema() -> (Schema, Fields) {
    let mut builder = Schema::builder();
    // How often a word occurs counts; where it does is seen in the event itself.
    let indexing = TextFieldIndexing::default().set_tokenizer("raw").set_index_option(IndexRecordOption::WithFreqs);
    // Most documents have no title: beside their average length any title would count as long, and for little.
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
    pub(super) fn document(&self, document: &Document) -> TantivyDocument {
        let mut fields = TantivyDocument::new();
        fields.add_bytes(self.id, document.id.as_bytes());
        fields.add_bytes(self.author, document.author.as_bytes());
        fields.add_u64(self.kind, u64::from(document.kind.0));
        fields.add_u64(self.created_at, document.created_at.0);
        for topic in &document.topics {
            fields.add_text(self.topic, topic.as_str());
        }
        fields.add_pre_tokenized_text(self.title, taken_apart(&document.text.title));
        fields.add_pre_tokenized_text(self.body, taken_apart(&document.text.body));
        fields
    }

    pub(super) fn id_of(&self, document: &TantivyDocument) -> Result<EventId> {
        let bytes = document.get_first(self.id).and_then(|value| value.as_bytes());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(EventId::from_bytes).ok_or_else(|| IndexError::Damaged("a document has no id".to_owned()))
    }

    pub(super) fn by_id(&self, id: &EventId) -> Term {
        Term::from_field_bytes(self.id, id.as_bytes())
    }

    /// A question: all words, and all that narrows it.
    pub(super) fn question(&self, search: &Search) -> BooleanQuery {
        let mut clauses: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        for token in search.query.tokens() {
            clauses.push((Occur::Must, Box::new(self.word(token))));
        }
        let mut narrow =
            |query: Box<dyn Query>| clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(query, 0.0))));
        let mut among = |terms: Vec<Term>| narrow(Box::new(TermSetQuery::new(terms)));
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
            narrow(Box::new(RangeQuery::new(bound(search.since), bound(search.until))));
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

/// Tokens of ours as tantivy's. It keeps none of the text itself.
fn taken_apart(text: &str) -> PreTokenizedString {
    let tokens = tokens(text).into_iter().enumerate().map(|(position, token)| tantivy::tokenizer::Token {
        offset_from: token.place.start,
        offset_to: token.place.end,
        position,
        text: token.text,
        position_length: 1,
    });
    PreTokenizedString { text: String::new(), tokens: tokens.collect() }
}
