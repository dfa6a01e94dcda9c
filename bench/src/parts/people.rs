//! The cost of knowing people: memory of a node with very many accounts; the policies for members with each event and each REQ,
//! and the check of a token, in this process without sockets: the same calls are made in turns with the policies and without them, and
//! the difference is reported.

use std::{net::IpAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use kukuri_control::{
    Control, Database,
    database::{Statement, sql},
    policy::{self, PolicyType, PolicyVersion},
    token,
};
use kukuri_domain::{Admission, Filter, PublicKey, TopicId, subscription::SubscriptionChange};
use kukuri_engine::{
    Client, Engine, EngineConfig, EngineParts, ReadKind, clock,
    config::{Auth, TopicIntake},
    intake::Submitted,
    live::client_queue,
    policies::Policy,
};
use kukuri_entitlement::{BanPolicy, MemberPolicy, QuotaPolicy};
use kukuri_store::port::Topics;
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use kukuri_testing::events::{draft, topic};
use rustix::time::{ClockId, clock_gettime};

use super::Bench;
use crate::relay::Relay;

const ACCOUNTS: usize = 100_000;
/// Each account subscribes to one of so many.
const TOPICS: u8 = 100;
/// Rows in one statement.
const ROWS_AT_ONCE: usize = 1_000;
/// With and without policies, in turns; the median of the differences counts.
const ROUNDS: usize = 7;
const EVENTS: usize = 2_000;
const REQUESTS: usize = 50_000;
const TOKENS: usize = 20_000;
const SETTLING_TIME: Duration = Duration::from_secs(15);
const URL: &str = "https://node.example";

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let place = bench.dir.join("people");
    std::fs::create_dir_all(&place)?;
    let member = PublicKey::from_hex(kukuri_testing::events::key_of(1)).context("a key of the tests")?;
    let file = place.join("control.db");
    let control = control_of_many(&file, &member).await?;
    let copy = tempfile::tempdir_in(&bench.dir)?;
    control.database().backup_sqlite(&copy.path().join("control.db")).await?;
    let (without, with) = (bench.start(relay).await?, relay.start_on(copy, bench.timeout()).await?);
    // Memory that the start needed goes back to the system within this time.
    tokio::time::sleep(SETTLING_TIME).await;
    let (without, with) = (without.private_memory(), with.private_memory());
    bench.report.number("100,000 accounts", "memory", "MB", with.saturating_sub(without) as f64 / 1e6);

    let token = token::issue(&control.secrets(), URL, &member, clock::now().seconds())?.text;
    let people = control.people();
    let each = cpu_of(TOKENS, || {
        let now = clock::now().seconds();
        let claims = token::check(&control.secrets(), URL, &token, now)?;
        people.check_token(&claims)?;
        people.check_served(&claims.sub, now)?;
        anyhow::ensure!(people.has_consented(&claims.sub), "it has consented");
        Ok(())
    })?;
    bench.report.number("token", "CPU each", "µs", each);

    let policies: Vec<Box<dyn Policy>> = vec![
        Box::new(BanPolicy(Arc::clone(&control))),
        Box::new(MemberPolicy(Arc::clone(&control))),
        Box::new(QuotaPolicy::new(Arc::clone(&control))),
    ];
    let with = engine(&place.join("with"), policies).await?;
    let without = engine(&place.join("without"), Vec::new()).await?;
    let client = Client { ip: IpAddr::from([127, 0, 0, 1]), keys: [member].into(), connected_at: clock::now() };
    let requests = differences(|is_asked| cpu_of_requests(if is_asked { &with } else { &without }, &client))?;
    bench.report.number("REQ", "CPU of the policies", "µs", requests);
    let texts = events();
    let mut each = Vec::new();
    for _ in 0..ROUNDS {
        let asked = cpu_of_events(&with, &client, &texts).await?;
        each.push(asked - cpu_of_events(&without, &client, &texts).await?);
    }
    bench.report.number("event", "CPU of the policies", "µs", median(each));
    control.database().close().await;
    Ok(())
}

/// A control database with very many accounts, opened as a node does it.
async fn control_of_many(file: &Path, member: &PublicKey) -> anyhow::Result<Arc<Control>> {
    let database = Database::open_sqlite(file).await?;
    let now = clock::now().seconds();
    let mut transaction = database.begin().await?;
    for policy_type in [PolicyType::Terms, PolicyType::Privacy] {
        let of = PolicyVersion { policy_type, version: "2030-01".to_owned() };
        policy::draft(&mut transaction, &of, "en", "# Policy", now).await?;
        policy::publish(&mut transaction, &of, None, now).await?;
    }
    let revision = transaction.revision();
    let keys: Vec<String> = std::iter::once(member.to_string())
        .chain((1..ACCOUNTS).map(|number| format!("{:064x}", number as u128 * 0x9e37_79b9_7f4a_7c15)))
        .collect();
    for (page, keys) in keys.chunks(ROWS_AT_ONCE).enumerate() {
        let topic_of = |at: usize| topic((1 + (page * ROWS_AT_ONCE + at) % usize::from(TOPICS)) as u8);
        transaction
            .execute(rows(
                "INSERT INTO cn_user.subscriber_accounts \
                 (subscriber_pubkey, status, tokens_from, created_at, updated_at, revision) VALUES",
                keys.iter().map(|key| format!("('{key}', 'active', 0, {now}, {now}, {revision})")),
            ))
            .await?;
        for policy_type in ["terms", "privacy"] {
            transaction
                .execute(rows(
                    "INSERT INTO cn_user.policy_consents (consent_id, accepter_pubkey, policy_type, version, locale, \
                     content_hash, accepted_at) VALUES",
                    keys.iter().map(|key| {
                        format!("('{policy_type}-{key}', '{key}', '{policy_type}', '2030-01', 'en', '', {now})")
                    }),
                ))
                .await?;
        }
        transaction
            .execute(rows(
                "INSERT INTO cn_user.topic_subscriptions (topic_id, subscriber_pubkey, services, status, started_at) VALUES",
                keys.iter().enumerate().map(|(at, key)| {
                    format!("('{}', '{key}', 'relay,index', 'active', {now})", topic_of(at))
                }),
            ))
            .await?;
    }
    transaction.commit().await?;
    let control = Control::open(database, now).await?;
    if control.people().len() != ACCOUNTS {
        bail!("{} accounts were read, not {ACCOUNTS}", control.people().len());
    }
    Ok(Arc::new(control))
}

fn rows(insert: &str, rows: impl Iterator<Item = String>) -> Statement {
    sql(format!("{insert} {}", rows.collect::<Vec<_>>().join(", ")))
}

/// An engine that serves members only, with these policies.
async fn engine(place: &Path, policies: Vec<Box<dyn Policy>>) -> anyhow::Result<Arc<Engine>> {
    let store = Arc::new(LmdbStore::open(place, LmdbOptions::default())?);
    for number in 1..=TOPICS {
        store
            .change_subscription(&TopicId::new_unchecked(&topic(number)), SubscriptionChange::enable(), clock::now())
            .await?;
    }
    let auth = Auth::Required {
        enforce_at: kukuri_domain::Millis(0),
        grace: Duration::ZERO,
        timeout: Duration::from_secs(60),
    };
    let config = EngineConfig {
        admission: Admission::default(),
        auth,
        topics: TopicIntake::Closed,
        rates: None,
        ..EngineConfig::default()
    };
    let recorder = Arc::new(metrics::NoopRecorder);
    let parts = EngineParts { store, finder: None, config, policies, recorder };
    let (engine, _writer) = Engine::start(parts).await?;
    Ok(engine)
}

fn cpu_of_requests(engine: &Engine, client: &Client) -> anyhow::Result<f64> {
    let filters = [Filter::from_json(format!("{{\"#t\":[\"{}\"],\"limit\":50}}", topic(1)))?];
    cpu_of(REQUESTS, || Ok(engine.reads().check(client, ReadKind::Recent, &filters)?))
}

/// Notes that have passed all policies when their signature turns out to be wrong.
fn events() -> Vec<String> {
    let note = |number: usize| {
        let mut note = draft(1, 1).tag(["t", &topic(1)]).content(&format!("note {number}")).sign();
        note.sig = draft(2, 1).sign().sig;
        String::from_utf8_lossy(&note.to_json()).into_owned()
    };
    (0..EVENTS).map(note).collect()
}

async fn cpu_of_events(engine: &Engine, client: &Client, texts: &[String]) -> anyhow::Result<f64> {
    let (queue, _receiver) = client_queue();
    let before = cpu_time();
    for text in texts {
        match engine.intake().submit_event(text, client, &queue).await {
            Submitted::Answered(Err(refused)) if refused.to_string().contains("signature") => {}
            Submitted::Answered(answer) => bail!("an event with a wrong signature was answered {answer:?}"),
            Submitted::Queued => bail!("an event with a wrong signature was queued"),
        }
    }
    Ok((cpu_time() - before) / texts.len() as f64)
}

/// The median of the differences of a figure with the policies and without.
fn differences(measure: impl Fn(bool) -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    let rounds = (0..ROUNDS).map(|_| Ok(measure(true)? - measure(false)?));
    Ok(median(rounds.collect::<anyhow::Result<_>>()?))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Microseconds of CPU for each call.
fn cpu_of(calls: usize, mut call: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let before = cpu_time();
    for _ in 0..calls {
        call()?;
    }
    Ok((cpu_time() - before) / calls as f64)
}

/// CPU time of this thread, in microseconds. Nothing here waits for another thread.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
