//! The control database: SQLite in the data directory, or Postgres.

use std::{
    fs::OpenOptions,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kukuri_control::{
    Control, Database, PostgresSettings,
    people::Refreshed,
    request,
    setting::{self, Configuration},
    subscription,
};
use kukuri_engine::{Engine, policies::Policy};
use kukuri_entitlement::{BanPolicy, MemberPolicy, QuotaPolicy};
use tokio::{sync::watch, time::MissedTickBehavior};

use crate::config::{
    Settings, Switch,
    place::{ControlPlace, PostgresUrl},
};

/// A change by another process counts after this time.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// Open connections are asked again, and topics compared, this often at most, however fast changes come.
const MIN_FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// The topics of members are compared with those of the node at least this often.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(60);
/// It holds personal data and secrets.
const OWNER_ONLY: u32 = 0o600;

/// Opens the control plane of a node. The database is created if there is none.
pub(crate) async fn for_serving(settings: &Settings) -> anyhow::Result<Arc<Control>> {
    open(settings, settings.postgres.migrate, true).await
}

/// Opens the control plane for a command, beside a running node too.
pub(crate) async fn for_command(settings: &Settings) -> anyhow::Result<Arc<Control>> {
    open(settings, Switch::Off, false).await
}

/// Opens the database alone, for a command.
pub(crate) async fn database_for_command(settings: &Settings) -> anyhow::Result<Database> {
    open_database(settings, Switch::Off, false).await
}

/// Opens the database at a place for `copy`. The target's is created.
pub(crate) async fn database_at(place: &ControlPlace, may_create: bool) -> anyhow::Result<Database> {
    let migrate = if may_create { Switch::On } else { Switch::Off };
    open_place(place, migrate, may_create).await
}

/// Keys of the configuration that were set while a node ran; none where there is no control database yet.
pub(crate) async fn configuration(settings: &Settings) -> anyhow::Result<Configuration> {
    if !exists(&settings.control_place()) {
        return Ok(Configuration::new());
    }
    Ok(setting::configuration(&database_for_command(settings).await?).await?)
}

async fn open(settings: &Settings, migrate: Switch, may_create: bool) -> anyhow::Result<Arc<Control>> {
    let database = open_database(settings, migrate, may_create).await?;
    let at = || format!("can't open the control database {}", settings.control_place());
    Ok(Arc::new(Control::open(database, super::now().seconds()).await.with_context(at)?))
}

/// Whether there may be a database: a file that is not there is none.
pub(crate) fn exists(place: &ControlPlace) -> bool {
    !matches!(place, ControlPlace::Sqlite(file) if !file.exists())
}

async fn open_database(settings: &Settings, migrate: Switch, may_create: bool) -> anyhow::Result<Database> {
    open_place(&settings.control_place(), migrate, may_create).await
}

async fn open_place(place: &ControlPlace, migrate: Switch, may_create: bool) -> anyhow::Result<Database> {
    let at = || format!("can't open the control database {place}");
    match place {
        ControlPlace::Sqlite(file) => {
            prepare(file, may_create).with_context(at)?;
            Database::open_sqlite(file).await.with_context(at)
        }
        ControlPlace::Postgres(url) => {
            let settings = PostgresSettings { migrate: migrate == Switch::On };
            Database::connect_postgres(url.with_password(), settings).await.with_context(at)
        }
    }
}

/// Creates or migrates the tables in a Postgres database. Returns the old and the new version.
pub(crate) async fn migrate(url: &PostgresUrl) -> anyhow::Result<(u32, u32)> {
    let migrated = Database::migrate_postgres(url.with_password()).await;
    migrated.with_context(|| format!("can't migrate the control database {url}"))
}

/// Creates the file for its owner only; SQLite gives the files beside it the same mode.
fn prepare(file: &Path, may_create: bool) -> anyhow::Result<()> {
    if !may_create && !file.exists() {
        bail!("there is none yet; a node creates it when it starts");
    }
    OpenOptions::new().create(true).append(true).mode(OWNER_ONLY).open(file)?;
    Ok(())
}

/// The policies that ask for people.
pub(crate) fn policies(control: &Arc<Control>) -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(BanPolicy(Arc::clone(control))),
        Box::new(MemberPolicy(Arc::clone(control))),
        // Last: it counts what the others let pass.
        Box::new(QuotaPolicy::new(Arc::clone(control))),
    ]
}

/// Keeps what is held in memory up to date, and the topics that members subscribe to, and writes what was counted in memory, until the
/// node stops. A change counts on open connections at once. `configuration`: the keys that the node runs with; it is told of new values.
pub(crate) async fn follow(
    control: Arc<Control>,
    engine: Arc<Engine>,
    stop_unused: bool,
    configuration: watch::Sender<Configuration>,
    stopping: watch::Receiver<bool>,
) {
    let writing = write_usage_until_stop(&control, stopping.clone());
    tokio::join!(follow_changes(&control, &engine, stop_unused, configuration, stopping), writing);
}

/// Writes what members use over WebSocket, until the node stops.
async fn write_usage_until_stop(control: &Control, mut stopping: watch::Receiver<bool>) {
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = control.member_usage().write_is_due() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        is_failing = !write_usage(control, is_failing).await;
    }
}

/// Writes what members use over WebSocket. Returns whether that was possible.
pub(crate) async fn write_usage(control: &Control, was_failing: bool) -> bool {
    let written = control.write_member_usage(super::now().seconds()).await;
    if let Err(error) = &written
        && !was_failing
    {
        tracing::error!(%error, "what members use can't be written; it is counted in memory until the next try");
    }
    written.is_ok()
}

/// Keeps what is held in memory up to date, and the topics that members subscribe to. A change counts on open connections at once.
async fn follow_changes(
    control: &Control,
    engine: &Engine,
    stop_unused: bool,
    configuration: watch::Sender<Configuration>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut interval = tokio::time::interval(REFRESH_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut is_failing, mut followed_at) = (false, None::<Instant>);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = control.changed() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        tokio::time::sleep(MIN_FOLLOW_INTERVAL).await;
        let is_due = followed_at.is_none_or(|at| at.elapsed() >= FOLLOW_INTERVAL);
        let followed = follow_once(control, engine, stop_unused, is_due).await;
        configuration.send_if_modified(|known| {
            let set = control.people().configuration();
            let is_changed = *known != set;
            *known = set;
            is_changed
        });
        match followed {
            Ok(has_followed) => {
                if has_followed {
                    followed_at = Some(Instant::now());
                }
                if std::mem::take(&mut is_failing) {
                    tracing::info!("the control database can be read again");
                }
            }
            Err(error) => {
                // `take_refreshed` has consumed the change: the next try compares the topics again.
                followed_at = None;
                if !std::mem::replace(&mut is_failing, true) {
                    let error = crate::output::one_line(&error);
                    tracing::error!(%error, "changes of accounts, policies and subscriptions wait");
                }
            }
        }
    }
}

/// Returns whether the topics were compared.
async fn follow_once(control: &Control, engine: &Engine, stop_unused: bool, is_due: bool) -> anyhow::Result<bool> {
    control.refresh(super::now().seconds()).await?;
    // A request over HTTP may have found the change before.
    let refreshed = control.take_refreshed();
    if refreshed == Refreshed::Changed {
        engine.recheck_clients();
    }
    if refreshed == Refreshed::Same && !is_due {
        return Ok(false);
    }
    let database = control.database();
    engine.follow_members(&subscription::wanted(database, super::now().seconds()).await?, stop_unused).await?;
    for topic in request::waiting_topics(database).await? {
        // One that an operator has disabled stays so, and its request approved.
        if engine.is_topic_enabled(&topic) {
            request::taken_in(database, &topic).await?;
        }
    }
    Ok(true)
}
