//! The index rows of a stored event. Inserting, deleting and checking them all use one function.

use std::collections::BTreeSet;

use kukuri_domain::{Letter, State, TopicId};

use crate::{
    batch::StoredRow,
    key::{self, AuthorNo, Order, TopicNo, prefix},
    pack::Field as _,
    record::{Cover, Traits},
    tables::Table,
};

/// The index rows of one event: keys by table, and the common value of the newest-first tables.
pub(crate) struct IndexRows {
    pub(crate) keys: Vec<(Table, Vec<u8>)>,
    cover: Vec<u8>,
}

impl IndexRows {
    pub(crate) fn of_effective(row: &StoredRow<'_>, author: AuthorNo, topic_ids: &[TopicId]) -> Self {
        let (event, topics) = (&row.event, &row.topics);
        let order = Order::new(event.created_at, &event.id, row.no);
        let mut keys = Vec::with_capacity(3 + 4 * topics.len() + event.tags.len());
        let mut add = |table, mut prefix: Vec<u8>| {
            prefix.extend_from_slice(order.as_bytes());
            keys.push((table, prefix));
        };
        add(Table::ByKind, prefix::kind(event.kind));
        for topic in topics {
            add(Table::ByTopic, prefix::topic(*topic));
            add(Table::ByTopicKind, prefix::topic_kind(*topic, event.kind));
            add(Table::ByAuthor, prefix::author_topic(author, *topic));
        }
        // Topics have tables of their own. Each tag once.
        let is_topic = |letter, value| letter == Letter::T && topic_ids.iter().any(|topic| topic.as_str() == value);
        let tags: BTreeSet<_> = event.tags.indexed().filter(|&(letter, value)| !is_topic(letter, value)).collect();
        for (letter, value) in tags {
            add(Table::ByTag, prefix::tag(letter, value));
        }
        if let Some(expiration) = event.expiration() {
            keys.push((Table::Expiry, key::expiry(expiration, row.no)));
        }
        keys.extend(ages(row));
        let traits = Traits::of(event, topics.len());
        let topic = topics.first().map_or(TopicNo::default(), |topic| *topic);
        Self { keys, cover: Cover { kind: event.kind, author, topic, traits }.pack() }
    }

    /// A hidden row is indexed under each of its owners, and a version also under its address, so that their requests find
    /// it. A deleted row need not be found by its address again.
    pub(crate) fn of_hidden(row: &StoredRow<'_>) -> Self {
        let address = row.event.address().filter(|_| row.state != State::Deleted);
        let owners: BTreeSet<_> = row.event.owners().collect();
        let prefixes = owners.iter().map(key::hidden_rows).chain(address.as_ref().map(key::hidden_versions));
        let hidden = prefixes.map(|prefix| (Table::Hidden, key::hidden(prefix, row.event.created_at, row.no)));
        Self { keys: hidden.chain(ages(row)).collect(), cover: Vec::new() }
    }

    /// The value of an index row in this table.
    pub(crate) fn value(&self, table: Table) -> &[u8] {
        if matches!(table, Table::Expiry | Table::Ages) { &[] } else { &self.cover }
    }
}

fn ages(row: &StoredRow<'_>) -> impl Iterator<Item = (Table, Vec<u8>)> {
    row.topics.iter().map(|topic| (Table::Ages, key::age(*topic, row.class(), row.no)))
}
