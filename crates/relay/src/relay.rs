//! What all connections share, and what they ask of it.

use std::{
    collections::HashSet,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use kukuri_domain::{
    Admitted, Event, Filter, Origin, PublicKey, Refusal, TopicId, decision,
    subscription::{NodeSubscription, SubscriptionChange},
};
use kukuri_store::{Outcome, Store, StoreError};
use tokio::sync::watch;

use crate::{
    clock,
    config::{RelayConfig, TopicIntake},
    hub::Hub,
    pipeline::Pipeline,
};

/// A running relay.
pub struct Relay {
    pub(crate) config: RelayConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) pipeline: Pipeline,
    pub(crate) connections: AtomicUsize,
    pub(crate) stopping: watch::Sender<bool>,
    enabled: RwLock<HashSet<TopicId>>,
}

/// What the cheap checks say of an event.
pub(crate) enum Screening {
    /// It is answered already.
    Answered(Outcome),
    /// It is new and true: the writer decides.
    New(Admitted),
}

impl Relay {
    /// Starts a relay on a store. The returned handle ends when all accepted work is committed.
    pub async fn start(
        store: Arc<dyn Store>,
        config: RelayConfig,
    ) -> Result<(Arc<Self>, tokio::task::JoinHandle<()>), StoreError> {
        let hub = Arc::new(Hub::default());
        let (pipeline, writer) = Pipeline::start(Arc::clone(&store), Arc::clone(&hub));
        let relay = Arc::new(Self {
            config,
            store,
            hub,
            pipeline,
            connections: AtomicUsize::new(0),
            stopping: watch::Sender::new(false),
            enabled: RwLock::default(),
        });
        // Whoever starts a node says that its clock is right; a rest of days is no jump.
        relay.store.confirm_clock(clock::now()).await?;
        relay.enable_global().await?;
        relay.read_topics().await?;
        Ok((relay, writer))
    }

    /// Asks every connection to end.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The store below.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// A new node takes in `kukuri:global` (T-8).
    async fn enable_global(&self) -> Result<(), StoreError> {
        if self.store.subscriptions().await?.is_empty() {
            self.store.change_subscription(&TopicId::global(), SubscriptionChange::enable(), clock::now()).await?;
        }
        Ok(())
    }

    pub(crate) async fn read_topics(&self) -> Result<(), StoreError> {
        let all = self.store.subscriptions().await?;
        let enabled =
            all.into_iter().filter(|subscription| subscription.enabled).map(|subscription| subscription.topic);
        *self.enabled.write().unwrap_or_else(PoisonError::into_inner) = enabled.collect();
        Ok(())
    }

    fn is_enabled(&self, topic: &TopicId) -> bool {
        self.enabled.read().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }

    /// Everything that can be said of an event before it goes to the writer, in the order of what it costs (E-9).
    pub(crate) async fn screen(&self, json: &str, authenticated: Arc<[PublicKey]>) -> Result<Screening, Refusal> {
        let now = clock::now();
        let admission = &self.config.admission;
        admission.limits.check_text(json.as_bytes())?;
        let screened = admission.screen(Event::from_json(json)?, Origin::Client { authenticated }, now)?;
        screened.check_id()?;
        let id = screened.event().id;
        let known = self.store.recall(&[id], now).await.map_err(|_| Refusal::Failed)?;
        if let Some(state) = known.first().copied().flatten() {
            let refusal = decision::repeat(screened.event(), state, now);
            return Ok(Screening::Answered(refusal.map_or(Outcome::Duplicate, Outcome::Refused)));
        }
        let Err(refusal) = screened.check_enabled(|topic| self.is_enabled(topic)) else {
            return screened.verify().map(Screening::New);
        };
        if matches!(self.config.topics, TopicIntake::Closed) {
            return Err(refusal);
        }
        // Only what somebody really signed opens a topic.
        let admitted = screened.verify()?;
        self.open_topics(admitted.topics()).await.ok_or(refusal)?;
        Ok(Screening::New(admitted))
    }

    /// Enables topics by their first use, if the operator lets that happen and there is room (T-8).
    async fn open_topics(&self, topics: &[TopicId]) -> Option<()> {
        let TopicIntake::Open { most } = self.config.topics else { return None };
        for topic in topics.iter().filter(|topic| !self.is_enabled(topic)) {
            let known = self.store.subscriptions().await.ok()?;
            let this = known.iter().find(|subscription| subscription.topic == *topic);
            let enabled = known.iter().filter(|subscription| subscription.enabled).count();
            if !NodeSubscription::may_open_by_use(this) || enabled >= most {
                return None;
            }
            self.store.change_subscription(topic, SubscriptionChange::open(), clock::now()).await.ok()?;
            self.read_topics().await.ok()?;
        }
        Some(())
    }

    /// Whether these filters may be asked (T-6, W-4), with their limits brought into range.
    pub(crate) fn check_filters(&self, filters: Vec<Filter>) -> Result<Vec<Filter>, String> {
        let limits = &self.config.requests;
        if filters.len() > limits.filters {
            return Err(format!("invalid: more filters than {}", limits.filters));
        }
        for filter in &filters {
            if filter.value_count() > limits.filter_values {
                return Err(format!("invalid: a filter has more values than {}", limits.filter_values));
            }
            self.config.admission.topics.check(filter).map_err(|error| error.to_string())?;
        }
        let clamp = |filter: Filter| {
            let limit = filter.limit().unwrap_or(limits.limit).min(limits.limit);
            filter.with_limit(limit)
        };
        Ok(filters.into_iter().map(clamp).collect())
    }
}
