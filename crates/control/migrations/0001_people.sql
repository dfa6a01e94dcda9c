-- What the node knows of people. Times are Unix seconds, keys 64 hex digits, truth is 0 or 1.
CREATE SCHEMA IF NOT EXISTS cn_user;

-- The revision of the last transaction; its row is the lock of transactions. `shared`: of the last one that changed what holds for all people.
-- `removed`: of the last one that removed an account, whose row can tell no revision any more.
CREATE TABLE cn_admin.revision (
    id bigint PRIMARY KEY CHECK (id = 1),
    value bigint NOT NULL,
    shared bigint NOT NULL,
    removed bigint NOT NULL
);
INSERT INTO cn_admin.revision (id, value, shared, removed) VALUES (1, 0, 0, 0);

-- Settings that are changed while the node runs.
CREATE TABLE cn_admin.settings (
    name text PRIMARY KEY,
    value text NOT NULL,
    updated_at bigint NOT NULL
);

-- Secrets of the node: of its tokens, of the pseudonyms of persons, of its services. The newest version is used for new ones.
CREATE TABLE cn_admin.secrets (
    name text NOT NULL,
    version bigint NOT NULL,
    value bytea NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE cn_admin.policies (
    policy_type text NOT NULL CHECK (policy_type IN ('terms', 'privacy', 'rules')),
    version text NOT NULL,
    created_at bigint NOT NULL,
    published_at bigint,
    effective_at bigint,
    PRIMARY KEY (policy_type, version)
);

CREATE TABLE cn_admin.policy_texts (
    policy_type text NOT NULL,
    version text NOT NULL,
    locale text NOT NULL,
    title text NOT NULL,
    content_md text NOT NULL,
    content_hash text NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (policy_type, version, locale),
    FOREIGN KEY (policy_type, version) REFERENCES cn_admin.policies (policy_type, version)
);

-- `target` and `diff_json` hold no key of a person: a person is `person:<pseudonym>`, and `persons` tells whose that is.
CREATE TABLE cn_admin.audit_logs (
    audit_id bigint PRIMARY KEY,
    created_at bigint NOT NULL,
    actor text NOT NULL,
    role text NOT NULL,
    door text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    diff_json text NOT NULL,
    public_reason text,
    private_note text,
    request_id text
);
CREATE INDEX audit_logs_action ON cn_admin.audit_logs (action, audit_id);
CREATE INDEX audit_logs_target ON cn_admin.audit_logs (target, audit_id);

CREATE TABLE cn_admin.persons (
    pseudonym text PRIMARY KEY,
    pubkey text NOT NULL
);
CREATE INDEX persons_pubkey ON cn_admin.persons (pubkey);

-- `subject`: the pseudonym of the person whom a job is about. `holder`: one claim of the job, by one worker.
CREATE TABLE cn_admin.jobs (
    job_id text PRIMARY KEY,
    kind text NOT NULL,
    subject text,
    parameters_json text NOT NULL,
    status text NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'cancelled')),
    attempts bigint NOT NULL,
    next_run_at bigint NOT NULL,
    lease_until bigint,
    holder text,
    error_message text,
    created_at bigint NOT NULL,
    started_at bigint,
    completed_at bigint
);
CREATE INDEX jobs_waiting ON cn_admin.jobs (status, next_run_at);
CREATE INDEX jobs_subject ON cn_admin.jobs (subject, kind, created_at);
CREATE INDEX jobs_created ON cn_admin.jobs (created_at, job_id);

-- The last sweep of each table by its retention: rows from before `cutoff` were over.
CREATE TABLE cn_admin.retention_runs (
    table_name text PRIMARY KEY,
    ran_at bigint NOT NULL,
    cutoff bigint NOT NULL,
    removed bigint NOT NULL
);

CREATE TABLE cn_user.subscriber_accounts (
    subscriber_pubkey text PRIMARY KEY,
    status text NOT NULL CHECK (status IN ('active', 'disabled', 'deleting')),
    reason text,
    tokens_from bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX subscriber_accounts_revision ON cn_user.subscriber_accounts (revision);
CREATE INDEX subscriber_accounts_created ON cn_user.subscriber_accounts (created_at, subscriber_pubkey);

CREATE TABLE cn_user.auth_challenges (
    challenge text PRIMARY KEY,
    pubkey text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    used_at bigint
);
CREATE INDEX auth_challenges_expires ON cn_user.auth_challenges (expires_at);

-- Tokens that were ended, until they expire.
CREATE TABLE cn_user.ended_tokens (
    jti text PRIMARY KEY,
    expires_at bigint NOT NULL,
    revision bigint NOT NULL
);
CREATE INDEX ended_tokens_revision ON cn_user.ended_tokens (revision);

-- What may be used once, such as events of NIP-98, until it expires.
CREATE TABLE cn_user.used_credentials (
    credential text PRIMARY KEY,
    expires_at bigint NOT NULL
);
CREATE INDEX used_credentials_expires ON cn_user.used_credentials (expires_at);

CREATE TABLE cn_user.invite_codes (
    code_hash text PRIMARY KEY,
    max_uses bigint NOT NULL CHECK (max_uses > 0),
    used_count bigint NOT NULL CHECK (used_count BETWEEN 0 AND max_uses),
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint
);

CREATE TABLE cn_user.allowlist (
    pubkey text PRIMARY KEY,
    created_at bigint NOT NULL
);

-- One ban for each person. When the account is deleted, a pseudonym stands in place of the key.
CREATE TABLE cn_user.bans (
    pubkey text,
    pseudonym text NOT NULL PRIMARY KEY,
    reason text NOT NULL,
    created_at bigint NOT NULL,
    until bigint,
    lifted_at bigint,
    revision bigint NOT NULL
);
CREATE INDEX bans_pubkey ON cn_user.bans (pubkey);
CREATE INDEX bans_revision ON cn_user.bans (revision);

-- When the account is deleted, at `deleted_at`, a pseudonym stands in place of the key: the receipt that somebody agreed.
CREATE TABLE cn_user.policy_consents (
    consent_id text PRIMARY KEY,
    accepter_pubkey text,
    accepter_hmac text,
    deleted_at bigint,
    policy_type text NOT NULL,
    version text NOT NULL,
    locale text NOT NULL,
    content_hash text NOT NULL,
    accepted_at bigint NOT NULL
);
CREATE UNIQUE INDEX policy_consents_once ON cn_user.policy_consents (accepter_pubkey, policy_type, version);

CREATE TABLE cn_user.plans (
    plan_id text PRIMARY KEY,
    name text NOT NULL,
    is_active bigint NOT NULL,
    created_at bigint NOT NULL
);
INSERT INTO cn_user.plans (plan_id, name, is_active, created_at) VALUES ('free', 'Free', 1, 0);

CREATE TABLE cn_user.plan_limits (
    plan_id text NOT NULL REFERENCES cn_user.plans (plan_id),
    metric text NOT NULL,
    "window" text NOT NULL CHECK ("window" IN ('day', 'level')),
    "limit" bigint NOT NULL CHECK ("limit" >= 0),
    PRIMARY KEY (plan_id, metric, "window")
);
INSERT INTO cn_user.plan_limits (plan_id, metric, "window", "limit") VALUES
    ('free', 'max_topics', 'level', 1),
    ('free', 'index.search_requests', 'day', 100),
    ('free', 'index.trending_requests', 'day', 100),
    ('free', 'trust.requests', 'day', 100),
    ('free', 'moderation.report_submits', 'day', 20);

-- Plans of persons; without one it is `free`.
CREATE TABLE cn_user.subscriptions (
    subscription_id text PRIMARY KEY,
    subscriber_pubkey text NOT NULL,
    plan_id text NOT NULL REFERENCES cn_user.plans (plan_id),
    status text NOT NULL CHECK (status IN ('active', 'ended')),
    started_at bigint NOT NULL,
    ended_at bigint
);
CREATE UNIQUE INDEX subscriptions_active ON cn_user.subscriptions (subscriber_pubkey) WHERE status = 'active';

CREATE TABLE cn_user.usage_counters_daily (
    pubkey text NOT NULL,
    metric text NOT NULL,
    day bigint NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (pubkey, metric, day)
);
CREATE INDEX usage_counters_daily_day ON cn_user.usage_counters_daily (day);

-- When the account is deleted, a pseudonym stands in place of the key.
CREATE TABLE cn_user.usage_events (
    usage_id text PRIMARY KEY,
    pubkey text NOT NULL,
    metric text NOT NULL,
    day bigint NOT NULL,
    units bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('ok', 'rejected', 'error')),
    request_id text,
    created_at bigint NOT NULL
);
CREATE INDEX usage_events_pubkey ON cn_user.usage_events (pubkey, created_at);
CREATE INDEX usage_events_created ON cn_user.usage_events (created_at);

-- Answers to requests with an Idempotency-Key, for 24 hours. Without an answer the request is being worked on, or its process ended.
CREATE TABLE cn_user.idempotent_requests (
    pubkey text NOT NULL,
    idempotency_key text NOT NULL,
    content_hash text NOT NULL,
    status bigint,
    answer text,
    created_at bigint NOT NULL,
    PRIMARY KEY (pubkey, idempotency_key)
);
CREATE INDEX idempotent_requests_created ON cn_user.idempotent_requests (created_at);

CREATE TABLE cn_user.topic_subscription_requests (
    request_id text PRIMARY KEY,
    requester_pubkey text NOT NULL,
    topic_id text NOT NULL,
    topic_name text,
    requested_services text NOT NULL,
    reason text,
    status text NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'active', 'cancelled')),
    review_note text,
    created_at bigint NOT NULL,
    reviewed_at bigint,
    reviewed_by text
);
CREATE UNIQUE INDEX topic_subscription_requests_pending
    ON cn_user.topic_subscription_requests (requester_pubkey, topic_id) WHERE status = 'pending';
CREATE INDEX topic_subscription_requests_status ON cn_user.topic_subscription_requests (status, created_at, request_id);
CREATE INDEX topic_subscription_requests_requester
    ON cn_user.topic_subscription_requests (requester_pubkey, created_at, request_id);

CREATE TABLE cn_user.topic_subscriptions (
    topic_id text NOT NULL,
    subscriber_pubkey text NOT NULL,
    services text NOT NULL,
    status text NOT NULL CHECK (status IN ('active', 'ended')),
    started_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (subscriber_pubkey, topic_id)
);
CREATE INDEX topic_subscriptions_topic ON cn_user.topic_subscriptions (topic_id) WHERE status = 'active';

-- Names of topics. A name is kept only if it hashes to the id.
CREATE TABLE cn_user.topic_names (
    topic_id text PRIMARY KEY,
    name text NOT NULL,
    folded_name text NOT NULL
);
CREATE INDEX topic_names_folded ON cn_user.topic_names (folded_name);

-- What people asked to get of their data. `download_expires_at`: set when the archive is complete.
CREATE TABLE cn_user.personal_data_export_requests (
    export_request_id text PRIMARY KEY,
    requester_pubkey text NOT NULL,
    job_id text NOT NULL,
    download_token_hash text NOT NULL,
    download_expires_at bigint,
    downloaded_at bigint,
    bytes bigint,
    created_at bigint NOT NULL
);
CREATE INDEX personal_data_export_requests_requester
    ON cn_user.personal_data_export_requests (requester_pubkey, created_at, export_request_id);

-- The archive of a request, in parts of bounded size, until it is downloaded or expires.
CREATE TABLE cn_user.personal_data_export_parts (
    export_request_id text NOT NULL,
    part bigint NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (export_request_id, part)
);

-- Accounts that were or will be deleted. `receipt_hash`: of the token with which the person reads the row without an account.
CREATE TABLE cn_user.personal_data_deletion_requests (
    deletion_request_id text PRIMARY KEY,
    requester_pseudonym text NOT NULL,
    job_id text NOT NULL,
    receipt_hash text NOT NULL,
    include_events bigint NOT NULL,
    created_at bigint NOT NULL,
    completed_at bigint
);
