-- The latest request that may be shared with other nodes, beside the one that applies. In our JSON only a protected event
-- has a tag that begins so.
ALTER TABLE cn_relay.vanish_marks ADD COLUMN shareable_at bigint, ADD COLUMN shareable_id bytea;
ALTER TABLE cn_relay.deletion_tombstones ADD COLUMN shareable_at bigint, ADD COLUMN shareable_id bytea;

UPDATE cn_relay.vanish_marks m SET shareable_at = r.created_at, shareable_id = r.id
FROM cn_relay.event_dedupe d
JOIN cn_relay.events r ON r.class = d.class AND r.ingested_at = d.ingested_at AND r.no = d.no
WHERE d.event_id = m.request_id AND r.effective AND position('\x5b222d22'::bytea IN r.json) = 0 AND EXISTS (
    SELECT 1 FROM jsonb_array_elements(convert_from(r.json, 'UTF8')::jsonb -> 'tags') AS tag
    WHERE tag ->> 0 = 'relay' AND tag ->> 1 = 'ALL_RELAYS'
);
UPDATE cn_relay.deletion_tombstones t SET shareable_at = r.created_at, shareable_id = r.id
FROM cn_relay.event_dedupe d
JOIN cn_relay.events r ON r.class = d.class AND r.ingested_at = d.ingested_at AND r.no = d.no
WHERE d.event_id = t.deletion_event_id AND r.effective AND position('\x5b222d22'::bytea IN r.json) = 0;

-- The remains of events without a row, for requests that come later: by event, key or author (the first byte says which).
CREATE TABLE cn_relay.remains (
    subject bytea NOT NULL,
    topic_id text COLLATE "C" NOT NULL,
    author bytea NOT NULL,
    earliest bigint NOT NULL,
    key text,
    noted_at bigint NOT NULL,
    PRIMARY KEY (subject, topic_id)
);
