-- Ids and rows.
SELECT 'event ' || encode(e.id, 'hex') || ': its id does not lead to its row'
FROM cn_relay.events e LEFT JOIN cn_relay.ids d
    ON d.event_id = e.id AND d.class = e.class AND d.ingested_at = e.ingested_at AND d.no = e.no
WHERE d.event_id IS NULL;
SELECT 'event ' || encode(e.id, 'hex') || ': its record and its row do not agree on its state'
FROM cn_relay.events e JOIN cn_relay.ids d ON d.event_id = e.id
WHERE e.effective <> (d.reason IS NULL) OR e.deleted <> (d.reason IS NOT DISTINCT FROM 0);
SELECT 'id ' || encode(d.event_id, 'hex') || ': its row is missing'
FROM cn_relay.ids d LEFT JOIN cn_relay.events e
    ON d.event_id = e.id AND d.class = e.class AND d.ingested_at = e.ingested_at AND d.no = e.no
WHERE (d.no IS NOT NULL OR d.reason IS NULL) AND e.id IS NULL;
SELECT 'the node counted ' || n.ids || ' ids, there are ' || c.count
FROM cn_relay.node n, (SELECT count(*) AS count FROM cn_relay.ids) c
WHERE n.ids <> c.count;

-- Index rows: those of effective events, no fewer and no more.
(SELECT 'event ' || encode(w.id, 'hex') || ': its row in event_topics is missing or says something else'
FROM (
    SELECT class, ingested_at, no, created_at, expires_at, id, pubkey, kind, parties IS NOT NULL AS private,
        unnest(topics) AS topic FROM cn_relay.events WHERE effective
    EXCEPT SELECT class, ingested_at, no, created_at, expires_at, id, pubkey, kind, private, topic FROM cn_relay.event_topics
) w);
(SELECT 'event ' || encode(w.id, 'hex') || ': its row in event_tags is missing or says something else'
FROM (
    SELECT class, ingested_at, no, created_at, expires_at, id, pubkey, kind, parties IS NOT NULL AS private,
        unnest(tags) AS tag FROM cn_relay.events WHERE effective
    EXCEPT SELECT class, ingested_at, no, created_at, expires_at, id, pubkey, kind, private, tag FROM cn_relay.event_tags
) w);
SELECT 'event_topics has ' || f.count || ' rows, the events give ' || e.count
FROM (SELECT count(*) AS count FROM cn_relay.event_topics) f,
    (SELECT coalesce(sum(cardinality(topics)), 0) AS count FROM cn_relay.events WHERE effective) e
WHERE f.count <> e.count;
SELECT 'event_tags has ' || f.count || ' rows, the events give ' || e.count
FROM (SELECT count(*) AS count FROM cn_relay.event_tags) f,
    (SELECT coalesce(sum(cardinality(tags)), 0) AS count FROM cn_relay.events WHERE effective) e
WHERE f.count <> e.count;

-- Topics: every number has a name, and a topic that holds nothing has a subscription.
SELECT 'event ' || encode(e.id, 'hex') || ': its topic number ' || u.no || ' has no name'
FROM cn_relay.events e CROSS JOIN LATERAL unnest(e.topics) AS u (no) LEFT JOIN cn_relay.topics t ON t.no = u.no
WHERE t.no IS NULL;
SELECT 'topic ' || t.topic_id || ' holds nothing and has no subscription'
FROM cn_relay.topics t LEFT JOIN cn_relay.node_subscriptions s ON s.topic_id = t.topic_id
WHERE t.events = '{0,0,0,0}' AND s.topic_id IS NULL;

-- Keys.
SELECT 'event ' || encode(e.id, 'hex') || ': it is effective and its key does not say so'
FROM cn_relay.events e
LEFT JOIN cn_relay.floors f ON f.key = e.key
LEFT JOIN cn_relay.replaceable_current r ON r.key = e.key
LEFT JOIN cn_relay.addressable_current a ON a.key = e.key
WHERE e.effective AND e.key IS NOT NULL
    AND (f.id IS DISTINCT FROM e.id OR f.created_at IS DISTINCT FROM e.created_at
        OR coalesce(r.event_id, a.event_id) IS DISTINCT FROM e.id);
SELECT 'the key ' || encode(c.key, 'hex') || ' has no effective row'
FROM (SELECT key, event_id FROM cn_relay.replaceable_current UNION ALL SELECT key, event_id FROM cn_relay.addressable_current) c
LEFT JOIN cn_relay.ids d ON d.event_id = c.event_id
WHERE d.no IS NULL OR d.reason IS NOT NULL;

-- Traces: of requests that are here, and all that rows tell of.
SELECT 'the trace of ' || encode(t.id, 'hex') || ' in ' || t.topic_id || ' has no request'
FROM cn_relay.traces t LEFT JOIN cn_relay.ids d ON d.event_id = t.request
WHERE d.no IS NULL OR d.reason IS NOT NULL OR (t.key IS NULL) <> (t.id = t.request);
(SELECT 'the trace of ' || encode(w.id, 'hex') || ' in ' || w.topic_id || ' is missing'
FROM (
    SELECT topic_id, created_at, id FROM cn_relay.traces_of_rows
    EXCEPT SELECT topic_id, created_at, id FROM cn_relay.traces
) w);

-- Remains: those of one event (\x65) go with its id.
SELECT 'id ' || encode(substr(r.subject, 2), 'hex') || ': it is forgotten, its remains are not'
FROM cn_relay.remains r LEFT JOIN cn_relay.ids d ON d.event_id = substr(r.subject, 2)
WHERE substr(r.subject, 1, 1) = '\x65' AND d.event_id IS NULL;

-- Counters: of the node, the topics and the partitions.
SELECT 'the node counted ' || n.effective || ' effective events, there are ' || c.count
FROM cn_relay.node n, (SELECT count(*) AS count FROM cn_relay.events WHERE effective) c
WHERE n.effective <> c.count;
WITH counted AS (
    SELECT class::integer, n.events[class + 1] AS events, n.bytes[class + 1] AS bytes
    FROM cn_relay.node n, generate_series(0, 3) AS class
), there AS (
    SELECT retention::integer AS class, count(*) AS events, sum(octet_length(json)) AS bytes
    FROM cn_relay.events GROUP BY retention
)
SELECT 'the node: counted ' || c.events || ' rows and ' || c.bytes || ' bytes of class ' || c.class || ', there are '
    || coalesce(t.events, 0) || ' and ' || coalesce(t.bytes, 0)
FROM counted c LEFT JOIN there t ON t.class = c.class
WHERE c.events <> coalesce(t.events, 0) OR c.bytes <> coalesce(t.bytes, 0);
WITH counted AS (
    SELECT n.no, n.topic_id, class::integer, n.events[class + 1] AS events, n.bytes[class + 1] AS bytes
    FROM cn_relay.topics n, generate_series(0, 3) AS class
), there AS (
    SELECT topic, retention::integer AS class, count(*) AS events, sum(octet_length(json)) AS bytes
    FROM cn_relay.events, unnest(topics) AS topic GROUP BY topic, retention
)
SELECT c.topic_id || ': counted ' || c.events || ' rows and ' || c.bytes || ' bytes of class ' || c.class
    || ', there are ' || coalesce(t.events, 0) || ' and ' || coalesce(t.bytes, 0)
FROM counted c LEFT JOIN there t ON t.class = c.class AND t.topic = c.no
WHERE c.events <> coalesce(t.events, 0) OR c.bytes <> coalesce(t.bytes, 0);
WITH there AS (
    SELECT topic, count(*) AS effective FROM cn_relay.event_topics GROUP BY topic
)
SELECT c.topic_id || ': counted ' || c.effective || ' effective events, there are ' || coalesce(t.effective, 0)
FROM cn_relay.topics c LEFT JOIN there t ON t.topic = c.no
WHERE c.effective <> coalesce(t.effective, 0);
WITH there AS (
    SELECT p.class, p.begins_at, topic, e.retention, count(*) FILTER (WHERE e.effective) AS effective,
        count(*) AS events, sum(octet_length(e.json)) AS bytes
    FROM cn_relay.events e
    JOIN cn_relay.partitions p ON p.class = e.class AND e.ingested_at >= p.begins_at AND e.ingested_at < p.ends_at,
    unnest(e.topics || 0) AS topic
    GROUP BY p.class, p.begins_at, topic, e.retention
)
SELECT 'partition ' || coalesce(c.class, t.class) || ' from ' || coalesce(c.begins_at, t.begins_at) || ', topic '
    || coalesce(c.topic, t.topic) || ': counted ' || coalesce(c.events, 0) || ' rows, there are ' || coalesce(t.events, 0)
FROM cn_relay.partition_counters c
FULL JOIN there t ON t.class = c.class AND t.begins_at = c.begins_at AND t.topic = c.topic AND t.retention = c.retention
WHERE coalesce(c.events, 0) <> coalesce(t.events, 0) OR coalesce(c.bytes, 0) <> coalesce(t.bytes, 0)
    OR coalesce(c.effective, 0) <> coalesce(t.effective, 0);

-- The outbox: without gaps, and true. What it says of an event last is still so.
SELECT 'the outbox has ' || o.count || ' rows from ' || coalesce(o.first, 0) || ' to ' || coalesce(o.last, 0)
    || ', it should have all after ' || n.outbox_dropped || ' up to ' || n.head
FROM cn_relay.node n, (SELECT count(*) AS count, min(seq) AS first, max(seq) AS last FROM cn_relay.events_outbox) o
WHERE o.count <> n.head - n.outbox_dropped
    OR (o.count > 0 AND (o.first <> n.outbox_dropped + 1 OR o.last <> n.head));
WITH last AS (
    SELECT DISTINCT ON (event_id, topic_id) event_id, topic_id, op FROM cn_relay.events_outbox
    ORDER BY event_id, topic_id, seq DESC
)
SELECT 'event ' || encode(l.event_id, 'hex') || ': the outbox does not end with what it is'
FROM last l LEFT JOIN cn_relay.topics t ON t.topic_id = l.topic_id
LEFT JOIN cn_relay.event_topics i ON i.id = l.event_id AND i.topic = t.no
WHERE (l.op = 'upsert') <> (i.id IS NOT NULL);
SELECT 'event ' || encode(i.id, 'hex') || ': it is effective and not in the outbox'
FROM cn_relay.node n, cn_relay.event_topics i JOIN cn_relay.topics t ON t.no = i.topic
LEFT JOIN cn_relay.events_outbox o ON o.event_id = i.id AND o.topic_id = t.topic_id
WHERE n.outbox_dropped = 0 AND o.seq IS NULL;
