//! Starting the relay on its store, reloading what is set, and stopping so that nothing accepted is lost.

use std::{
    fs::{self, File, TryLockError},
    io::IsTerminal,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use kukuri_domain::{PublicKey, topic::TopicsMode};
use kukuri_gossip::Bridge;
use kukuri_relay::{Relay, http, server, upkeep};
use kukuri_search::following::CONSUMER;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{
    config::{self, Flags, Loaded, Settings},
    control::{self, Running},
    key::NodeKey,
    output,
    wiring::{self, gossiping, searching::Searching, stores},
};

/// Clients that do not take their leave are left behind after this.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Files the node needs beside its connections.
const OTHER_FILES: u64 = 64;

pub(crate) fn run(flags: Flags) -> anyhow::Result<()> {
    let loaded = config::load(&flags)?;
    let filter = loaded.settings.log.to_filter();
    let is_watched = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_watched).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(flags, loaded))
}

async fn serve(flags: Flags, loaded: Loaded) -> anyhow::Result<()> {
    let settings = &loaded.settings;
    let data = settings.data.clone();
    let _alone = take_directory(&data)?;
    let store = match stores::for_serving(settings).await {
        Err(error) if stores::is_locked(&error) => bail!(
            "another node runs on {}; stop it first, or choose another directory with --data",
            settings.store_place()
        ),
        opened => opened?,
    };
    // Whoever starts a node says that its clock is right; a rest of days is no jump.
    store.confirm_clock(wiring::now()).await?;
    wiring::check_retention(settings, &*store).await?;
    let key = NodeKey::load_or_make(&data)?;
    allow_connections(settings);
    let signals = Signals::listen()?;
    let listener =
        TcpListener::bind(settings.listen).await.with_context(|| format!("can't listen on {}", settings.listen))?;
    let listening = listener.local_addr()?;
    let public_url = wiring::public_url(settings, listening);
    let config = wiring::relay_config(settings, &public_url, Some(key.public()))?;
    let searching = Searching::start(settings, &store).await?.map(Arc::new);
    let finder = searching.as_ref().map(|searching| searching.finder());
    let (relay, writer) = Relay::start(Arc::clone(&store), finder.clone(), config).await?;
    if let Some(searching) = &searching {
        searching.consumer().on_done(relay.watch_consumer(CONSUMER, searching.status()));
    }
    let bridge = gossiping::start(settings, &relay).await?;
    let upkeep = tokio::spawn(upkeep::keep_in_order(Arc::clone(&relay)));
    let running = Arc::new(Running { relay: Arc::clone(&relay), searching: searching.clone(), bridge: bridge.clone() });
    let commands = tokio::spawn(control::server::serve(control::server::listen(&data)?, running));
    let (stopping, is_stopping) = watch::channel(false);
    let routes = http::routes(Arc::clone(&relay)).merge(wiring::reading::routes(&relay, store, finder, is_stopping));
    let serving = tokio::spawn(server::serve(Arc::clone(&relay), listener, routes));

    announce(settings, &public_url, listening, bridge.as_deref())?;
    let mut writer = writer;
    let reloading = Reloading { flags, loaded, listening, own_key: key.public(), bridge: bridge.clone() };
    tokio::select! {
        () = signals.until_stop(reloading, &relay) => {}
        ended = &mut writer => {
            ended?;
            bail!("the writer ended; see the log for why");
        }
    }

    tracing::info!("stopping");
    stopping.send_replace(true);
    relay.stop();
    tokio::join!(relay.emptied(LEAVE_TIMEOUT), async {
        if let Some(bridge) = &bridge {
            bridge.stop().await;
        }
    });
    commands.abort();
    // Both end because the relay stops.
    let _ = (serving.await, upkeep.await, commands.await);
    control::server::remove(&data);
    drop((relay, bridge));
    if let Some(searching) = searching {
        searching.stop().await;
    }
    // It ends with the last connection; what was accepted is committed whether or not that one has left.
    match tokio::time::timeout(LEAVE_TIMEOUT, writer).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!("some clients did not take their leave"),
    }
    tracing::info!("stopped");
    Ok(())
}

/// One node in a data directory: its key and its control socket are there.
fn take_directory(data: &Path) -> anyhow::Result<File> {
    let at = || data.display().to_string();
    if !data.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data).with_context(at)?;
    }
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

/// The signals a node listens to, from before it says that it is there.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("signals can't be heard");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits until the node is asked to stop; asked to reload, it reads again what is set.
    async fn until_stop(mut self, mut reloading: Reloading, relay: &Relay) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => {
                    if let Err(error) = reloading.reload(relay).await {
                        tracing::error!("the configuration stays as it was: {}", output::one_line(&error));
                    }
                }
            }
        }
    }
}

/// What a reload starts from.
struct Reloading {
    flags: Flags,
    loaded: Loaded,
    listening: SocketAddr,
    own_key: PublicKey,
    bridge: Option<Arc<Bridge>>,
}

impl Reloading {
    async fn reload(&mut self, relay: &Relay) -> anyhow::Result<()> {
        let loaded = config::load(&self.flags)?;
        let changed = self.loaded.changed_keys(&loaded);
        let (waiting, taken_up): (Vec<&str>, Vec<&str>) =
            changed.into_iter().partition(|key| config::needs_restart(key));
        let settings = &loaded.settings;
        wiring::check_retention(settings, relay.store()).await?;
        let public_url = wiring::public_url(settings, self.listening);
        let mut config = wiring::relay_config(settings, &public_url, Some(self.own_key))?;
        if self.loaded.settings.auth == settings.auth {
            // Reading it again is no reason to begin anew.
            config.auth = relay.config().auth;
        }
        allow_connections(settings);
        relay.reconfigure(config);
        if let Some(bridge) = &self.bridge {
            gossiping::reload(settings, bridge);
        }
        tracing::info!(changed = taken_up.join(" "), "configuration reloaded");
        if !waiting.is_empty() {
            tracing::warn!(keys = waiting.join(" "), "these changes wait for a restart");
        }
        self.loaded = loaded;
        Ok(())
    }
}

/// Every connection is an open file: as many are allowed as the system lets us have.
fn allow_connections(settings: &Settings) {
    let wanted = settings.limits.connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(limit.current.unwrap_or(0));
    let set = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum });
    let allowed = if set.is_ok() { raised } else { limit.current.unwrap_or(0) };
    if allowed < wanted {
        tracing::warn!(
            allowed,
            wanted,
            "the system allows fewer open files than limits.connections needs: connections beyond it will fail. \
             Raise it with `ulimit -n` or LimitNOFILE= of systemd, or lower limits.connections"
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
    let mode = match settings.topics.mode {
        TopicsMode::Required => "required: events and filters name topics",
        TopicsMode::Global => "global: any Nostr client works",
    };
    let data = fs::canonicalize(&settings.data).unwrap_or_else(|_| Path::to_owned(&settings.data));
    Ok(output::print(&format!(
        "kukuri-node listens on ws://{listening}\n  \
         known as  {public_url}\n  \
         data      {}\n  \
         store     {}\n  \
         topics    {mode}\n  \
         peers     {peers}\n  \
         try       curl -H 'accept: application/nostr+json' http://{listening}\n",
        data.display(),
        settings.store_place(),
    ))?)
}
