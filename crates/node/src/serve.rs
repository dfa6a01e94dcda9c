//! Starts the relay on its store, reloads the configuration on SIGHUP, and stops without losing accepted events.

use std::{
    fs::{self, File, TryLockError},
    io::IsTerminal,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use kukuri_control::setting::Configuration;
use kukuri_domain::{PublicKey, sign::public_key, topic::TopicsMode};
use kukuri_engine::{Engine, EngineParts, upkeep};
use kukuri_gossip::Bridge;
use kukuri_http::{Exporter, HttpFront};
use kukuri_relay::Relay;
use kukuri_search::Finder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};
use tracing_subscriber::EnvFilter;

use crate::{
    admin_socket::{self, AdminContext},
    config::{self, Flags, Loaded, Settings},
    key, output,
    wiring::{
        self,
        bootstrap::{Issuer, ProfileSource},
        http_api::ApiParts,
        search_index,
        services::{self, ServiceParts},
        stores,
    },
};

/// Bound of the wait for clients to close their connections at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Open files that the node needs in addition to its connections.
const OTHER_FILES: u64 = 64;

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let loaded = config::load(&flags, &Configuration::new())?;
    let filter = EnvFilter::new(&loaded.settings.log);
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags, loaded))
}

async fn serve(flags: Flags, loaded: Loaded) -> anyhow::Result<()> {
    let data = loaded.settings.data.clone();
    let _lock = lock_directory(&data)?;
    let store = match stores::for_serving(&loaded.settings).await {
        Err(error) if stores::is_locked(&error) => bail!(
            "another node runs on {}; stop it first, or choose another directory with --data",
            loaded.settings.store_place()
        ),
        opened => opened?,
    };
    let control = wiring::control::for_serving(&loaded.settings).await?;
    let (configure, configured) = watch::channel(control.people().configuration());
    // No key of the console's layer is needed to open the databases.
    let loaded = config::load(&flags, &configured.borrow())?;
    let settings = &loaded.settings;
    wiring::check_retention(settings, &*store).await?;
    wiring::jobs::repeat_deletions(&control, &data).await?;
    let node_key = key::for_nostr(&data)?;
    let own_key = public_key(&node_key);
    raise_open_files_limit(settings);
    let signals = install_signals()?;
    let listen =
        |address: SocketAddr| kukuri_http::listen(address).with_context(|| format!("can't listen on {address}"));
    let listener = listen(settings.listen)?;
    let monitors = settings.metrics.listen.map(listen).transpose()?;
    let listening = listener.local_addr()?;
    let public_url = wiring::public_url(settings, listening);
    let config = wiring::engine_config(settings, &public_url)?;
    let index = search_index::open(settings, settings.postgres.migrate).await?;
    let finder =
        index.as_ref().map(|index| Finder::new(Arc::clone(index), Arc::clone(&store), settings.indexed_kinds()));
    let exporter = Exporter::new();
    let (engine, mut writer) = Engine::start(EngineParts {
        store: Arc::clone(&store),
        finder: finder.clone(),
        config,
        policies: wiring::control::policies(&control),
        recorder: exporter.recorder(),
    })
    .await?;
    engine.observe_clock().await?;
    let parts = ServiceParts { settings, store: Arc::clone(&store), index };
    let (services, service_runtime) = services::start_all(&parts).await?;
    let services = Arc::new(services);
    for service in services.iter() {
        service.on_done(engine.watch_consumer(service.info().name, service.status()));
    }
    let relay = Arc::new(Relay::new(Arc::clone(&engine), settings.relay.info(Some(own_key))));
    let front = Arc::new(HttpFront::new(Arc::clone(&relay), exporter, settings.proxy.trusted_proxy()));
    let bridge = wiring::start_gossip(settings, &engine).await?;
    let upkeep = tokio::spawn(upkeep::run(Arc::clone(&engine)));
    let admin =
        Arc::new(AdminContext { engine: Arc::clone(&engine), services: Arc::clone(&services), bridge: bridge.clone() });
    let commands = tokio::spawn(admin_socket::server::serve(admin_socket::server::listen(&data)?, admin));
    let (stopping, is_stopping) = watch::channel(false);
    let stop_unused = settings.subscriptions.stop_unused;
    let (of_control, of_engine) = (Arc::clone(&control), Arc::clone(&engine));
    let people = wiring::control::follow(of_control, of_engine, stop_unused, configure, is_stopping.clone());
    let people = tokio::spawn(people);
    let jobs = wiring::jobs::start(&control, &engine, &data, &is_stopping);
    let gossip_id = bridge.as_deref().map(|bridge| bridge.address()).transpose()?.map(|address| address.id());
    let profile = ProfileSource::new(own_key, gossip_id, settings, &public_url);
    let issuer = Issuer::new(Arc::clone(&engine), node_key, profile.subscribe());
    let issuer = tokio::spawn(issuer.run());
    let routes = match monitors {
        None => kukuri_http::routes(Arc::clone(&front)),
        Some(listener) => {
            let routes = kukuri_http::monitor_routes(Arc::clone(&front));
            tokio::spawn(kukuri_http::serve_monitors(Arc::clone(&front), listener, routes));
            kukuri_http::routes_without_metrics(Arc::clone(&front))
        }
    };
    let parts = ApiParts {
        settings,
        store,
        finder,
        control: Arc::clone(&control),
        profile: profile.subscribe(),
        stopping: is_stopping,
    };
    let routes = routes.merge(wiring::http_api::routes(&front, parts));
    let serving = tokio::spawn(kukuri_http::serve(Arc::clone(&front), listener, routes));

    announce(settings, &public_url, listening, bridge.as_deref())?;
    let reloader = Reloader { flags, loaded, configured, listening, own_key, profile, bridge: bridge.clone() };
    tokio::select! {
        () = reloader.reload_until_stop(signals, &front, &relay) => {}
        ended = &mut writer => {
            ended?;
            bail!("the writer stopped unexpectedly; the log says why");
        }
    }

    tracing::info!("stopping");
    stopping.send_replace(true);
    engine.stop();
    tokio::join!(relay.wait_until_empty(CLOSE_TIMEOUT), async {
        if let Some(bridge) = &bridge {
            bridge.stop().await;
        }
    });
    commands.abort();
    // Server and upkeep end because the engine stops.
    let _ = (serving.await, upkeep.await, commands.await, people.await, issuer.await);
    for worker in jobs {
        let _ = worker.await;
    }
    // Usage counted for the last events.
    wiring::control::write_usage(&control, false).await;
    control.database().close().await;
    admin_socket::server::remove(&data);
    drop((front, relay, engine, bridge));
    services.stop().await;
    drop(service_runtime);
    // The writer ends with the last connection. Accepted events are committed even if a connection remains.
    match tokio::time::timeout(CLOSE_TIMEOUT, writer).await {
        Ok(ended) => ended?,
        Err(_) => {
            tracing::warn!(timeout = ?CLOSE_TIMEOUT, "some clients did not close their connections; dropping them")
        }
    }
    tracing::info!("stopped");
    Ok(())
}

/// Only one node may use a data directory, which contains its key and its admin socket.
fn lock_directory(data: &Path) -> anyhow::Result<File> {
    let at = || data.display().to_string();
    kukuri_files::create_directory(data, 0o700).with_context(at)?;
    let file =
        File::options().create(true).truncate(false).write(true).open(data.join("node.lock")).with_context(at)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            bail!("another node runs on {}; stop it first, or choose another directory with --data", data.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(at),
    }
}

/// Signal handlers, installed before the node announces itself: a signal's default action would kill the process.
fn install_signals() -> anyhow::Result<[Signal; 3]> {
    let install = |kind| signal(kind).context("can't install signal handlers");
    Ok([install(SignalKind::terminate())?, install(SignalKind::interrupt())?, install(SignalKind::hangup())?])
}

struct Reloader {
    flags: Flags,
    loaded: Loaded,
    /// The console's layer of the configuration (K-7).
    configured: watch::Receiver<Configuration>,
    listening: SocketAddr,
    own_key: PublicKey,
    profile: ProfileSource,
    bridge: Option<Arc<Bridge>>,
}

impl Reloader {
    /// Reloads on SIGHUP, and when a key is set while the node runs; returns on SIGTERM or SIGINT.
    async fn reload_until_stop(mut self, signals: [Signal; 3], front: &HttpFront, relay: &Relay) {
        let [mut terminate, mut interrupt, mut hangup] = signals;
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => {}
                Ok(()) = self.configured.changed() => {}
            }
            if let Err(error) = self.reload(front, relay).await {
                let error = output::one_line(&error);
                tracing::error!("configuration not reloaded, the old one stays in effect: {error}");
            }
        }
    }

    async fn reload(&mut self, front: &HttpFront, relay: &Relay) -> anyhow::Result<()> {
        let loaded = config::load(&self.flags, &self.configured.borrow_and_update())?;
        let changed = self.loaded.changed_keys(&loaded);
        let (need_restart, reloaded): (Vec<&str>, Vec<&str>) =
            changed.into_iter().partition(|key| config::needs_restart(key));
        let settings = &loaded.settings;
        let engine = relay.engine();
        wiring::check_retention(settings, engine.store()).await?;
        let public_url = wiring::public_url(settings, self.listening);
        let mut config = wiring::engine_config(settings, &public_url)?;
        if self.loaded.settings.auth == settings.auth {
            // Without `enforce_at` the old start of enforcement stays; a reload does not restart the grace period.
            config.auth = engine.config().auth;
        }
        raise_open_files_limit(settings);
        front.set_proxy(settings.proxy.trusted_proxy());
        relay.set_info(settings.relay.info(Some(self.own_key)));
        self.profile.reload(settings, &public_url);
        // Last, because it makes every connection read the new configuration.
        engine.reconfigure(config);
        if let Some(bridge) = &self.bridge {
            bridge.set_peers(settings.peer_policy(), &settings.known_peers());
        }
        tracing::info!(changed = reloaded.join(" "), "configuration reloaded");
        if !need_restart.is_empty() {
            tracing::warn!(keys = need_restart.join(" "), "these changes take effect at the next restart");
        }
        self.loaded = loaded;
        Ok(())
    }
}

/// Raises the limit of open files (`RLIMIT_NOFILE`), as every connection needs one.
fn raise_open_files_limit(settings: &Settings) {
    let wanted = settings.limits.connections as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|&current| current < wanted) else { return };
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let set = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum });
    let allowed = if set.is_ok() { raised } else { current };
    if allowed < wanted {
        tracing::warn!(
            allowed,
            wanted,
            "the system allows fewer open files than limits.connections needs: further connections will fail. \
             Raise the limit with `ulimit -n` or LimitNOFILE= of systemd, or lower limits.connections"
        );
    }
}

fn announce(
    settings: &Settings,
    public_url: &str,
    listening: SocketAddr,
    bridge: Option<&Bridge>,
) -> anyhow::Result<()> {
    let peers = match bridge {
        Some(bridge) => bridge.address()?.to_string(),
        None => "none: gossip is off".to_owned(),
    };
    let mode = match settings.topics.mode.0 {
        TopicsMode::Required => "required: events and filters name topics",
        TopicsMode::Global => "global: any Nostr client works",
    };
    let data = fs::canonicalize(&settings.data).unwrap_or_else(|_| Path::to_owned(&settings.data));
    output::print(&format!(
        "kukuri-node listens on ws://{listening}\n  \
         known as  {public_url}\n  \
         data      {}\n  \
         store     {}\n  \
         topics    {mode}\n  \
         peers     {peers}\n  \
         try       curl -H 'accept: application/nostr+json' http://{listening}\n",
        data.display(),
        settings.store_place(),
    ))
}
