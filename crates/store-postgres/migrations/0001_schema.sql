-- The tables of a node's events. Times are milliseconds since 1970 by the node's clock, but `created_at` and
-- `expires_at`, which are seconds as events say them. Ids, keys and digests are bytes.

CREATE SCHEMA IF NOT EXISTS cn_relay;

-- What the node is at: one row, read and written under the writers' lock.
-- `events` and `bytes` count stored rows by retention class: regular, request, current, history.
CREATE TABLE cn_relay.node (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    head bigint NOT NULL DEFAULT 0,
    outbox_dropped bigint NOT NULL DEFAULT 0,
    last_event bigint NOT NULL DEFAULT 0,
    last_topic integer NOT NULL DEFAULT 0,
    clock_latest bigint NOT NULL DEFAULT 0,
    clock_last bigint NOT NULL DEFAULT 0,
    clock_held boolean NOT NULL DEFAULT false,
    effective bigint NOT NULL DEFAULT 0,
    events bigint[] NOT NULL DEFAULT '{0,0,0,0}',
    bytes bigint[] NOT NULL DEFAULT '{0,0,0,0}',
    stage smallint NOT NULL DEFAULT 0,
    ids bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    subscriptions_version bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO cn_relay.node DEFAULT VALUES;

-- Every topic that was ever bound to an event: its number in other tables, and its counters.
CREATE TABLE cn_relay.topics (
    no integer PRIMARY KEY,
    topic_id text COLLATE "C" NOT NULL UNIQUE,
    effective bigint NOT NULL,
    events bigint[] NOT NULL,
    bytes bigint[] NOT NULL,
    stage smallint NOT NULL,
    last_event_at bigint NOT NULL
) WITH (fillfactor = 50);

-- Stored events, effective and hidden, by class and month. An id is unique by `event_dedupe`, not here.
-- `no` is the order of arrival. `tags` are digests of what filters can ask for, topics aside. `parties` are those who
-- may see a private event; NULL is everyone.
CREATE TABLE cn_relay.events (
    ingested_at bigint NOT NULL,
    no bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    kind integer NOT NULL,
    retention smallint NOT NULL,
    effective boolean NOT NULL,
    class text NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL,
    key bytea,
    identifier text,
    topics integer[] NOT NULL,
    tags bytea[] NOT NULL,
    parties bytea[],
    json bytea NOT NULL,
    PRIMARY KEY (class, ingested_at, no)
) PARTITION BY LIST (class);

-- Index rows are of effective events only, and carry what a filter needs.
CREATE TABLE cn_relay.event_topics (
    ingested_at bigint NOT NULL,
    no bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    topic integer NOT NULL,
    kind integer NOT NULL,
    private boolean NOT NULL,
    class text NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL
) PARTITION BY LIST (class);

CREATE TABLE cn_relay.event_tags (
    ingested_at bigint NOT NULL,
    no bigint NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    kind integer NOT NULL,
    private boolean NOT NULL,
    class text NOT NULL,
    tag bytea NOT NULL,
    id bytea NOT NULL,
    pubkey bytea NOT NULL
) PARTITION BY LIST (class);

CREATE TABLE cn_relay.events_default PARTITION OF cn_relay.events FOR VALUES IN ('default') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.events_long PARTITION OF cn_relay.events FOR VALUES IN ('long') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.events_requests PARTITION OF cn_relay.events FOR VALUES IN ('requests') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_topics_default PARTITION OF cn_relay.event_topics FOR VALUES IN ('default') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_topics_long PARTITION OF cn_relay.event_topics FOR VALUES IN ('long') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_topics_requests PARTITION OF cn_relay.event_topics FOR VALUES IN ('requests') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_tags_default PARTITION OF cn_relay.event_tags FOR VALUES IN ('default') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_tags_long PARTITION OF cn_relay.event_tags FOR VALUES IN ('long') PARTITION BY RANGE (ingested_at);
CREATE TABLE cn_relay.event_tags_requests PARTITION OF cn_relay.event_tags FOR VALUES IN ('requests') PARTITION BY RANGE (ingested_at);

-- Answers come newest first, ties by the lower id: every index ends so.
CREATE INDEX events_by_time ON cn_relay.events (created_at DESC, id) WHERE effective;
CREATE INDEX events_by_author ON cn_relay.events (pubkey, created_at DESC, id) WHERE effective;
CREATE INDEX events_by_kind ON cn_relay.events (kind, created_at DESC, id) WHERE effective;
CREATE INDEX event_topics_by_time ON cn_relay.event_topics (topic, created_at DESC, id);
CREATE INDEX event_topics_by_kind ON cn_relay.event_topics (topic, kind, created_at DESC, id);
CREATE INDEX event_topics_by_author ON cn_relay.event_topics (topic, pubkey, created_at DESC, id);
CREATE INDEX event_tags_by_time ON cn_relay.event_tags (tag, created_at DESC, id);
-- What snapshots, sweeps, purges and requests look for.
CREATE INDEX events_by_arrival ON cn_relay.events (no) WHERE effective;
CREATE INDEX events_by_age ON cn_relay.events (retention, ingested_at, no);
CREATE INDEX events_expiring ON cn_relay.events (expires_at) WHERE effective AND expires_at IS NOT NULL;
CREATE INDEX events_hidden ON cn_relay.events (pubkey, created_at) WHERE NOT effective;
CREATE INDEX events_hidden_versions ON cn_relay.events (key, created_at) WHERE NOT effective AND key IS NOT NULL;
CREATE INDEX events_by_party ON cn_relay.events USING gin (parties) WHERE parties IS NOT NULL;

-- The months there are, by class.
CREATE TABLE cn_relay.partitions (
    class text NOT NULL,
    begins_at bigint NOT NULL,
    ends_at bigint NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (class, begins_at)
);

-- What a partition holds, so that dropping it needs no counting. Topic 0 is the node.
CREATE TABLE cn_relay.partition_counters (
    class text NOT NULL,
    begins_at bigint NOT NULL,
    topic integer NOT NULL,
    retention smallint NOT NULL,
    effective bigint NOT NULL,
    events bigint NOT NULL,
    bytes bigint NOT NULL,
    PRIMARY KEY (class, begins_at, topic, retention)
) WITH (fillfactor = 50);

-- What is remembered of ids. `reason` NULL is effective. While a row is stored, `class`, `ingested_at` and `no` lead to it.
CREATE TABLE cn_relay.event_dedupe (
    event_id bytea PRIMARY KEY,
    first_seen_at bigint NOT NULL,
    last_seen_at bigint NOT NULL,
    seen_count bigint NOT NULL,
    since bigint,
    ingested_at bigint,
    no bigint,
    source smallint NOT NULL,
    reason smallint,
    class text,
    cause bytea
) WITH (fillfactor = 90);
CREATE INDEX event_dedupe_gone ON cn_relay.event_dedupe (last_seen_at) WHERE no IS NULL;

-- The highest version of each key that was ever verified.
CREATE TABLE cn_relay.floors (
    key bytea PRIMARY KEY,
    created_at bigint NOT NULL,
    id bytea NOT NULL,
    raised_at bigint NOT NULL
);

-- The effective version of each key, apart from what purges touch.
CREATE TABLE cn_relay.replaceable_current (
    key bytea PRIMARY KEY,
    pubkey bytea NOT NULL,
    kind integer NOT NULL,
    event_id bytea NOT NULL,
    updated_at bigint NOT NULL
);
CREATE TABLE cn_relay.addressable_current (
    key bytea PRIMARY KEY,
    pubkey bytea NOT NULL,
    kind integer NOT NULL,
    identifier text NOT NULL,
    event_id bytea NOT NULL,
    updated_at bigint NOT NULL
);

-- Deletions that wait for their target, or keep it out. `target` is an event id, or the digest of the address `target_a`.
CREATE TABLE cn_relay.deletion_tombstones (
    target bytea NOT NULL,
    is_address boolean NOT NULL,
    requester bytea NOT NULL,
    target_a text,
    deletion_event_id bytea NOT NULL,
    requested_at bigint NOT NULL,
    applied_at bigint,
    noted_at bigint NOT NULL,
    PRIMARY KEY (target, is_address, requester)
);

CREATE TABLE cn_relay.vanish_marks (
    pubkey bytea PRIMARY KEY,
    until bigint NOT NULL,
    request_id bytea NOT NULL,
    noted_at bigint NOT NULL
);

-- One row per event and topic whenever an event becomes effective, or is no more. Commits are in the order of `seq`.
CREATE TABLE cn_relay.events_outbox (
    seq bigint PRIMARY KEY,
    created_at bigint NOT NULL,
    ingested_at bigint NOT NULL,
    written_at bigint NOT NULL,
    kind integer NOT NULL,
    op text NOT NULL CHECK (op IN ('upsert', 'delete')),
    event_id bytea NOT NULL,
    topic_id text NOT NULL,
    effective_key text,
    reason text
);

CREATE TABLE cn_relay.consumer_offsets (
    consumer text COLLATE "C" PRIMARY KEY,
    last_seq bigint NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE cn_relay.node_subscriptions (
    topic_id text COLLATE "C" PRIMARY KEY,
    enabled boolean NOT NULL,
    keeper text NOT NULL CHECK (keeper IN ('operator', 'use')),
    ref_count bigint NOT NULL,
    ingest_policy text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
