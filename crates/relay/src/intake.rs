//! Everything that can be said of an event before it goes to the writer, in the order of what it costs (E-9).

use std::{net::IpAddr, num::NonZeroU32, sync::Arc};

use kukuri_domain::{
    Admitted, Event, EventId, Kind, Millis, Origin, PublicKey, Refusal, Source, State,
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
pub enum Refused {
    /// By a rule that holds for every node.
    #[error(transparent)]
    Rule(#[from] Refusal),
    /// Its sender is too fast.
    #[error(transparent)]
    TooFast(#[from] TooFast),
    /// Its sender has to authenticate first (W-7).
    #[error("{AUTHENTICATE}")]
    Unauthenticated,
    /// The operator keeps its author or its kind out.
    #[error("blocked: this author or this kind is not taken in here")]
    Denied,
    /// The node is far behind, and takes in less of each client (O-9).
    #[error("rate-limited: node is behind")]
    Cut,
    /// The node is behind, and takes in no history (O-9).
    #[error("restricted: no history is taken in while the node is behind")]
    Behind,
    /// As many topics are open as may be (T-8).
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
        let screened = match self.screen_text(json, origin, now)? {
            Cheap::Answered(outcome) => return Ok(Cheap::Answered(outcome)),
            Cheap::Unknown(screened) => screened,
        };
        let known = self.store.recall(&[screened.event().id], now).await.map_err(|_| Refusal::Failed)?;
        self.screen_known(screened, known.first().copied().flatten(), now)
    }

    /// What can be said without asking the store.
    fn screen_text(&self, json: &[u8], origin: Origin, now: Millis) -> Result<Cheap, Refused> {
        let config = self.config();
        let admission = &config.admission;
        admission.limits.check_text(json)?;
        let event = Event::from_json(json)?;
        if config.deny.covers_event(&event) {
            return Err(Refused::Denied);
        }
        let mut screened = admission.screen(event, origin, now)?;
        screened.check_id()?;
        if self.ephemeral.contains(&screened.event().id) {
            return Ok(Cheap::Answered(Outcome::Duplicate));
        }
        Ok(Cheap::Unknown(screened))
    }

    /// What follows from what the store knows of it, and from the room there is.
    fn screen_known(&self, screened: Screened, known: Option<State>, now: Millis) -> Result<Cheap, Refused> {
        if let Some(state) = known {
            let refusal = decision::repeat(screened.event(), state, now);
            return Ok(Cheap::Answered(refusal.map_or(Outcome::Duplicate, Outcome::Refused)));
        }
        let (kind, source) = (screened.event().kind, screened.source());
        let level = self.disk_level();
        let loads: Vec<_> = screened.topics().iter().map(|topic| self.topics.load(topic)).collect();
        let node = Load { stage: level.stage(), is_full: level == DiskLevel::Full };
        match capacity::refuse(kind, source, node, &loads) {
            Some(Refusal::Full) => Err(Refusal::DiskFull.into()),
            Some(refusal) => Err(refusal.into()),
            None => {
                self.check_lag(kind, source, &loads)?;
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
        let texts = texts.into_iter().map(|text| (text, Origin::Import)).collect();
        let answers = self.take_in(texts).await;
        answers.into_iter().map(|answer| answer.map_err(|refused| refused.to_string())).collect()
    }

    /// Takes in events that no client sent, in order, each from its own text. Returns when all are durable.
    pub async fn take_in(&self, texts: Vec<(impl AsRef<[u8]>, Origin)>) -> Vec<Result<Outcome, Refused>> {
        let now = clock::now();
        let mut answers: Vec<Option<Result<Outcome, Refused>>> = Vec::with_capacity(texts.len());
        let mut screened = Vec::new();
        for (place, (text, origin)) in texts.into_iter().enumerate() {
            answers.push(match self.screen_text(text.as_ref(), origin, now).and_then(|cheap| self.enabled(cheap)) {
                Ok(Cheap::Answered(outcome)) => Some(Ok(outcome)),
                Ok(Cheap::Unknown(unknown)) => {
                    screened.push((place, unknown));
                    None
                }
                Err(refused) => Some(Err(refused)),
            });
        }
        let ids: Vec<EventId> = screened.iter().map(|(_, screened)| screened.event().id).collect();
        let Ok(known) = self.store.recall(&ids, now).await else {
            return answers.into_iter().map(|answer| answer.unwrap_or(Err(Refusal::Failed.into()))).collect();
        };
        let mut unknown = Vec::with_capacity(screened.len());
        for ((place, screened), known) in screened.into_iter().zip(known) {
            match self.screen_known(screened, known, now) {
                Ok(Cheap::Answered(outcome)) => answers[place] = Some(Ok(outcome)),
                Ok(Cheap::Unknown(screened)) => unknown.push((place, screened)),
                Err(refused) => answers[place] = Some(Err(refused)),
            }
        }
        let mut batch = Vec::with_capacity(unknown.len());
        for (place, verified) in verify_on_all_cores(unknown).await {
            match verified {
                Ok(admitted) => batch.push((place, admitted)),
                Err(refusal) => answers[place] = Some(Err(refusal.into())),
            }
        }
        if !batch.is_empty() {
            let (places, events): (Vec<usize>, Vec<Admitted>) = batch.into_iter().unzip();
            for (place, outcome) in places.into_iter().zip(self.pipeline.submit_batch(events).await) {
                answers[place] = Some(Ok(outcome));
            }
        }
        let failed = || Ok(Outcome::Refused(Refusal::Failed));
        answers.into_iter().map(|answer| answer.unwrap_or_else(failed)).collect()
    }

    /// Whether its topics are enabled, as far as its origin asks for that (T-8).
    fn enabled(&self, cheap: Cheap) -> Result<Cheap, Refused> {
        if let Cheap::Unknown(screened) = &cheap {
            screened.check_enabled(|topic| self.topics.is_enabled(topic))?;
        }
        Ok(cheap)
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
