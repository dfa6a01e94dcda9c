//! Reads and writes the remains of events without a row, for requests that arrive later (G-7).

use kukuri_domain::{EventId, Millis, remains::Remains};
use kukuri_postgres::SqlRow;

use super::{Batch, write::Statements};
use crate::{
    columns::{Column as _, ReadColumn as _, array, from_columns, query, write_arrays},
    error::Result,
    work::Noted,
};

/// Parses remains and when they were last written.
pub(crate) fn remains(row: &SqlRow) -> Result<Noted<Remains>> {
    let what = from_columns!(row => Remains { subject, author, earliest, key; topic: row.read("topic_id")? });
    Ok(Noted { what, at: row.read("noted_at")? })
}

impl Batch<'_> {
    /// Takes the remains that this transaction has noted.
    pub(super) fn take_noted_remains(&mut self) -> Vec<Remains> {
        std::mem::take(&mut self.work.noted_remains).into_values().collect()
    }

    /// Reads the topics in which these requests have traces, so that a vanish request can inherit them.
    pub(super) async fn read_topics_of_traces(&mut self, requests: &[EventId]) -> Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let rows = query("SELECT id, topic_id FROM cn_relay.traces WHERE id = ANY($1) AND request = id");
        for row in rows.bind(array(requests)).fetch_all(&self.session).await? {
            self.work.topics_of_traces.entry(row.read("id")?).or_default().push(row.read("topic_id")?);
        }
        Ok(())
    }
}

/// Adds a statement that merges noted remains with the stored ones: the earliest time stays, and their age begins anew. A
/// subject has so many topics only; those that it has already take no place of a new one.
pub(super) fn write_remains<'b>(noted: &'b [Remains], at: Millis, statements: &mut Statements<'b>) {
    let most = |remains: &Remains| remains.subject.max_topics() as i64;
    write_arrays!(
        statements,
        "INSERT INTO cn_relay.remains AS r (subject, topic_id, author, earliest, key, noted_at) \
         SELECT n.subject, n.topic_id, n.author, n.earliest, n.key, n.noted_at \
         FROM (SELECT u.*, k.subject IS NOT NULL AS is_known, \
                 row_number() OVER (PARTITION BY u.subject, k.subject IS NULL ORDER BY u.topic_id) AS place \
             FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[]) \
             AS u (subject, topic_id, author, earliest, key, noted_at, most) \
             LEFT JOIN cn_relay.remains k ON k.subject = u.subject AND k.topic_id = u.topic_id) n \
         WHERE n.is_known \
         OR n.place + (SELECT count(*) FROM cn_relay.remains k WHERE k.subject = n.subject) <= n.most \
         ON CONFLICT (subject, topic_id) DO UPDATE SET earliest = least(r.earliest, excluded.earliest), \
         noted_at = excluded.noted_at",
        for remains in noted; remains.subject, remains.topic, remains.author, remains.earliest, remains.key, at,
            most(remains)
    );
}

/// Adds a statement that writes remains of another store unchanged.
pub(crate) fn load_remains<'b>(loaded: &'b [(Remains, Millis)], statements: &mut Statements<'b>) {
    write_arrays!(
        statements,
        "INSERT INTO cn_relay.remains (subject, topic_id, author, earliest, key, noted_at) \
         SELECT * FROM unnest($1::bytea[], $2::text[], $3::bytea[], $4::bigint[], $5::text[], $6::bigint[])",
        for (remains, at) in loaded; remains.subject, remains.topic, remains.author, remains.earliest, remains.key, at
    );
}
