//! Candidate rows for the expiry sweep and for a purge.

use kukuri_domain::{
    Millis,
    retention::{Keep, Retention, RetentionClass},
};

use crate::{
    columns::{Column as _, SqlQuery, array, query, signed},
    records::select_rows,
    work::{TopicNo, Work},
};

/// Retention cutoffs of a retention class: the default, and topics with their own.
pub(crate) struct Cutoffs {
    class: RetentionClass,
    /// -1: never.
    default: i64,
    topics: Vec<TopicNo>,
    cutoffs: Vec<i64>,
}

impl Cutoffs {
    /// `None`: every topic keeps rows of this class forever. Topics with a retention of their own must have been read.
    pub(crate) fn of(class: RetentionClass, retention: &Retention, now: Millis, work: &Work) -> Option<Self> {
        let cutoff = |keep: Keep| keep.cutoff(now).map_or(-1, |cutoff| cutoff.to_sql());
        let default = cutoff(retention.keep(class, []));
        let own = work.topics.values().map(|topic| {
            let policy = work.subscriptions.policy(&topic.id);
            (topic.no, cutoff(retention.in_topic(class, &policy.retention)))
        });
        let (topics, cutoffs): (Vec<_>, Vec<_>) = own.filter(|(_, own)| *own != default).unzip();
        let cutoffs = Self { class, default, topics, cutoffs };
        (cutoffs.latest() >= 0).then_some(cutoffs)
    }

    fn latest(&self) -> i64 {
        self.cutoffs.iter().copied().fold(self.default, i64::max)
    }

    /// Topics that keep rows older than `end`, with their cutoffs. `None`: the default keeps such rows, too.
    pub(crate) fn kept_longer(&self, end: Millis) -> Option<Vec<(TopicNo, i64)>> {
        let is_over = |cutoff: i64| signed(end.0) <= cutoff.saturating_add(1);
        let own = self.topics.iter().copied().zip(self.cutoffs.iter().copied());
        is_over(self.default).then(|| own.filter(|(_, cutoff)| !is_over(*cutoff)).collect())
    }

    /// Rows after a position that no topic keeps any longer.
    pub(crate) fn due(&self, after: (i64, i64), limit: i64) -> SqlQuery<'static> {
        // The inner query finds rows by an index, no more than asked for; only then are their ids joined.
        let query = query(select_rows!(
            "FROM (SELECT * FROM cn_relay.events o WHERE o.retention = $1 AND o.ingested_at <= $2 \
                 AND (o.ingested_at, o.no) > ($3, $4) AND NOT EXISTS ( \
                     SELECT 1 FROM unnest(o.topics) AS t (topic) \
                     LEFT JOIN unnest($5::integer[], $6::bigint[]) AS c (topic, cutoff) ON c.topic = t.topic \
                     WHERE o.ingested_at > coalesce(c.cutoff, $7)) \
                 ORDER BY o.ingested_at, o.no LIMIT $8) e \
             JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.ingested_at, e.no"
        ));
        let query = query.bind(self.class.to_sql()).bind(self.latest()).bind(after.0).bind(after.1);
        query.bind(self.topics.clone()).bind(self.cutoffs.clone()).bind(self.default).bind(limit)
    }
}

/// Rows of a topic, or of the node, that may be evicted, oldest first.
pub(crate) fn oldest(topic: Option<TopicNo>, limit: i64) -> SqlQuery<'static> {
    let classes: Vec<_> = RetentionClass::ALL.into_iter().filter(|class| class.gives_way()).collect();
    let query = query(select_rows!(
        "FROM (SELECT o.* FROM unnest($1::smallint[]) AS c (class) CROSS JOIN LATERAL ( \
                 SELECT * FROM cn_relay.events WHERE retention = c.class \
                 AND ($2::integer IS NULL OR topics @> ARRAY[$2::integer]) \
                 ORDER BY ingested_at, no LIMIT $3) o \
             ORDER BY o.ingested_at, o.no LIMIT $3) e \
         JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.ingested_at, e.no"
    ));
    query.bind(array(&classes)).bind(topic).bind(limit)
}

/// Effective rows that have expired by $1, at most $2.
pub(crate) const EXPIRED: &str = select_rows!(
    "FROM (SELECT * FROM cn_relay.events WHERE effective AND expires_at IS NOT NULL AND expires_at <= $1 \
         ORDER BY expires_at LIMIT $2) e \
     JOIN cn_relay.event_dedupe d ON d.event_id = e.id ORDER BY e.no"
);
