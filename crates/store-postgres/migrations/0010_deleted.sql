-- Whether a row is hidden because a deletion request took it: a later request for its address need not read it again.
ALTER TABLE cn_relay.events ADD COLUMN deleted boolean NOT NULL DEFAULT false;
UPDATE cn_relay.events e SET deleted = true FROM cn_relay.event_dedupe d
WHERE NOT e.effective AND d.event_id = e.id AND d.reason = 0;
DROP INDEX IF EXISTS cn_relay.events_hidden_versions;
CREATE INDEX events_hidden_versions ON cn_relay.events (key, created_at) WHERE NOT effective AND key IS NOT NULL AND NOT deleted;
