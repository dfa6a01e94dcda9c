-- The history that sequences belong to (Y-5). Readers mix it with the server's identity and timeline and with the table's own
-- number, so that a restored dump and a fail-over begin another one.
ALTER TABLE cn_relay.node ADD COLUMN epoch uuid NOT NULL DEFAULT gen_random_uuid();
