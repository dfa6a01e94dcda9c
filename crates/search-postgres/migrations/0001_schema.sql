-- What can be found of events. Words are ours, not Postgres's: no dictionary, no extension.

-- `terms` are the words of title and body, each once, in ascending order; the counts tell how often each stands in the
-- title and in the body, `length` how many words the body has. `created_at` is in seconds.
CREATE TABLE cn_search.post_search_documents (
    document_id bytea PRIMARY KEY,
    author bytea NOT NULL,
    kind integer NOT NULL,
    created_at bigint NOT NULL,
    topics text[] COLLATE "C" NOT NULL,
    terms text[] COLLATE "C" NOT NULL,
    title_counts smallint[] NOT NULL,
    body_counts smallint[] NOT NULL,
    length integer NOT NULL
);
-- Words that have just come wait in a list that every search reads: it is kept short.
CREATE INDEX ON cn_search.post_search_documents USING gin (terms, topics) WITH (gin_pending_list_limit = 1024);
-- For words that are in very many documents: the newest are walked.
CREATE INDEX ON cn_search.post_search_documents (created_at DESC, document_id);

-- The copy that is searched, and the one that will take its place, if one is being made: `post_search_documents_next`.
-- `reached` is the outbox row up to which a copy is made, `mark` what tells that row from every other, `version` how its
-- texts were taken apart. Writers begin by locking their copy's row.
CREATE SEQUENCE cn_search.generations;
CREATE TABLE cn_search.copies (
    name text PRIMARY KEY CHECK (name IN ('current', 'next')),
    generation bigint NOT NULL DEFAULT nextval('cn_search.generations'),
    reached bigint,
    mark text NOT NULL DEFAULT '',
    version integer NOT NULL,
    documents bigint NOT NULL DEFAULT 0,
    words bigint NOT NULL DEFAULT 0
);
INSERT INTO cn_search.copies (name, version) VALUES ('current', 0);
