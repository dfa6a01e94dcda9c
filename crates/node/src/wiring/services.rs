//! The registry of outbox services, used by `serve`, the admin socket and the commands.

use std::{io, sync::Arc};

use anyhow::bail;
use kukuri_outbox::{Service, ServiceError, ServiceInfo, Services};
use kukuri_search::{SearchIndex, index_service};
use kukuri_store::Store;
use tokio::runtime::{Builder, Runtime};

use super::search_index;
use crate::config::{IndexPlace, Settings};

/// The parts of the node that services are made from.
pub(crate) struct ServiceParts<'s> {
    pub(crate) settings: &'s Settings,
    pub(crate) store: Arc<dyn Store>,
    /// `None`: search is off.
    pub(crate) index: Option<Arc<dyn SearchIndex>>,
}

pub(crate) struct Registration {
    pub(crate) info: ServiceInfo,
    pub(crate) is_on: fn(&Settings) -> bool,
    /// Error text while the service is off: names the configuration key.
    pub(crate) off: &'static str,
    /// Opens the service's data. The consumer is not started.
    pub(crate) open: fn(&ServiceParts<'_>) -> anyhow::Result<Arc<dyn Service>>,
}

/// Every service, in the order in which they start. A new service is one entry.
pub(crate) const REGISTRY: &[Registration] = &[Registration {
    info: index_service::INFO,
    is_on: |settings| settings.index_place() != IndexPlace::Off,
    off: "search.index is off",
    open: search_index::service,
}];

impl Registration {
    /// Finds a service by name. Fails if it is off.
    pub(crate) fn find(name: &str, settings: &Settings) -> anyhow::Result<&'static Self> {
        let found = REGISTRY.iter().find(|registration| registration.info.name == name);
        let known = || ServiceError::unknown(name, REGISTRY.iter().map(|registration| registration.info.name));
        let registration = found.ok_or_else(known)?;
        if !(registration.is_on)(settings) {
            bail!("{name} does not run: {}", registration.off);
        }
        Ok(registration)
    }
}

/// The nice value of the thread of the services.
const PRIORITY: i32 = 10;

/// The thread that services run on. It gives way to those that serve clients: publishing does not wait for an index, and a node
/// whose services fall behind for long takes in less (O-9).
pub(crate) struct ServiceRuntime(Option<Runtime>);

impl ServiceRuntime {
    fn start() -> io::Result<Self> {
        let give_way = || {
            // With the usual priority they work as well.
            let _ = rustix::process::nice(PRIORITY);
        };
        let mut runtime = Builder::new_multi_thread();
        runtime.worker_threads(1).thread_name("services").on_thread_start(give_way).enable_all();
        Ok(Self(Some(runtime.build()?)))
    }
}

impl Drop for ServiceRuntime {
    fn drop(&mut self) {
        // Services are stopped before. This is called where nothing may block.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Starts all services that are on.
pub(crate) async fn start_all(parts: &ServiceParts<'_>) -> anyhow::Result<(Services, ServiceRuntime)> {
    let enabled = REGISTRY.iter().filter(|registration| (registration.is_on)(parts.settings));
    let services = enabled.map(|registration| (registration.open)(parts)).collect::<anyhow::Result<_>>()?;
    let (runtime, store) = (ServiceRuntime::start()?, Arc::clone(&parts.store));
    let starting = async move { Services::start(services, &store).await };
    let started = match &runtime.0 {
        Some(runtime) => runtime.spawn(starting).await?,
        None => starting.await,
    };
    Ok((started, runtime))
}

/// Starts one service, for a command without a node.
pub(crate) async fn start_one(
    registration: &Registration,
    settings: &Settings,
    store: &Arc<dyn Store>,
) -> anyhow::Result<Services> {
    let index = search_index::open(settings, settings.postgres.migrate).await?;
    let parts = ServiceParts { settings, store: Arc::clone(store), index };
    Ok(Services::start(vec![(registration.open)(&parts)?], store).await)
}
