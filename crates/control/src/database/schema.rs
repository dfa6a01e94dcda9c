//! The tables, once for both databases.
//!
//! A migration is written for Postgres. For SQLite its names lose their schemas, its types become SQLite's, and its tables are strict.
//! What the two can't share (triggers) is a step of its own, with a text for each.

use kukuri_postgres::Migrations;

use super::transfer::Table;

const SCHEMA: &str = "cn_admin";
/// An advisory lock of Postgres: the ASCII of "cn_admin".
const LOCK: i64 = 0x636e_5f61_646d_696e;

macro_rules! step {
    ($name:literal) => {
        ($name, include_str!(concat!("../../migrations/", $name, ".sql")))
    };
}

/// The migrations for Postgres. A new one is one more line here and below.
pub(super) const POSTGRES: Migrations =
    Migrations { schema: SCHEMA, lock: LOCK, steps: &[step!("0001_people"), step!("0002_append_only_audit.postgres")] };

/// The migrations for SQLite.
pub(super) const SQLITE: Migrations =
    Migrations { schema: SCHEMA, lock: LOCK, steps: &[step!("0001_people"), step!("0002_append_only_audit.sqlite")] };

/// The schemas, which are prefixes on SQLite.
const SCHEMAS: [(&str, &str); 3] =
    [("cn_admin.", "cn_admin_"), ("cn_user.", "cn_user_"), ("cn_bootstrap.", "cn_bootstrap_")];

/// A statement with the names of SQLite's tables.
pub(super) fn names_for_sqlite(sql: &str) -> String {
    SCHEMAS.iter().fold(sql.to_owned(), |sql, (schema, prefix)| sql.replace(schema, prefix))
}

/// A migration for SQLite.
pub(super) fn for_sqlite(migration: &str) -> String {
    let is_shared = |line: &&str| !line.starts_with("CREATE SCHEMA");
    let lines: Vec<&str> = migration.lines().filter(is_shared).collect();
    let sql = names_for_sqlite(&lines.join("\n"));
    sql.replace(" bigint", " integer").replace(" bytea", " blob").replace("\n);", "\n) STRICT;")
}

/// All tables, those first that others refer to.
pub(super) fn tables() -> Vec<Table> {
    let of_step = |(_, text): &(&'static str, &'static str)| text.split("CREATE TABLE ").skip(1).filter_map(table);
    POSTGRES.steps.iter().flat_map(of_step).collect()
}

/// Reads a declaration: `NAME (`, then a column or a constraint in each line, then `);`.
fn table(declaration: &'static str) -> Option<Table> {
    let (name, body) = declaration.split_once(" (\n")?;
    let (body, _) = body.split_once("\n);")?;
    let mut table = Table { name, columns: Vec::new(), key: Vec::new(), has_bytes: body.contains(" bytea") };
    for line in body.lines().map(str::trim) {
        if let Some((_, key)) = line.split_once("PRIMARY KEY (") {
            table.key = key.split(')').next()?.split(", ").collect();
            continue;
        }
        let column = line.split(' ').next()?;
        // Constraints begin in upper case, comments with two hyphens.
        if column.starts_with(|first: char| first.is_ascii_lowercase() || first == '"') {
            table.columns.push(column);
            if line.contains("PRIMARY KEY") {
                table.key = vec![column];
            }
        }
    }
    Some(table)
}
