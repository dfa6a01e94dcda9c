//! Writes the traces that requests leave in topics (G-7).

use std::collections::HashMap;

use kukuri_domain::{TopicId, sharing::Trace};

use super::write::Statements;
use crate::columns::{Column as _, write_arrays};

/// Adds statements that write traces.
pub(crate) fn put_traces<'b>(traces: &'b [(TopicId, Trace)], statements: &mut Statements<'b>) {
    let (mut requests, mut hints) = (Vec::new(), HashMap::new());
    let mut times = HashMap::new();
    for (topic, trace) in traces {
        match trace {
            Trace::Request { created_at, id } => {
                times.insert(*id, *created_at);
                requests.push((topic, *created_at, *id));
            }
            Trace::Hint(hint) => {
                let known = hints.entry((topic, hint.floor.id)).or_insert(hint);
                if times.get(&known.request) < times.get(&hint.request) {
                    *known = hint;
                }
            }
        }
    }
    write_arrays!(
        statements,
        "INSERT INTO cn_relay.traces (topic_id, created_at, id, request) \
         SELECT topic_id, created_at, id, id \
         FROM unnest($1::text[], $2::bigint[], $3::bytea[]) AS n (topic_id, created_at, id) ON CONFLICT DO NOTHING",
        for (topic, created_at, id) in requests; topic, created_at, id
    );
    let hints: Vec<_> = hints.into_iter().collect();
    // A hint of a later request replaces the known one, because a vanish request removes the earlier request first.
    // A request has a trace of its own in every topic with a hint of it.
    write_arrays!(
        statements,
        "INSERT INTO cn_relay.traces AS t (topic_id, created_at, id, request, key) \
         SELECT * FROM unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::text[]) \
         ON CONFLICT (id, topic_id) DO UPDATE SET request = excluded.request \
         WHERE (SELECT r.created_at FROM cn_relay.traces r WHERE r.id = t.request AND r.topic_id = t.topic_id) \
         < (SELECT r.created_at FROM cn_relay.traces r WHERE r.id = excluded.request AND r.topic_id = t.topic_id)",
        for ((topic, _), hint) in hints; topic, hint.floor.created_at, hint.floor.id, hint.request, hint.key
    );
}
