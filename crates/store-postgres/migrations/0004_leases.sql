-- Who runs a consumer, and until when unless it says so again.
CREATE TABLE cn_relay.consumer_leases (
    consumer text COLLATE "C" PRIMARY KEY,
    holder bytea NOT NULL,
    until bigint NOT NULL
);
