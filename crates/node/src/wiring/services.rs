//! The registry of outbox services, used by `serve`, the admin socket and the commands.

use std::sync::Arc;

use anyhow::bail;
use kukuri_outbox::{Service, ServiceError, ServiceInfo, Services};
use kukuri_search::{SearchIndex, index_service};
use kukuri_store::Store;

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

/// Starts all services that are on.
pub(crate) async fn start_all(parts: &ServiceParts<'_>) -> anyhow::Result<Services> {
    let enabled = REGISTRY.iter().filter(|registration| (registration.is_on)(parts.settings));
    let services = enabled.map(|registration| (registration.open)(parts)).collect::<anyhow::Result<_>>()?;
    Ok(Services::start(services, &parts.store).await)
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
