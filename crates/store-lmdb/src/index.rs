//! The index rows of an effective event. Inserting, deleting and checking them all use one function.

use std::collections::BTreeSet;

use kukuri_domain::{Event, Letter, TopicId};

use crate::{
    key::{AuthorNo, EventNo, Order, TopicNo, expiry, prefix},
    record::{Cover, Traits},
    tables::Table,
};

/// The index rows of one event: keys by table, and their common value.
pub(crate) struct IndexRows {
    pub(crate) keys: Vec<(Table, Vec<u8>)>,
    pub(crate) cover: Vec<u8>,
}

impl IndexRows {
    pub(crate) fn of(event: &Event, no: EventNo, author: AuthorNo, topics: &[(TopicNo, &TopicId)]) -> Self {
        let order = Order::new(event.created_at, &event.id, no);
        let mut keys = Vec::with_capacity(3 + 3 * topics.len() + event.tags.len());
        let mut add = |table, mut prefix: Vec<u8>| {
            prefix.extend_from_slice(order.as_bytes());
            keys.push((table, prefix));
        };
        add(Table::ByKind, prefix::kind(event.kind));
        for (topic, _) in topics {
            add(Table::ByTopic, prefix::topic(*topic));
            add(Table::ByTopicKind, prefix::topic_kind(*topic, event.kind));
            add(Table::ByAuthor, prefix::author_topic(author, *topic));
        }
        for (letter, value) in indexed_tags(event, topics) {
            add(Table::ByTag, prefix::tag(letter, value));
        }
        if let Some(expiration) = event.expiration() {
            keys.push((Table::Expiry, expiry(expiration, no)));
        }
        let cover = Cover {
            kind: event.kind,
            author,
            topic: topics.first().map(|(topic, _)| *topic).unwrap_or_default(),
            traits: Traits::of(event, topics.len()),
        };
        Self { keys, cover: cover.pack() }
    }

    /// The value of an index row in this table.
    pub(crate) fn value(&self, table: Table) -> &[u8] {
        if table == Table::Expiry { &[] } else { &self.cover }
    }
}

/// Each tag once; topics have tables of their own.
fn indexed_tags<'a>(event: &'a Event, topics: &[(TopicNo, &TopicId)]) -> BTreeSet<(Letter, &'a str)> {
    let is_topic = |letter, value| letter == Letter::T && topics.iter().any(|(_, topic)| topic.as_str() == value);
    event.tags.indexed().filter(|&(letter, value)| !is_topic(letter, value)).collect()
}
