//! Documents and searches in tantivy's terms.

use std::{ops::Bound, sync::Arc};

use kukuri_domain::{EventId, PublicKey};
use kukuri_search::{Document, Search, ranking::TITLE_WEIGHT};
use tantivy::{
    DocId, SegmentReader, TantivyDocument, TantivyError, Term,
    columnar::ColumnValues,
    query::{BooleanQuery, BoostQuery, ConstScoreQuery, Occur, Query, RangeQuery, TermQuery, TermSetQuery},
    schema::{
        BytesOptions, FAST, Field, INDEXED, IndexRecordOption, NumericOptions, STRING, Schema, TextFieldIndexing,
        TextOptions,
    },
};

use crate::tokens::ANALYZER;

pub(crate) const CREATED_AT: &str = "created_at";

/// Columns that hold the id of a document, eight bytes each.
pub(crate) const ID_PARTS: [&str; 4] = ["id_0", "id_1", "id_2", "id_3"];
/// Documents are found by so many first bytes of their id: a dictionary of whole ids costs as much as all the words. Two ids that
/// begin alike can't be made.
pub(crate) const ID_PREFIX: usize = 12;

/// The fields of the schema.
#[derive(Clone, Copy)]
pub(crate) struct Fields {
    pub(crate) id: Field,
    id_parts: [Field; 4],
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
    let indexing = TextFieldIndexing::default().set_tokenizer(ANALYZER).set_index_option(IndexRecordOption::WithFreqs);
    // Without field norms: most documents have no title, so the average length would rank every title as long.
    let title = TextOptions::default().set_indexing_options(indexing.clone().set_fieldnorms(false));
    let text = TextOptions::default().set_indexing_options(indexing);
    let number = NumericOptions::default().set_indexed();
    let fields = Fields {
        id: builder.add_bytes_field("id", BytesOptions::default().set_indexed()),
        id_parts: ID_PARTS.map(|name| builder.add_u64_field(name, FAST)),
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
    /// The words are split by the index's own thread.
    pub(crate) fn document(&self, document: &Document) -> TantivyDocument {
        let mut fields = TantivyDocument::new();
        fields.add_bytes(self.id, prefix_of(&document.id));
        for (field, part) in self.id_parts.into_iter().zip(document.id.as_bytes().as_chunks().0) {
            fields.add_u64(field, u64::from_be_bytes(*part));
        }
        fields.add_bytes(self.author, document.author.as_bytes());
        fields.add_u64(self.kind, u64::from(document.kind.0));
        fields.add_u64(self.created_at, document.created_at.0);
        for topic in &document.topics {
            fields.add_text(self.topic, topic.as_str());
        }
        fields.add_text(self.title, &document.text.title);
        fields.add_text(self.body, &document.text.body);
        fields
    }

    pub(crate) fn by_id(&self, id: &EventId) -> Term {
        Term::from_field_bytes(self.id, prefix_of(id))
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

/// The bytes of an id by which its document is found.
pub(crate) fn prefix_of(id: &EventId) -> &[u8] {
    &id.as_bytes()[..ID_PREFIX]
}

/// Reads the ids of the documents of a segment.
pub(crate) struct IdColumns([Arc<dyn ColumnValues<u64>>; 4]);

impl IdColumns {
    pub(crate) fn of(segment: &SegmentReader) -> tantivy::Result<Self> {
        let column = |name| Ok::<_, TantivyError>(segment.fast_fields().u64(name)?.first_or_default_col(0));
        let [first, second, third, fourth] = ID_PARTS;
        Ok(Self([column(first)?, column(second)?, column(third)?, column(fourth)?]))
    }

    pub(crate) fn id(&self, document: DocId) -> EventId {
        let mut bytes = [0; 32];
        for (part, column) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *part = column.get_val(document).to_be_bytes();
        }
        EventId::from_bytes(bytes)
    }
}
