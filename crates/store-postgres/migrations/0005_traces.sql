-- What requests left in topics, for other nodes to hear of: the request itself, or, with its key, a version that it named
-- by id. `created_at` and `id` are what it is called by; it goes when `request` goes.
CREATE TABLE cn_relay.traces (
    topic_id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    id bytea NOT NULL,
    request bytea NOT NULL,
    key text,
    PRIMARY KEY (id, topic_id)
);
CREATE INDEX traces_by_time ON cn_relay.traces (topic_id, created_at DESC, id);
CREATE INDEX traces_by_request ON cn_relay.traces (request);

-- What hidden rows tell of the requests that deleted them. In our JSON only a protected event has a tag that begins so.
CREATE VIEW cn_relay.traces_of_rows AS
WITH deleted AS (
    SELECT t.topic_id, h.id, h.created_at, h.kind, h.pubkey, h.key, h.identifier,
        r.id AS request, r.created_at AS requested_at, r.json
    FROM cn_relay.events h
    JOIN cn_relay.event_dedupe d ON d.event_id = h.id
    JOIN cn_relay.event_dedupe c ON c.event_id = d.cause
    JOIN cn_relay.events r ON r.class = c.class AND r.ingested_at = c.ingested_at AND r.no = c.no
    CROSS JOIN LATERAL unnest(h.topics) AS n (no)
    JOIN cn_relay.topics t ON t.no = n.no
    WHERE NOT h.effective AND d.reason = 0 AND r.effective AND position('\x5b222d22'::bytea IN r.json) = 0
)
SELECT DISTINCT topic_id, requested_at AS created_at, request AS id, request, NULL AS key FROM deleted
UNION ALL
SELECT DISTINCT topic_id, created_at, id, request,
    kind || ':' || encode(pubkey, 'hex') || ':' || coalesce(identifier, '') AS key
FROM deleted
WHERE key IS NOT NULL AND created_at <= requested_at AND EXISTS (
    SELECT 1 FROM jsonb_array_elements(convert_from(json, 'UTF8')::jsonb -> 'tags') AS tag
    WHERE tag ->> 0 = 'e' AND tag ->> 1 = encode(id, 'hex')
);

INSERT INTO cn_relay.traces (topic_id, created_at, id, request, key)
SELECT topic_id, created_at, id, request, key FROM cn_relay.traces_of_rows ON CONFLICT DO NOTHING;
