//! Outbox services: each is a sink with a name, figures and a verification. [`RunningService`] runs one behind a consumer,
//! [`Services`] is the list of all that run in a process. Operators see and control every service in the same way.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kukuri_store::{OutboxRow, Seq, Store, StoreError};
use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    consumer::{Consumer, ConsumerSettings},
    handle::Handle,
    lease::LEASE_TTL,
    sink::Sink,
    status::{State, Status},
};

/// A start waits this long for the services to be at work. Rebuilding a large service takes longer, in the background.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// A stop waits this long for the batch at hand. An unfinished batch is applied again at the next start.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// A command waits this long until the consumer, which may be busy with a batch, has obeyed it.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// A verification gives up on a service whose status has not changed for this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Name and purpose of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceInfo {
    /// The consumer's name, such as `index-v1`.
    pub name: &'static str,
    /// One line for operators.
    pub description: &'static str,
}

/// A figure of a service, such as its number of documents. Bytes have a name that ends in `_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// In snake case.
    pub name: &'static str,
    /// The value.
    pub value: u64,
}

/// The result of comparing a service's data with the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// What is compared, in the plural, such as `documents`.
    pub records: &'static str,
    /// Number of records compared.
    pub compared: u64,
    /// Number of differences.
    pub differences: u64,
    /// Some of the differences, one line each.
    pub examples: Vec<String>,
}

/// A failed command to a service.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ServiceError {
    #[error("no service is called `{name}`; the services are: {known}")]
    Unknown { name: String, known: String },
    /// Another process has the lease.
    #[error("another node on this database runs {0}: run this command there, or stop that node first")]
    RunsElsewhere(&'static str),
    #[error("{0} does not follow the outbox: see kukuri-node service status {0}")]
    NotFollowing(&'static str),
    #[error("{0} has no verification")]
    NotVerifiable(&'static str),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

type Result<T, E = ServiceError> = std::result::Result<T, E>;

/// What a crate implements to become a service of the node.
#[async_trait]
pub trait Service: Send + Sync + 'static {
    /// Name and purpose.
    fn info(&self) -> ServiceInfo;

    /// The sink that the consumer feeds.
    fn sink(&self) -> Arc<dyn Sink>;

    /// Settings of the consumer.
    fn consumer_settings(&self) -> ConsumerSettings {
        ConsumerSettings::default()
    }

    /// Figures for `service status`.
    async fn figures(&self) -> Result<Vec<Figure>> {
        Ok(Vec::new())
    }

    /// Compares the service's data with the store. The service has caught up with the outbox before.
    async fn verify(&self) -> Result<Verification> {
        Err(ServiceError::NotVerifiable(self.info().name))
    }
}

/// A service and the consumer that feeds it.
pub struct RunningService {
    service: Arc<dyn Service>,
    consumer: Handle,
}

impl RunningService {
    /// Starts the consumer.
    pub fn start(service: Arc<dyn Service>, store: Arc<dyn Store>) -> Self {
        let consumer = Consumer::start(service.info().name, store, service.sink(), service.consumer_settings());
        Self { service, consumer }
    }

    /// Name and purpose.
    pub fn info(&self) -> ServiceInfo {
        self.service.info()
    }

    /// The consumer's status, as it changes.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.consumer.status()
    }

    /// Calls `hook` with rows soon after their effect is in place. Only the first call has an effect.
    pub fn on_done(&self, hook: impl Fn(&[OutboxRow]) + Send + Sync + 'static) {
        self.consumer.on_done(hook);
    }

    /// Figures of the service.
    pub async fn figures(&self) -> Result<Vec<Figure>> {
        self.service.figures().await
    }

    /// Pauses the service in every process on the store, until `resume`; a restart does not resume it.
    pub async fn pause(&self) -> Result<()> {
        self.consumer.pause().await?;
        let has_ended_work = |status: &Status| matches!(status.state, State::Paused | State::Standby | State::Stopped);
        // The flag is set: a long batch ends in the background.
        let _ = timeout(COMMAND_TIMEOUT, self.status().wait_for(has_ended_work)).await;
        Ok(())
    }

    /// Ends a pause, or retries the row that the service is stuck at.
    pub async fn resume(&self) -> Result<()> {
        self.consumer.resume().await?;
        let _ = timeout(COMMAND_TIMEOUT, self.status().wait_for(|status| status.state != State::Paused)).await;
        Ok(())
    }

    /// Begins a rebuild; ends a pause. The rebuild is complete when `builds` of the status exceeds the returned number.
    pub async fn rebuild(&self) -> Result<u64> {
        let mut status = self.status();
        let has_lease = |status: &Status| !matches!(status.state, State::Starting | State::Standby);
        // After a crash the lease of the dead process may have to run out first.
        if timeout(LEASE_TTL + START_TIMEOUT, status.wait_for(has_lease)).await.is_err() {
            return Err(ServiceError::RunsElsewhere(self.info().name));
        }
        let builds = status.borrow().builds;
        self.consumer.rebuild().await?;
        let has_begun = |status: &Status| {
            status.builds > builds || matches!(status.state, State::Rebuilding { .. } | State::Retrying { .. })
        };
        let _ = timeout(COMMAND_TIMEOUT, status.wait_for(has_begun)).await;
        Ok(builds)
    }

    /// Compares the service's data with the store, once the service has caught up, in this process or another.
    pub async fn verify(&self) -> Result<Verification> {
        let head = self.consumer.store.stats().await?.head;
        self.wait_until_caught_up(head).await?;
        self.service.verify().await
    }

    async fn wait_until_caught_up(&self, head: Seq) -> Result<()> {
        let not_following = || ServiceError::NotFollowing(self.info().name);
        let mut status = self.status();
        loop {
            let Status { state, offset, .. } = status.borrow_and_update().clone();
            if offset >= head && matches!(state, State::Following | State::Standby) {
                return Ok(());
            }
            if state.is_waiting() {
                return Err(not_following());
            }
            let changed = timeout(STALL_TIMEOUT, status.changed()).await.map_err(|_| not_following())?;
            changed.map_err(|_| not_following())?;
        }
    }

    /// Stops the consumer.
    pub async fn stop(&self) {
        if timeout(STOP_TIMEOUT, self.consumer.stop()).await.is_err() {
            let service = self.info().name;
            tracing::warn!(service, "stopped in the middle of a batch; the batch is applied again at the next start");
        }
    }
}

/// The services that run in a process.
#[derive(Default)]
pub struct Services {
    running: Vec<RunningService>,
}

impl Services {
    /// Starts services, and waits a moment for them to be at work.
    pub async fn start(services: Vec<Arc<dyn Service>>, store: &Arc<dyn Store>) -> Self {
        let start = |service| RunningService::start(service, Arc::clone(store));
        let running: Vec<RunningService> = services.into_iter().map(start).collect();
        let deadline = Instant::now() + START_TIMEOUT;
        for service in &running {
            let is_at_work = |status: &Status| {
                matches!(status.state, State::Following | State::Standby) || status.state.is_waiting()
            };
            let _ = timeout_at(deadline, service.status().wait_for(is_at_work)).await;
        }
        Self { running }
    }

    /// All services.
    pub fn iter(&self) -> impl Iterator<Item = &RunningService> {
        self.running.iter()
    }

    /// The service of a name.
    pub fn get(&self, name: &str) -> Result<&RunningService> {
        self.iter().find(|service| service.info().name == name).ok_or_else(|| {
            let names = self.iter().map(|service| service.info().name);
            ServiceError::unknown(name, names)
        })
    }

    /// Stops all services.
    pub async fn stop(&self) {
        for service in &self.running {
            service.stop().await;
        }
    }
}

impl ServiceError {
    /// The error for a name that no service has.
    pub fn unknown(name: &str, known: impl Iterator<Item = &'static str>) -> Self {
        let known: Vec<&str> = known.collect();
        Self::Unknown { name: name.to_owned(), known: known.join(", ") }
    }

    /// A failure of the service's own storage.
    pub fn storage(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Storage(error.into())
    }
}
