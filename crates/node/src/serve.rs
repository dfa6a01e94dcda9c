//! Starting the relay on its store, and stopping it so that nothing accepted is lost.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use kukuri_domain::{Admission, Limits, retention::Retention, topic::TopicRules, vanish::RelayUrls};
use kukuri_relay::{
    Relay, RelayConfig,
    config::{Info, RequestLimits, TopicIntake},
    http, upkeep,
};
use kukuri_store_lmdb::{LmdbOptions, LmdbStore};
use tokio::{net::TcpListener, signal::unix::SignalKind};

use crate::config::{Loaded, Settings};

/// Clients that do not take their leave are left behind after this.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(loaded: Loaded) -> anyhow::Result<()> {
    let filter = loaded.settings.log.to_filter();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(&loaded.settings))
}

async fn serve(settings: &Settings) -> anyhow::Result<()> {
    let store = LmdbStore::open(settings.store_path(), LmdbOptions::default())?;
    let listener =
        TcpListener::bind(settings.listen).await.with_context(|| format!("can't listen on {}", settings.listen))?;
    let address = listener.local_addr()?;
    let public_url =
        settings.public_url.as_ref().map_or_else(|| format!("ws://{address}"), |url| url.as_str().to_owned());
    let mode = settings.topics.mode;
    let config = RelayConfig {
        admission: Admission {
            limits: Limits::default(),
            topics: TopicRules::new(mode, &[] as &[&str])?,
            relay_urls: RelayUrls::new(&[&public_url]),
        },
        info: Info::default(),
        requests: RequestLimits::default(),
        topics: TopicIntake::default(),
        retention: Retention::default(),
    };
    let (relay, writer) = Relay::start(Arc::new(store), config).await?;
    let upkeep = tokio::spawn(upkeep::keep_in_order(Arc::clone(&relay)));

    announce(&format!(
        "kukuri-node listens on {public_url}\n  data    {}\n  topics  {mode:?}\n  try     websocat {public_url} <<< '[\"REQ\",\"hello\",{{\"#t\":[\"kukuri:global\"]}}]'",
        settings.data.display(),
    ));
    let stopper = Arc::clone(&relay);
    let routes = http::routes(Arc::clone(&relay));
    axum::serve(listener, routes)
        .with_graceful_shutdown(async move {
            asked_to_stop().await;
            tracing::info!("stopping");
            stopper.stop();
        })
        .await?;

    let deadline = tokio::time::Instant::now() + LEAVE_TIMEOUT;
    while relay.connections() > 0 && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    upkeep.await?;
    drop(relay);
    // It ends with the last connection; what was accepted is committed whether or not that one has left.
    match tokio::time::timeout(LEAVE_TIMEOUT, writer).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!("some clients did not take their leave"),
    }
    tracing::info!("stopped");
    Ok(())
}

async fn asked_to_stop() {
    let terminate = async {
        match tokio::signal::unix::signal(SignalKind::terminate()) {
            Ok(mut signal) => {
                signal.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminate => {}
    }
}

#[allow(clippy::print_stdout, reason = "this is what a person reads after starting the node")]
fn announce(text: &str) {
    println!("{text}");
}
