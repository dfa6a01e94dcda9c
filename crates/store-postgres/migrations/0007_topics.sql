-- A topic's row goes when the topic holds nothing, is not enabled and has no policy. Numbers are not given away again.
DELETE FROM cn_relay.partition_counters WHERE events = 0;
DELETE FROM cn_relay.topics t WHERE t.events = '{0,0,0,0}'
    AND NOT EXISTS (SELECT 1 FROM cn_relay.node_subscriptions s WHERE s.topic_id = t.topic_id);

-- Hidden private events by party, for vanish requests: effective ones are found by their tags, in the order of time.
CREATE INDEX IF NOT EXISTS events_hidden_by_party ON cn_relay.events USING gin (parties) WHERE parties IS NOT NULL AND NOT effective;
DROP INDEX IF EXISTS cn_relay.events_by_party;
