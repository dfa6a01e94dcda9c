-- Whether half a copy of another store is here: it must not be taken for a whole one.
ALTER TABLE cn_relay.node ADD COLUMN loading boolean NOT NULL DEFAULT false;
