-- While the clock is held: the trusted time from which on it has run without another jump. NULL: it is not held.
ALTER TABLE cn_relay.node ADD COLUMN clock_held_since bigint;
UPDATE cn_relay.node SET clock_held_since = clock_latest WHERE clock_held;
-- Processes of older versions, which use another writers' lock, can't write from here on.
ALTER TABLE cn_relay.node DROP COLUMN clock_held;

-- The writers' lock: a table without rows that every writer locks first. Only roles that may change the store can.
CREATE TABLE cn_relay.writers_lock ();
