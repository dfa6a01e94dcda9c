//! The tables themselves: the same on both databases, and what they refuse.

use kukuri_control::{
    Database, Error,
    audit::{self, Actor, Entry, Target},
    database::sql,
    metric::Metric,
    plan,
    policy::{self, PolicyType, PolicyVersion},
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

/// A row of each kind that a small community has.
async fn fill(control: &Control) {
    for number in 1..=3 {
        control.join(&person(number)).await;
    }
    let of = PolicyVersion { policy_type: PolicyType::Terms, version: "1".to_owned() };
    let mut transaction = control.begin().await;
    policy::draft(&mut transaction, &of, "ja", "# 利用規約\n\nなかよく。", START).await.unwrap();
    policy::publish(&mut transaction, &of, None, START).await.unwrap();
    plan::set_limit(&mut transaction, "gold", Metric::MaxTopics, Some(9), START).await.unwrap();
    plan::assign(&mut transaction, &person(2), "gold", START).await.unwrap();
    let entry = Entry::new("account.ban", Target::Person(person(1)));
    audit::record(&mut transaction, &control.secrets, &Actor::command(), entry, START).await.unwrap();
    for number in 0..1_200_u64 {
        let insert =
            sql("INSERT INTO cn_user.usage_counters_daily (pubkey, metric, day, count) VALUES ($1, $2, $3, $3)");
        let insert = insert.bind(&person((number % 3) as u8)).bind("max_topics").bind(number);
        transaction.execute(insert).await.unwrap();
    }
    transaction.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_is_copied_to_either_kind_and_back() {
    let (first, second, third) =
        (Control::on_sqlite().await, Control::empty_on_postgres().await, Control::empty_on_sqlite().await);
    fill(&first).await;
    let rows = first.database.copy_to(&second).await.unwrap();
    assert_eq!(second.copy_to(&third).await.unwrap(), rows);
    let counts = first.database.counts().await.unwrap();
    assert!(rows > 1_200 && counts.iter().map(|(_, count)| count).sum::<u64>() == rows, "{counts:?}");
    assert_eq!(third.counts().await.unwrap(), counts);
    for table in [
        "cn_user.usage_counters_daily",
        "cn_admin.policy_texts",
        "cn_admin.secrets",
        "cn_user.plan_limits",
        "cn_admin.revision",
    ] {
        let all = async |database: &Database| {
            let select = sql(format!("SELECT * FROM {table}"));
            let rows = database.read(select).await.unwrap();
            let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
            rows.sort();
            rows
        };
        assert_eq!(all(&third).await, all(&first.database).await, "{table}");
    }
    assert!(third.check().await.unwrap().is_empty());
    assert!(third.is_copy_of(&first.database).await.unwrap() && second.is_copy_of(&third).await.unwrap());
    assert!(matches!(first.database.copy_to(&second).await, Err(Error::NotEmpty)), "it has rows already");
    assert_eq!(second.counts().await.unwrap(), counts, "nothing was added");
    first.join(&person(9)).await;
    assert!(!second.is_copy_of(&first.database).await.unwrap(), "the source has changed");
}

on_both! {
    async fn check_finds_what_belongs_to_nobody(control) {
        fill(control).await;
        assert_eq!(control.database.check().await.unwrap(), Vec::<String>::new());
        let insert = sql("INSERT INTO cn_user.topic_subscriptions (topic_id, subscriber_pubkey, services, status, started_at) \
             VALUES ('kukuri:x', 'nobody', 'relay', 'active', 1)");
        control.database.change(insert).await.unwrap();
        let problems = control.database.check().await.unwrap();
        assert_eq!(problems, ["active subscriptions of people without an account: 1"]);
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
