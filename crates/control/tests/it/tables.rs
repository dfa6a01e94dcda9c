//! The tables themselves: the same on both databases, and what they refuse.

use kukuri_control::{
    Database, Error,
    audit::{self, Actor, Entry, Target},
    database::sql,
};

use crate::support::{Control, START, on_both, person};

const COLUMNS_OF_SQLITE: &str = "SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c \
    WHERE m.type = 'table' AND m.name LIKE 'cn\\_%' ESCAPE '\\' ORDER BY 1";
const COLUMNS_OF_POSTGRES: &str = "SELECT (table_schema || '_' || table_name || '.' || column_name)::text \
    FROM information_schema.columns WHERE table_schema IN ('cn_admin', 'cn_user') AND table_name <> 'migrations' ORDER BY 1";

async fn columns(control: &Control, select: &'static str) -> Vec<String> {
    let rows = control.database.read(sql(select)).await.unwrap();
    let mut columns: Vec<String> = rows.iter().map(|row| row.get(0).unwrap()).collect();
    columns.sort();
    columns
}

#[tokio::test]
async fn both_databases_have_the_same_columns() {
    let sqlite = columns(&Control::on_sqlite().await, COLUMNS_OF_SQLITE).await;
    let postgres = columns(&Control::on_postgres().await, COLUMNS_OF_POSTGRES).await;
    assert!(sqlite.len() > 100, "{}", sqlite.len());
    assert_eq!(sqlite, postgres);
}

on_both! {
    async fn audit_log_is_append_only(control) {
        // K-2
        let mut transaction = control.begin().await;
        for reason in ["spam", "more spam"] {
            let entry = Entry::new("account.ban", Target::Person(person(1)));
            let entry = entry.field("status", "active", "banned").field("same", 1, 1).public_reason(Some(reason));
            audit::record(&mut transaction, &control.secrets, &Actor::command(), entry, START).await.unwrap();
        }
        transaction.commit().await.unwrap();
        let rows = audit::list(&control.database, None, 10).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(rows[0].diff, serde_json::json!({ "status": ["active", "banned"] }));
        assert_eq!((rows[0].person, rows[0].actor.as_str()), (Some(person(1)), "command"));
        assert!(!rows[0].target.contains(&person(1).to_string()), "persons stand as pseudonyms");
        for change in [
            "UPDATE cn_admin.audit_logs SET action = 'nothing'",
            "DELETE FROM cn_admin.audit_logs",
        ] {
            let refused = control.database.change(sql(change)).await.unwrap_err();
            assert!(refused.to_string().contains("append-only"), "{refused}");
        }
        assert_eq!(audit::list(&control.database, Some(2), 10).await.unwrap().len(), 1);
    }

    async fn values_of_the_wrong_type_are_an_error(control) {
        let select = || sql("SELECT value FROM cn_admin.revision");
        let row = control.database.read_first(select()).await.unwrap().unwrap();
        assert!(matches!(row.get::<String>(0), Err(Error::Damaged(_))));
        assert!(matches!(row.get::<i64>(1), Err(Error::Damaged(_))));
    }

    async fn text_with_nul_is_refused_before_it_reaches_the_database(control) {
        let select = sql("SELECT 1 FROM cn_user.plans WHERE plan_id = $1").bind("fr\0ee");
        assert!(matches!(control.database.read(select.clone()).await, Err(Error::Nul)));
        assert!(matches!(control.database.change(select.clone()).await, Err(Error::Nul)));
        assert!(matches!(control.begin().await.fetch(select).await, Err(Error::Nul)));
    }

    async fn second_opening_finds_what_the_first_wrote(control) {
        control.join(&person(1)).await;
        let again = control.open_again().await;
        let found = kukuri_control::account::find(&again, &person(1)).await.unwrap();
        assert_eq!(found.unwrap().created_at, START);
        again.close().await;
    }
}

#[tokio::test]
async fn backup_of_sqlite_is_a_database() {
    let control = Control::on_sqlite().await;
    control.join(&person(1)).await;
    let file = control.directory().unwrap().join("copy.db");
    control.database.backup_sqlite(&file).await.unwrap();
    let copy = Database::open_sqlite(&file).await.unwrap();
    assert!(kukuri_control::account::find(&copy, &person(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn database_of_a_newer_program_is_refused() {
    let control = Control::on_sqlite().await;
    control.database.change(sql("PRAGMA user_version = 9999")).await.unwrap();
    let refused = Database::open_sqlite(&control.directory().unwrap().join("control.db")).await;
    assert!(matches!(refused.err(), Some(Error::Newer { found: 9999, .. })));
}
