-- Members of a community keep topics as well (S-3).
ALTER TABLE cn_relay.node_subscriptions DROP CONSTRAINT node_subscriptions_keeper_check;
ALTER TABLE cn_relay.node_subscriptions ADD CONSTRAINT node_subscriptions_keeper_check
    CHECK (keeper IN ('operator', 'use', 'people'));
