//! Topics that lost their record: they hold nothing, are not enabled and have no policy (T-10).
//!
//! A topic's number is never given away again. Its name stays until the last outbox row with the number is dropped.

use heed::RwTxn;
use kukuri_store::{Seq, subscriptions::Subscriptions};

use crate::{
    error::{Result, damaged},
    key::{self, TopicNo},
    lookup::topic_of_key,
    pack::{Record as _, take, unpack},
    record::TopicRecord,
    tables::{Table, Tables, View},
};

/// Removes the record of a topic, which is over while the outbox ends at `head`.
pub(crate) fn remove(tables: &Tables, txn: &mut RwTxn<'_>, id: &[u8], topic: TopicNo, head: Seq) -> Result<()> {
    tables.of(Table::Topics).delete(txn, id)?;
    tables.of(Table::FormerTopics).put(txn, &key::former_topic(head, topic), &[])?;
    Ok(())
}

/// Removes the record of a topic if the topic is over.
pub(crate) fn remove_if_over(
    tables: &Tables,
    txn: &mut RwTxn<'_>,
    subscriptions: &Subscriptions,
    head: Seq,
    id: &[u8],
) -> Result<()> {
    let record: Option<TopicRecord> = View { tables, txn }.find(id)?;
    let Some(record) = record.filter(|record| !record.counters.has_rows()) else { return Ok(()) };
    if subscriptions.keeps(&topic_of_key(id)?) { Ok(()) } else { remove(tables, txn, id, record.no, head) }
}

/// The head of the outbox and the number in a key of `FormerTopics`.
pub(crate) fn read_key(key: &[u8]) -> Result<(Seq, TopicNo)> {
    unpack(Table::FormerTopics.name(), key, |key| Some((take(key)?, take(key)?)))
}

/// The name that a topic number has or had.
pub(crate) fn name_key(topic: TopicNo) -> [u8; 4] {
    topic.0.to_be_bytes()
}

/// Checks that every number with a name belongs to a topic, or to a former one.
pub(crate) fn check(view: View<'_>) -> Result<Option<String>> {
    for entry in view.iter(Table::Topics)? {
        let (id, record) = entry?;
        let no = TopicRecord::unpack(record)?.no;
        if view.get(Table::TopicNames, &name_key(no))? != Some(id) {
            return Err(damaged(format!("topic number {} is not its name's", no.0)));
        }
    }
    let (names, topics) = (view.len(Table::TopicNames)?, view.len(Table::Topics)?);
    let former = view.len(Table::FormerTopics)?;
    let problem = || format!("{names} topic numbers have names, there are {topics} topics and {former} former ones");
    Ok((names != topics + former).then(problem))
}
