//! Everything that can be said of an event before it goes to the writer, in the order of what it costs (E-9).

use std::{net::IpAddr, num::NonZeroU32, sync::Arc};

use kukuri_domain::{
    Admitted, Event, Kind, Millis, Origin, PublicKey, Refusal, Source,
    admission::Screened,
    capacity::{self, Load, TopicLoad},
    decision,
};
use kukuri_store::Outcome;

use crate::{
    clock,
    consumers::Lag,
    disk::DiskLevel,
    rates::{Act, Counted, TooFast, weight_of},
    relay::Relay,
    topics::NotOpened,
};

/// Who sends.
pub(crate) struct Sender {
    pub(crate) ip: IpAddr,
    pub(crate) keys: Arc<[PublicKey]>,
    /// Whether it has to authenticate first (W-7).
    pub(crate) is_unknown: bool,
}

/// What the cheap checks say of an event.
pub(crate) enum Screening {
    /// It is answered already.
    Answered(Outcome),
    /// It is new and true: the writer decides.
    New(Admitted),
}

/// Why an event was turned away before the writer saw it. The text is the message of `OK false`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Rule(#[from] Refusal),
    #[error(transparent)]
    TooFast(#[from] TooFast),
    #[error("{AUTHENTICATE}")]
    Unauthenticated,
    #[error("blocked: this author or this kind is not taken in here")]
    Denied,
    #[error("rate-limited: node is behind")]
    Cut,
    #[error("restricted: no history is taken in while the node is behind")]
    Behind,
    #[error("restricted: this node takes in no more topics than topics.max = {0}")]
    TooManyTopics(usize),
}

/// What an event of a client counts as while the node is far behind.
const CUT: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// What a client hears that has to authenticate first.
pub(crate) const AUTHENTICATE: &str = "auth-required: this relay serves authenticated clients only";

impl Refused {
    /// The machine-readable word before the colon.
    pub(crate) fn prefix(&self) -> &'static str {
        match self {
            Self::Rule(refusal) => refusal.prefix(),
            Self::TooFast(_) | Self::Cut => "rate-limited",
            Self::Unauthenticated => "auth-required",
            Self::Denied => "blocked",
            Self::TooManyTopics(_) | Self::Behind => "restricted",
        }
    }
}

impl Relay {
    /// For an event of a client.
    pub(crate) async fn screen(&self, json: &str, sender: &Sender) -> Result<Screening, Refused> {
        if sender.is_unknown {
            return Err(Refused::Unauthenticated);
        }
        let who = Counted { ip: sender.ip, keys: &sender.keys };
        self.check_pace(json, who)?;
        let origin = Origin::Client { authenticated: Arc::clone(&sender.keys) };
        let screened = match self.screen_cheaply(json.as_bytes(), origin, clock::now()).await? {
            Cheap::Answered(outcome) => return Ok(Screening::Answered(outcome)),
            Cheap::Unknown(screened) => screened,
        };
        let Err(refusal) = screened.check_enabled(|topic| self.topics.is_enabled(topic)) else {
            return Ok(Screening::New(screened.verify()?));
        };
        // Only what somebody really signed opens a topic.
        let admitted = screened.verify()?;
        self.open_topics(&admitted, who, refusal).await?;
        Ok(Screening::New(admitted))
    }

    /// Counts an event of a client. While the node is far behind each counts as several (O-9).
    fn check_pace(&self, json: &str, who: Counted<'_>) -> Result<(), Refused> {
        let weight = weight_of(json.len());
        if self.lag() < Lag::Cutting {
            return Ok(self.check_weighed(Act::Publish, weight, who)?);
        }
        self.check_weighed(Act::Publish, weight.saturating_mul(CUT), who).map_err(|_| Refused::Cut)
    }

    /// Enables topics by their first use (T-8).
    async fn open_topics(&self, admitted: &Admitted, who: Counted<'_>, refusal: Refusal) -> Result<(), Refused> {
        let config = self.config();
        let author = [admitted.event().pubkey];
        let opener = Counted { ip: who.ip, keys: &author };
        if matches!(config.topics, crate::config::TopicIntake::Closed) {
            return Err(refusal.into());
        }
        // An event may name many: each counts.
        for _ in admitted.topics().iter().filter(|topic| !self.topics.is_enabled(topic)) {
            self.check_rate(Act::OpenTopic, opener)?;
        }
        match self.topics.open(admitted.topics(), &config.topics, &*self.store).await {
            Ok(opened) => {
                (0..opened).for_each(|_| self.metrics.topic_opened());
                Ok(())
            }
            Err(NotOpened::Closed) => Err(refusal.into()),
            Err(NotOpened::TooMany(most)) => Err(Refused::TooManyTopics(most)),
            Err(NotOpened::Failed) => Err(Refusal::Failed.into()),
        }
    }

    /// For an event of any origin: everything but its signature and whether its topics are enabled.
    async fn screen_cheaply(&self, json: &[u8], origin: Origin, now: Millis) -> Result<Cheap, Refused> {
        let config = self.config();
        let admission = &config.admission;
        admission.limits.check_text(json)?;
        let event = Event::from_json(json)?;
        if config.deny.covers_event(&event) {
            return Err(Refused::Denied);
        }
        let source = origin.source();
        let screened = admission.screen(event, origin, now)?;
        screened.check_id()?;
        let id = screened.event().id;
        if self.ephemeral.contains(&id) {
            return Ok(Cheap::Answered(Outcome::Duplicate));
        }
        let known = self.store.recall(&[id], now).await.map_err(|_| Refusal::Failed)?;
        if let Some(state) = known.first().copied().flatten() {
            let refusal = decision::repeat(screened.event(), state, now);
            return Ok(Cheap::Answered(refusal.map_or(Outcome::Duplicate, Outcome::Refused)));
        }
        let level = self.disk_level();
        let loads: Vec<_> = screened.topics().iter().map(|topic| self.topics.load(topic)).collect();
        let node = Load { stage: level.stage(), is_full: level == DiskLevel::Full };
        match capacity::refuse(screened.event().kind, source, node, &loads) {
            Some(Refusal::Full) => Err(Refusal::DiskFull.into()),
            Some(refusal) => Err(refusal.into()),
            None => {
                self.check_lag(screened.event().kind, source, &loads)?;
                Ok(Cheap::Unknown(screened))
            }
        }
    }

    /// Those who follow the outbox are behind: less is taken in, as if room were short (O-9).
    fn check_lag(&self, kind: Kind, source: Source, topics: &[TopicLoad]) -> Result<(), Refused> {
        let node = Load { stage: self.lag().stage(), is_full: false };
        match capacity::refuse(kind, source, node, topics) {
            Some(Refusal::LiveOnly) => Err(Refused::Behind),
            Some(refusal) => Err(refusal.into()),
            None => Ok(()),
        }
    }

    /// Takes in events of the operator, in order, each from its own text. Returns when all are durable. What follows from
    /// them is waited for, as long as that comes nearer (O-9).
    pub async fn import(&self, texts: Vec<Vec<u8>>) -> Vec<Result<Outcome, String>> {
        self.look_at_consumers();
        self.wait_for_consumers().await;
        let now = clock::now();
        let mut answers: Vec<Option<Result<Outcome, String>>> = Vec::with_capacity(texts.len());
        let mut unknown = Vec::new();
        for (place, text) in texts.iter().enumerate() {
            answers.push(match self.screen_cheaply(text, Origin::Import, now).await {
                Ok(Cheap::Answered(outcome)) => Some(Ok(outcome)),
                Ok(Cheap::Unknown(screened)) => {
                    unknown.push((place, screened));
                    None
                }
                Err(refused) => Some(Err(refused.to_string())),
            });
        }
        let mut batch = Vec::with_capacity(unknown.len());
        for (place, verified) in verify_on_all_cores(unknown).await {
            match verified {
                Ok(admitted) => batch.push((place, admitted)),
                Err(refusal) => answers[place] = Some(Err(refusal.to_string())),
            }
        }
        let (places, events): (Vec<usize>, Vec<Admitted>) = batch.into_iter().unzip();
        for (place, outcome) in places.into_iter().zip(self.pipeline.submit_batch(events).await) {
            answers[place] = Some(Ok(outcome));
        }
        let failed = || Ok(Outcome::Refused(Refusal::Failed));
        answers.into_iter().map(|answer| answer.unwrap_or_else(failed)).collect()
    }
}

#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Cheap {
    Answered(Outcome),
    Unknown(Screened),
}

/// Signatures cost more than all the rest: they are checked on every core.
async fn verify_on_all_cores(unknown: Vec<(usize, Screened)>) -> Vec<(usize, Result<Admitted, Refusal>)> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = unknown.len().div_ceil(cores).max(1);
    let mut rest = unknown.into_iter().peekable();
    let mut parts = Vec::new();
    while rest.peek().is_some() {
        let part: Vec<_> = rest.by_ref().take(share).collect();
        parts.push(tokio::task::spawn_blocking(move || {
            part.into_iter().map(|(place, screened)| (place, screened.verify())).collect::<Vec<_>>()
        }));
    }
    let mut verified = Vec::new();
    for part in parts {
        verified.extend(part.await.unwrap_or_default());
    }
    verified
}
