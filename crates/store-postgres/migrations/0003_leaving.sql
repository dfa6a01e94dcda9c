-- Months that were dropped while ids still lead to them. Their rows stand aside, as `leaving_<class>_<month>`, until what
-- is remembered of each says that it is gone: since `left_at`, for `reason` if it was effective. Rows up to
-- (`after_at`, `after_no`) are done.
CREATE TABLE cn_relay.leaving (
    class text NOT NULL,
    begins_at bigint NOT NULL,
    ends_at bigint NOT NULL,
    name text NOT NULL,
    left_at bigint NOT NULL,
    reason smallint NOT NULL,
    after_at bigint NOT NULL,
    after_no bigint NOT NULL,
    PRIMARY KEY (class, begins_at)
);

-- What is remembered of ids, as it is: of a month that is leaving, as if all of it were done.
CREATE VIEW cn_relay.ids AS
SELECT d.event_id, d.first_seen_at, d.last_seen_at, d.seen_count, d.source, d.cause,
    CASE WHEN d.reason IS NULL THEN l.left_at ELSE d.since END AS since,
    coalesce(d.reason, l.reason) AS reason,
    CASE WHEN l.class IS NULL THEN d.class END AS class,
    CASE WHEN l.class IS NULL THEN d.ingested_at END AS ingested_at,
    CASE WHEN l.class IS NULL THEN d.no END AS no
FROM cn_relay.event_dedupe d
LEFT JOIN cn_relay.leaving l ON l.class = d.class AND l.begins_at <= d.ingested_at AND l.ends_at > d.ingested_at;
