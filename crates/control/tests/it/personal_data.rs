//! Export and deletion of personal data (N-1, N-2), also where the worker dies in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    io::{Cursor, Read},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use async_trait::async_trait;
use kukuri_control::{
    Control as ControlPlane, Refused,
    account::{self, AccountStatus},
    actions::{AssignPlan, Ban, SetAccountStatus, SetAllowed, SetPlanLimit},
    audit::{self, Actor},
    ban,
    consent::{self, Acceptance},
    database::{Value, sql},
    job::{
        self, Claim, JobError, JobStatus,
        worker::{Handler, Worker, WorkerSettings},
    },
    metric::Metric,
    people::Refreshed,
    personal_data::{
        EventCursor, EventPage, PersonEvents,
        deletion::{self, DeletionHandler},
        deletion_list::DeletionList,
        export::{self, ExportHandler, RemoveExportHandler},
    },
    plan,
    policy::{self, PolicyType},
    request::{self, NewRequest, RequestLimits, Service},
    sign_in, subscription, token, usage,
};
use kukuri_domain::{PublicKey, Timestamp, hex, nip19::npub};
use parking_lot::Mutex;
use serde_json::Value as Json;

use crate::{
    jobs::TestClock,
    policies::{hash, publish, version},
    support::{Control, START, later, name, on_both, person, topic},
};

/// Events of people, in memory.
#[derive(Default)]
struct TestEvents {
    events: Mutex<BTreeMap<PublicKey, Vec<Vec<u8>>>>,
    vanished: Mutex<Vec<(PublicKey, Timestamp)>>,
}

#[async_trait]
impl PersonEvents for TestEvents {
    async fn page(&self, author: &PublicKey, from: EventCursor) -> Result<EventPage, JobError> {
        let all = self.events.lock().get(author).cloned().unwrap_or_default();
        // The time stands for the place in this test.
        let at = if from == EventCursor::default() { 0 } else { from.until.0 as usize };
        let end = (at + 3).min(all.len());
        let next = (end < all.len()).then(|| EventCursor { until: Timestamp(end as u64), seen: Vec::new() });
        Ok(EventPage { events: all[at..end].to_vec(), next })
    }

    async fn vanish(&self, author: &PublicKey, until: Timestamp) -> Result<(), JobError> {
        // As a store over a network does.
        tokio::task::yield_now().await;
        self.vanished.lock().push((*author, until));
        self.events.lock().remove(author);
        Ok(())
    }
}

/// A node's control plane with its handlers.
struct Office {
    plane: Arc<ControlPlane>,
    events: Arc<TestEvents>,
    clock: TestClock,
    directory: tempfile::TempDir,
}

impl Office {
    async fn open(control: &Control) -> Self {
        let plane = ControlPlane::open(control.database.clone(), START).await.unwrap();
        let (events, clock) = (Arc::default(), TestClock::new());
        Self { plane: Arc::new(plane), events, clock, directory: tempfile::tempdir().unwrap() }
    }

    fn list(&self) -> DeletionList {
        DeletionList::new(self.directory.path().join("deletions.log"))
    }

    fn deletion_handler(&self) -> DeletionHandler {
        DeletionHandler { control: Arc::clone(&self.plane), events: self.events.clone(), list: self.list() }
    }

    fn export_handler(&self) -> ExportHandler {
        ExportHandler { control: Arc::clone(&self.plane), events: self.events.clone() }
    }

    /// Runs all jobs that are due.
    async fn work(&self) {
        let handlers: [(&'static str, Arc<dyn Handler>); 3] = [
            (export::KIND, Arc::new(self.export_handler())),
            (export::REMOVE_KIND, Arc::new(RemoveExportHandler { control: Arc::clone(&self.plane) })),
            (deletion::KIND, Arc::new(self.deletion_handler())),
        ];
        let database = self.plane.database().clone();
        let worker = Worker::new(database, handlers, WorkerSettings::default(), self.clock.clock());
        while worker.run_one().await.unwrap() {}
    }

    async fn claim(&self, kind: &str) -> Claim {
        let now = self.clock.now();
        job::claim(self.plane.database(), &[kind], now, Timestamp(now.0 + 60)).await.unwrap().unwrap()
    }

    async fn perform<A: kukuri_control::Action>(&self, action: A) {
        self.plane.perform(&action, &Actor::command(), START).await.map(drop).unwrap();
    }

    async fn request_export(&self, number: u8) -> (String, String) {
        let secrets = self.plane.secrets();
        let made = export::create(self.plane.database(), &secrets, &person(number), self.clock.now()).await;
        let (export, token) = made.unwrap();
        (export.id, token)
    }

    async fn request_deletion(&self, number: u8, include_events: bool) -> (String, String) {
        let (database, secrets, now) = (self.plane.database(), self.plane.secrets(), self.clock.now());
        let (deletion, receipt) =
            deletion::request(database, &secrets, &person(number), include_events, now).await.unwrap();
        (deletion.id, receipt)
    }

    async fn deletion_status(&self, (id, receipt): &(String, String)) -> JobStatus {
        deletion::find(self.plane.database(), id, receipt).await.unwrap().unwrap().status
    }

    /// The whole archive, by the one download.
    async fn download(&self, id: &str, token: &str) -> Result<Vec<u8>, Refused> {
        let database = self.plane.database();
        let bytes = export::begin_download(database, id, token, self.clock.now()).await?;
        let (mut archive, mut part) = (Vec::new(), 0);
        while let Some(content) = export::read_part(database, id, part).await.unwrap() {
            assert!(content.len() <= export::PART_LEN);
            archive.extend(content);
            part += 1;
        }
        assert_eq!(archive.len() as u64, bytes);
        export::remove_parts(database, id).await.unwrap();
        Ok(archive)
    }

    /// An account with rows in every table that has a column for a key.
    async fn fill(&self, control: &Control, number: u8) {
        let (database, secrets, key) = (self.plane.database(), self.plane.secrets(), person(number));
        control.join(&key).await;
        sign_in::challenge(database, &key, START).await.unwrap();
        let of = version(PolicyType::Terms, "1");
        if policy::list(database).await.unwrap().is_empty() {
            publish(control, &of, START, START).await;
        }
        let acceptance = Acceptance { of, content_hash: hash("# 1\nen") };
        consent::accept(database, &key, &[acceptance], START).await.unwrap();
        self.perform(SetPlanLimit { plan: "gold".to_owned(), metric: Metric::MaxTopics, limit: Some(9) }).await;
        self.perform(AssignPlan { person: key, plan: "gold".to_owned() }).await;
        self.perform(SetAllowed { pubkey: key, is_allowed: true }).await;
        for (topic_number, is_approved) in [(number + 50, true), (number + 100, false)] {
            let asked = NewRequest {
                topic: topic(topic_number),
                topic_name: None,
                services: vec![Service::Index],
                reason: Some(format!("thirst of {number}")),
            };
            let made = request::create(database, &key, &asked, RequestLimits::default(), START).await.unwrap();
            if is_approved {
                let action = kukuri_control::actions::ApproveRequest {
                    id: made.id,
                    note: Some(format!("welcome {number}")),
                    limits: RequestLimits::default(),
                };
                self.perform(action).await;
            }
        }
        for outcome in [usage::Outcome::Ok, usage::Outcome::Error] {
            let reserved = usage::reserve(database, &key, Metric::SearchRequests, None, START).await.unwrap();
            // A client may choose the id of its request.
            usage::settle(database, reserved, outcome, Some(&key.to_string()), START).await.unwrap();
        }
        let insert =
            sql("INSERT INTO cn_user.idempotent_requests (pubkey, idempotency_key, content_hash, answer, created_at) \
             VALUES ($1, 'once', 'hash', $2, $3)");
        database.change(insert.bind(&key).bind(npub(&key)).bind(START)).await.unwrap();
        let mut transaction = control.begin().await;
        ban::ban(&mut transaction, &secrets, &key, &format!("spam of {number}"), None, START).await.unwrap();
        transaction.commit().await.unwrap();
    }
}

async fn archive_files(archive: Vec<u8>) -> BTreeMap<String, Vec<Json>> {
    let mut zip = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut files = BTreeMap::new();
    for number in 0..zip.len() {
        let mut file = zip.by_index(number).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        files.insert(file.name().unwrap().into_owned(), lines);
    }
    files
}

const TABLES_OF_SQLITE: &str =
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'cn\\_%' ESCAPE '\\' ORDER BY 1";
const TABLES_OF_POSTGRES: &str = "SELECT (table_schema || '.' || table_name)::text FROM information_schema.tables \
    WHERE table_schema LIKE 'cn\\_%' AND table_name <> 'migrations' ORDER BY 1";
const COLUMNS_OF_SQLITE: &str = "SELECT c.name FROM pragma_table_info($1) c";
const COLUMNS_OF_POSTGRES: &str = "SELECT column_name::text FROM information_schema.columns \
    WHERE table_schema || '.' || table_name = $1";

/// All columns of all tables, as the database has them.
async fn all_columns(control: &Control) -> Vec<(String, String)> {
    let (tables, columns) = match control.directory() {
        Some(_) => (TABLES_OF_SQLITE, COLUMNS_OF_SQLITE),
        None => (TABLES_OF_POSTGRES, COLUMNS_OF_POSTGRES),
    };
    let mut all = Vec::new();
    for row in control.database.read(sql(tables)).await.unwrap() {
        let table: String = row.get(0).unwrap();
        for column in control.database.read(sql(columns).bind(&table)).await.unwrap() {
            all.push((table.clone(), column.get(0).unwrap()));
        }
    }
    assert!(all.len() > 100, "{}", all.len());
    all
}

fn names(value: &Value, key: &PublicKey) -> bool {
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    match value {
        Value::Text(text) => {
            let text = text.to_lowercase();
            text.contains(&key.to_string()) || text.contains(&npub(key))
        }
        Value::Bytes(bytes) => {
            has(bytes, key.as_bytes())
                || has(bytes, hex::encode(key.as_bytes()).as_bytes())
                || has(bytes, npub(key).as_bytes())
        }
        Value::Integer(_) | Value::Null => false,
    }
}

/// The columns of the whole database in which a person's key stands.
async fn columns_that_name(control: &Control, key: &PublicKey) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (table, column) in all_columns(control).await {
        let select = sql(format!("SELECT \"{column}\" FROM {table}"));
        for row in control.database.read(select).await.unwrap() {
            if names(&row.get::<Value>(0).unwrap(), key) {
                found.insert((table.clone(), column.clone()));
            }
        }
    }
    found
}

/// Runs a future for so many polls, and drops it then, as a process that dies. `None`: it did not end.
async fn for_some_polls<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future: Pin<Box<_>> = Box::pin(future);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

on_both! {
    async fn export_has_everything_of_the_person_and_nothing_of_another(control) {
        // N-1
        let office = Office::open(control).await;
        for number in [1, 2] {
            office.fill(control, number).await;
            office.perform(SetAccountStatus { pubkey: person(number), status: AccountStatus::Disabled, reason: Some(format!("rude {number}")) }).await;
            let events = (0..10).map(|at| format!(r#"{{"id":"{at}","pubkey":"{}"}}"#, person(number)).into_bytes());
            office.events.events.lock().insert(person(number), events.collect());
        }
        let (id, token) = office.request_export(1).await;
        assert_eq!(name(office.download(&id, &token).await), "InvalidState", "it is not made yet");
        office.work().await;
        let found = export::find(control_database(&office), &person(1), &id).await.unwrap().unwrap();
        assert_eq!((found.status, found.download_expires_at), (JobStatus::Completed, Some(later(export::DOWNLOAD_TTL))));
        assert_eq!(export::find(control_database(&office), &person(2), &id).await.unwrap(), None);
        assert_eq!(name(office.download(&id, "wrong").await), "UnknownExport");
        let archive = office.download(&id, &token).await.unwrap();
        assert_eq!(name(office.download(&id, &token).await), "DownloadExpired", "once");

        let files = archive_files(archive).await;
        let counts: Vec<(&str, usize)> = files.iter().map(|(name, lines)| (name.as_str(), lines.len())).collect();
        assert_eq!(counts, [
            ("account.ndjson", 1),
            ("allowlist.ndjson", 1),
            ("bans.ndjson", 1),
            ("consents.ndjson", 1),
            ("decisions.ndjson", 4),
            ("events.ndjson", 10),
            ("exports.ndjson", 1),
            ("plans.ndjson", 1),
            ("topic-requests.ndjson", 2),
            ("topic-subscriptions.ndjson", 1),
            ("usage-by-day.ndjson", 1),
            ("usage.ndjson", 2),
        ]);
        assert_eq!(files["account.ndjson"][0]["pubkey"], person(1).to_string());
        assert_eq!(files["bans.ndjson"][0]["reason"], "spam of 1");
        let decided = files["decisions.ndjson"].iter().find(|row| row["action"] == "request.approve").unwrap();
        assert_eq!((&decided["public_reason"], &decided["diff"]["status"][1]), (&"welcome 1".into(), &"approved".into()));
        for (file, lines) in &files {
            let text = lines.iter().map(Json::to_string).collect::<String>();
            for foreign in [person(2).to_string(), "spam of 2".to_owned(), "thirst of 2".to_owned(), "rude 2".to_owned()] {
                assert!(!text.contains(&foreign), "{foreign} in {file}");
            }
        }
        assert!(matches!(export::read_part(control_database(&office), &id, 0).await, Ok(None)), "nothing is left");
    }

    async fn large_export_is_kept_in_parts_and_expires(control) {
        // N-1, N-4
        let office = Office::open(control).await;
        control.join(&person(1)).await;
        // Not to be compressed.
        let mut seed = blake3::Hasher::new().finalize_xof();
        let mut noise = || {
            let mut bytes = vec![0; 60_000];
            seed.fill(&mut bytes);
            format!(r#"{{"content":"{}"}}"#, hex::encode(&bytes)).into_bytes()
        };
        let events: Vec<Vec<u8>> = (0..20).map(|_| noise()).collect();
        office.events.events.lock().insert(person(1), events.clone());
        let (first, token) = office.request_export(1).await;
        office.work().await;
        let found = export::find(control_database(&office), &person(1), &first).await.unwrap().unwrap();
        assert!(found.bytes.unwrap() > 4 * export::PART_LEN as u64, "{found:?}");
        let files = archive_files(office.download(&first, &token).await.unwrap()).await;
        let expected: Vec<Json> = events.iter().map(|event| serde_json::from_slice(event).unwrap()).collect();
        assert!(files["events.ndjson"] == expected, "every event, in order");

        let (second, token) = office.request_export(1).await;
        office.work().await;
        assert!(export::read_part(control_database(&office), &second, 0).await.unwrap().is_some());
        office.clock.set(later(export::DOWNLOAD_TTL));
        assert_eq!(name(office.download(&second, &token).await), "DownloadExpired");
        office.work().await;
        let part = export::read_part(control_database(&office), &second, 0).await.unwrap();
        assert_eq!(part, None, "removed on time");
    }

    async fn exports_are_bounded_for_each_person(control) {
        // N-1
        let office = Office::open(control).await;
        control.join(&person(1)).await;
        control.join(&person(2)).await;
        let again = async |number| {
            let made = export::create(control_database(&office), &office.plane.secrets(), &person(number), office.clock.now()).await;
            match made {
                Err(Refused::TooManyExports { is_running, retry_after }) => Some((is_running, retry_after)),
                made => { made.unwrap(); None }
            }
        };
        for _ in 0..export::MAX_A_DAY {
            assert_eq!(again(1).await, None);
            assert_eq!(again(1).await, Some((true, 60)), "one at a time");
            office.work().await;
            office.clock.set(Timestamp(office.clock.now().0 + 100));
        }
        assert_eq!(again(1).await, Some((false, 24 * 3_600 - 300)));
        assert_eq!(again(2).await, None, "each person counts alone");
        office.clock.set(later(24 * 3_600));
        assert_eq!(again(1).await, None);
        let listed = export::list(control_database(&office), &person(1), None, 10).await.unwrap();
        assert_eq!(listed.len(), 4);
        let after = Some((listed[1].created_at, listed[1].id.clone()));
        assert_eq!(export::list(control_database(&office), &person(1), after, 10).await.unwrap(), listed[2..]);
        let refused = export::create(control_database(&office), &office.plane.secrets(), &person(3), START).await;
        assert_eq!(name(refused), "UnknownAccount");
    }

    async fn export_is_made_anew_after_a_crash_at_any_point(control) {
        // N-3
        let office = Office::open(control).await;
        office.events.events.lock().insert(person(1), (0..7).map(|at| format!(r#"{{"id":{at}}}"#).into_bytes()).collect());
        control.join(&person(1)).await;
        for polls in 1..200 {
            let (id, token) = office.request_export(1).await;
            let (claim, handler) = (office.claim(export::KIND).await, office.export_handler());
            let ended = for_some_polls(handler.run(&claim, &office.clock.clock()), polls).await;
            office.clock.set(Timestamp(office.clock.now().0 + 24 * 3_600));
            if let Some(ended) = ended {
                ended.unwrap();
                assert!(polls > 10, "{polls}");
                return;
            }
            let found = export::find(control_database(&office), &person(1), &id).await.unwrap().unwrap();
            if found.status == JobStatus::Running {
                office.work().await;
                let files = archive_files(office.download(&id, &token).await.unwrap()).await;
                assert_eq!((files["events.ndjson"].len(), files["account.ndjson"].len()), (7, 1), "after {polls} polls");
            }
        }
        panic!("it did not end");
    }

    async fn deletion_leaves_no_key_in_any_table(control) {
        // N-2
        let office = Office::open(control).await;
        for number in [1, 2] {
            office.fill(control, number).await;
        }
        let (old, _) = office.request_export(1).await;
        office.work().await;
        let (running, _) = office.request_export(1).await;
        let named = columns_that_name(control, &person(1)).await;
        for (table, column) in all_columns(control).await {
            let is_expected = column.contains("pubkey");
            assert!(!is_expected || named.contains(&(table.clone(), column.clone())), "fill {table}.{column} in this test");
        }
        let others = columns_that_name(control, &person(2)).await;

        let receipt = office.request_deletion(1, true).await;
        // At once.
        let known = account::find(control_database(&office), &person(1)).await.unwrap().unwrap();
        assert_eq!(known.status, AccountStatus::Deleting);
        for (number, expected) in [(1, 0), (2, 1)] {
            let all = subscription::list(control_database(&office), &person(number)).await.unwrap();
            assert_eq!(all.iter().filter(|one| one.ended_at.is_none()).count(), expected, "{number}");
        }
        let waiting = request::list(control_database(&office), Some(&person(1)), None, None, 10).await.unwrap();
        assert!(waiting.iter().all(|request| request.status != request::RequestStatus::Pending), "{waiting:?}");
        let found = export::find(control_database(&office), &person(1), &running).await.unwrap().unwrap();
        assert_eq!(found.status, JobStatus::Cancelled);
        office.plane.refresh(START).await.unwrap();
        let claims = issue(control, 1, START);
        assert_eq!(name(office.plane.people().check_token(&claims)), "AuthFailed");
        assert_eq!(name(office.plane.people().check_account(&person(1))), "AccountDeleted");
        let again = deletion::request(control_database(&office), &office.plane.secrets(), &person(1), false, START).await;
        assert_eq!(name(again), "AccountDeleted");
        assert_eq!(office.deletion_status(&receipt).await, JobStatus::Queued);

        office.clock.set(later(5));
        office.work().await;
        assert_eq!(office.deletion_status(&receipt).await, JobStatus::Completed);
        assert_eq!(columns_that_name(control, &person(1)).await, BTreeSet::new());
        assert_eq!(columns_that_name(control, &person(2)).await, others, "nothing of another person went");
        assert_eq!(*office.events.vanished.lock(), [(person(1), START)], "events from before it was asked for");
        assert!(matches!(export::read_part(control_database(&office), &old, 0).await, Ok(None)));

        // What stays, under a pseudonym.
        let pseudonym = office.plane.secrets().pseudonym(&person(1)).unwrap();
        for (what, select, expected) in [
            ("consents", "SELECT count(*) FROM cn_user.policy_consents WHERE accepter_hmac = $1 AND deleted_at IS NOT NULL", 1),
            ("usage", "SELECT count(*) FROM cn_user.usage_events WHERE pubkey = $1", 2),
            ("bans", "SELECT count(*) FROM cn_user.bans WHERE pseudonym = $1 AND pubkey IS NULL", 1),
            ("decisions", "SELECT count(*) FROM cn_admin.audit_logs WHERE target = 'person:' || $1", 2),
            ("counters", "SELECT count(*) FROM cn_user.usage_counters_daily WHERE pubkey = $1", 0),
        ] {
            let row = control.database.read_first(sql(select).bind(&pseudonym)).await.unwrap().unwrap();
            assert_eq!(row.get::<i64>(0).unwrap(), expected, "{what}");
        }
        let rows = audit::list(control_database(&office), None, 10).await.unwrap();
        assert_eq!((rows[0].action.as_str(), rows[0].person), ("account.delete", None));
        let listed = office.list().read().unwrap();
        assert!(listed[&pseudonym].include_events && listed[&pseudonym].deleted_at == later(5));
        assert!(deletion::find(control_database(&office), &receipt.0, "wrong").await.unwrap().is_none());
    }

    async fn deletion_is_resumed_after_a_crash_at_any_point(control) {
        // N-2, N-3
        let office = Office::open(control).await;
        for polls in 1..200 {
            let number = polls as u8;
            let key = person(number);
            control.join(&key).await;
            let used = usage::DailyUse { person: key, metric: Metric::EventPublishes, day: usage::day_of(START), units: 1 };
            usage::add_all(control_database(&office), &[used]).await.unwrap();
            let reserved = usage::reserve(control_database(&office), &key, Metric::SearchRequests, None, START).await.unwrap();
            usage::settle(control_database(&office), reserved, usage::Outcome::Ok, None, START).await.unwrap();
            office.events.events.lock().insert(key, vec![b"{}".to_vec()]);
            let receipt = office.request_deletion(number, true).await;
            let (claim, handler) = (office.claim(deletion::KIND).await, office.deletion_handler());
            let ended = for_some_polls(handler.run(&claim, &office.clock.clock()), polls).await;
            let is_whole = ended.is_some();
            if let Some(ended) = ended {
                ended.unwrap();
            }
            office.clock.set(Timestamp(office.clock.now().0 + 100));
            office.work().await;
            assert_eq!(office.deletion_status(&receipt).await, JobStatus::Completed, "after {polls} polls");
            assert_eq!(columns_that_name(control, &key).await, BTreeSet::new(), "after {polls} polls");
            assert!(!office.events.events.lock().contains_key(&key));
            let pseudonym = office.plane.secrets().pseudonym(&key).unwrap();
            assert!(office.list().read().unwrap().contains_key(&pseudonym), "after {polls} polls");
            if is_whole {
                assert!(polls > 10, "{polls}");
                return;
            }
        }
        panic!("it did not end");
    }

    async fn disabled_and_banned_person_is_deleted_and_the_ban_survives(control) {
        // N-2
        let office = Office::open(control).await;
        for number in [1, 2] {
            control.join(&person(number)).await;
        }
        office.perform(SetAccountStatus { pubkey: person(1), status: AccountStatus::Disabled, reason: None }).await;
        office.perform(Ban { pubkey: person(1), reason: "spam".to_owned(), until: None }).await;
        office.plane.refresh(START).await.unwrap();
        assert_eq!(name(office.plane.people().check_account(&person(1))), "ok");
        let other = control.open_again().await;
        let other = ControlPlane::open(other, START).await.unwrap();
        for number in [1, 2] {
            let receipt = office.request_deletion(number, false).await;
            office.work().await;
            assert_eq!(office.deletion_status(&receipt).await, JobStatus::Completed);
        }
        assert!(office.events.vanished.lock().is_empty(), "events stay unless they are to go");

        // Another process, which has seen nothing of it, learns that the accounts are gone.
        assert_eq!(other.refresh(START).await.unwrap(), Refreshed::Changed);
        for plane in [&*office.plane, &other] {
            for number in [1, 2] {
                assert_eq!(name(plane.people().check_account(&person(number))), "UnknownAccount");
                assert_eq!(name(plane.people().check_served(&person(number), START)), "UnknownAccount");
            }
            let pseudonyms = plane.secrets().pseudonyms(&person(1));
            assert_eq!(name(plane.people().check_nameless_bans(&pseudonyms, START)), "Banned");
        }
        let visit = async |number| {
            let secrets = office.plane.secrets();
            name(sign_in::first_visit(control_database(&office), &secrets, &person(number), None, later(9)).await)
        };
        assert_eq!(visit(1).await, "Banned");
        assert_eq!(visit(2).await, "ok", "the same key may register anew");
        other.refresh(START).await.unwrap();
        assert_eq!(name(other.people().check_served(&person(2), START)), "ok");
        assert_eq!(other.people().plan(&person(2)).unwrap().id, plan::FREE);
        assert_eq!(name(other.people().check_token(&issue(control, 2, START))), "AuthFailed", "a token from before is dead");
        other.database().close().await;
    }

    async fn account_that_a_backup_brings_back_is_deleted_again(control) {
        // N-2
        let office = Office::open(control).await;
        for number in [1, 2, 3] {
            control.join(&person(number)).await;
        }
        office.clock.set(later(10));
        for number in [1, 2] {
            office.request_deletion(number, number == 1).await;
        }
        office.work().await;
        office.events.vanished.lock().clear();
        // Person 1 comes back from a backup; person 2 has signed in again; person 3 was never deleted.
        control.join(&person(1)).await;
        sign_in::first_visit(control_database(&office), &office.plane.secrets(), &person(2), None, later(20)).await.unwrap();
        // The backup is older than the newest secret.
        let mut transaction = control.begin().await;
        kukuri_control::secret::rotate(&mut transaction, kukuri_control::secret::Purpose::Persons, later(20)).await.unwrap();
        transaction.commit().await.unwrap();
        let plane = Arc::new(ControlPlane::open(control.database.clone(), later(30)).await.unwrap());
        assert_eq!(deletion::repeat_listed(&plane, &office.list(), later(30)).await.unwrap(), 1);
        assert_eq!(deletion::repeat_listed(&plane, &office.list(), later(30)).await.unwrap(), 0, "it is being deleted");
        office.clock.set(later(31));
        office.work().await;
        let left: Vec<_> = account::list(control_database(&office), None, 10).await.unwrap();
        assert_eq!(left.iter().map(|account| account.pubkey).collect::<Vec<_>>(), [person(3), person(2)]);
        assert_eq!(*office.events.vanished.lock(), [(person(1), later(10))], "events from before the deletion");
        let empty = DeletionList::new(office.directory.path().join("none"));
        assert_eq!(deletion::repeat_listed(&plane, &empty, later(40)).await.unwrap(), 0);
    }

    async fn deletion_can_not_be_cancelled_and_failed_one_is_tried_again(control) {
        let office = Office::open(control).await;
        control.join(&person(1)).await;
        let receipt = office.request_deletion(1, false).await;
        let jobs = job::list(control_database(&office), None, None, 10).await.unwrap();
        let mut transaction = control.begin().await;
        assert_eq!(name(job::cancel(&mut transaction, &jobs[0].id, START).await), "InvalidState");
        drop(transaction);
        control.database.change(sql("UPDATE cn_admin.jobs SET status = 'failed'")).await.unwrap();
        assert_eq!(office.deletion_status(&receipt).await, JobStatus::Failed);
        let mut transaction = control.begin().await;
        job::retry(&mut transaction, &jobs[0].id, START).await.unwrap();
        transaction.commit().await.unwrap();
        office.work().await;
        assert_eq!(office.deletion_status(&receipt).await, JobStatus::Completed);
    }
}

fn control_database(office: &Office) -> &kukuri_control::Database {
    office.plane.database()
}

fn issue(control: &Control, number: u8, now: Timestamp) -> token::Claims {
    const URL: &str = "wss://node.example";
    let token = token::issue(&control.secrets, URL, &person(number), now).unwrap();
    token::check(&control.secrets, URL, &token.text, now).unwrap()
}
