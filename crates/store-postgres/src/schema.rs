//! The schema's version.

use kukuri_postgres::Migrations;

/// All migrations. Processes that start at the same time wait for each other at this lock; writers use another.
pub(crate) const MIGRATIONS: Migrations = Migrations {
    schema: "cn_relay",
    lock: 7_742_364_214,
    steps: &[
        ("schema", include_str!("../migrations/0001_schema.sql")),
        ("loading", include_str!("../migrations/0002_loading.sql")),
        ("leaving", include_str!("../migrations/0003_leaving.sql")),
        ("leases", include_str!("../migrations/0004_leases.sql")),
        ("traces", include_str!("../migrations/0005_traces.sql")),
    ],
};
