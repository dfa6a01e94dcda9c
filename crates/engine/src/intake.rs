//! The one sequence of checks that every event passes on its way to the writer, whatever its origin, in the order of what
//! the checks cost (E-9):
//!
//! 1. `screen_submission`: policies on the text, limits, parsing, policies on the event, the domain's rules, the id
//! 2. `answer_known`: an id that is known here is answered by its state; others pass the policies for new events
//! 3. `verify_signatures`: the signature, the one step that costs
//!
//! Then a client's event may enable topics by their first use (`open_topics`, T-8), and is queued for the writer; a batch
//! of other origins is written as a whole.

use std::{collections::HashSet, num::NonZeroU32, sync::Arc};

use kukuri_domain::{
    Admitted, Event, Filter, Kind, Origin, Refusal, Source, State, TopicId, Viewer,
    admission::Screened,
    capacity::{self, Load},
    decision,
};
use kukuri_store::{Outcome, Query, StoreError, report::total};

use crate::{
    config::TopicIntake,
    disk::DiskLevel,
    engine::Shared,
    live::ClientQueue,
    policies::{Client, Context, rates::Act},
    refused::PublishRefused,
    writer::WriterHandle,
};

/// Takes events in.
#[derive(Clone)]
pub struct Intake {
    pub(crate) shared: Arc<Shared>,
    pub(crate) writer: WriterHandle,
}

/// How far an event has come.
#[allow(clippy::large_enum_variant, reason = "most events become the largest one")]
enum IntakeStep {
    Answered(Result<Outcome, PublishRefused>),
    Screened(Screened, TopicState),
    Admitted(Admitted, TopicState),
}

/// Whether the topics of an event are enabled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TopicState {
    Enabled,
    /// A client's event may open them.
    ToOpen,
}

/// The result of submitting a client's event.
#[derive(Debug)]
pub enum Submitted {
    /// It waits for the writer; the answer comes through the client's queue.
    Queued,
    /// It is answered already.
    Answered(Result<Outcome, PublishRefused>),
}

impl Intake {
    /// Takes in an event of a client.
    pub async fn submit_event(&self, json: &str, client: &Client, answer: &Arc<ClientQueue>) -> Submitted {
        let origin = Origin::Client { authenticated: Arc::clone(&client.keys) };
        if self.shared.store.is_remote() {
            return self.submit_in_background(json, origin, client, answer);
        }
        let step = self.admit([(json.as_bytes(), origin)], Some(client)).await.pop();
        self.submit_admitted(step, client, answer).await
    }

    /// Screens an event, and does the rest in a task of its own: the client's next events do not wait for the look-up of this one.
    fn submit_in_background(
        &self,
        json: &str,
        origin: Origin,
        client: &Client,
        answer: &Arc<ClientQueue>,
    ) -> Submitted {
        let config = self.shared.config.load_full();
        let screened = self.screen_submission(&self.shared.context(&config), json.as_bytes(), origin, Some(client));
        let id = match &screened {
            IntakeStep::Screened(screened, _) => screened.event().id,
            _ => return Submitted::of_unwritten(screened),
        };
        let (intake, client, answer, mut turn) = (self.clone(), client.clone(), Arc::clone(answer), answer.take_turn());
        tokio::spawn(async move {
            let mut batch = vec![screened];
            intake.answer_known(&intake.shared.context(&config), &mut batch, Some(&client)).await;
            let step = verify_signatures(batch).await.pop();
            turn.wait().await;
            if let Submitted::Answered(answered) = intake.submit_admitted(step, &client, &answer).await {
                intake.count_answered(&answered);
                match answered {
                    Ok(outcome) => answer.push_answer(id, outcome),
                    Err(refused) => answer.push_refusal(id, refused),
                }
            }
        });
        Submitted::Queued
    }

    /// Queues an event for the writer, if it was admitted.
    async fn submit_admitted(&self, step: Option<IntakeStep>, client: &Client, answer: &Arc<ClientQueue>) -> Submitted {
        let (admitted, topics) = match step {
            Some(IntakeStep::Admitted(admitted, topics)) => (admitted, topics),
            Some(unwritten) => return Submitted::of_unwritten(unwritten),
            None => return Submitted::Answered(Err(Refusal::Failed.into())),
        };
        // By a verified author: nobody can use up the rate of another one.
        if let Err(refused) = self.shared.rates.check_permanent(admitted.event(), client.ip) {
            return Submitted::Answered(Err(refused.into()));
        }
        let config = self.shared.config.load_full();
        let context = self.shared.context(&config);
        if let Err(refused) =
            self.shared.policies.ask(|policy| policy.check_admitted(&context, client, admitted.event()))
        {
            return Submitted::Answered(Err(refused));
        }
        if topics == TopicState::ToOpen
            && let Err(refused) = self.open_topics(&admitted, client).await
        {
            return Submitted::Answered(Err(refused));
        }
        self.writer.enqueue(admitted, Arc::clone(answer)).await;
        Submitted::Queued
    }

    /// Counts the answer to a client's event that did not reach the writer.
    pub fn count_answered(&self, answered: &Result<Outcome, PublishRefused>) {
        match answered {
            Ok(outcome) => self.shared.metrics.count_outcome(outcome),
            Err(refused) => self.shared.metrics.count_refused(refused),
        }
    }

    /// Takes in events of other origins than clients, in order. Returns when all are durable.
    pub async fn submit_batch(&self, texts: Vec<(impl AsRef<[u8]>, Origin)>) -> Vec<Result<Outcome, PublishRefused>> {
        let submissions = texts.iter().map(|(text, origin)| (text.as_ref(), origin.clone()));
        let progress = self.admit(submissions, None).await;
        let admitted: Vec<Admitted> = progress.iter().filter_map(IntakeStep::admitted).cloned().collect();
        let written = if admitted.is_empty() { Vec::new() } else { self.writer.write_all(admitted).await };
        let mut written = written.into_iter();
        let answer = |progress| match progress {
            IntakeStep::Answered(answered) => answered,
            IntakeStep::Admitted(..) => Ok(written.next().unwrap_or(Outcome::Refused(Refusal::Failed))),
            IntakeStep::Screened(..) => Ok(Outcome::Refused(Refusal::Failed)),
        };
        progress.into_iter().map(answer).collect()
    }

    /// The sequence, for texts of one client or of other origins.
    async fn admit<'t>(
        &self,
        texts: impl IntoIterator<Item = (&'t [u8], Origin)>,
        client: Option<&Client>,
    ) -> Vec<IntakeStep> {
        let config = self.shared.config.load_full();
        let context = self.shared.context(&config);
        let screen = |(text, origin)| self.screen_submission(&context, text, origin, client);
        let mut batch: Vec<IntakeStep> = texts.into_iter().map(screen).collect();
        self.answer_known(&context, &mut batch, client).await;
        verify_signatures(batch).await
    }

    /// Everything that can be said of an event without the store.
    fn screen_submission(
        &self,
        context: &Context<'_>,
        text: &[u8],
        origin: Origin,
        client: Option<&Client>,
    ) -> IntakeStep {
        let screen = || -> Result<Screened, PublishRefused> {
            if let Some(client) = client {
                self.shared.policies.ask(|policy| policy.check_event_text(context, client, text.len()))?;
            }
            let admission = &context.config.admission;
            admission.limits.check_text(text)?;
            let event = Event::from_json(text)?;
            self.shared.policies.ask(|policy| policy.check_event(context, &event, &origin))?;
            let mut screened = admission.screen(event, origin, context.now)?;
            screened.check_id()?;
            Ok(screened)
        };
        match screen() {
            // An ephemeral event is not stored; its repeats are known here (E-5).
            Ok(screened) if self.shared.ephemeral.contains(&screened.event().id) => {
                IntakeStep::Answered(Ok(Outcome::Duplicate))
            }
            Ok(screened) => IntakeStep::Screened(screened, TopicState::Enabled),
            Err(refused) => IntakeStep::Answered(Err(refused)),
        }
    }

    /// Answers events whose id is known here, and asks the policies about the others.
    async fn answer_known(&self, context: &Context<'_>, batch: &mut [IntakeStep], client: Option<&Client>) {
        let ids: Vec<_> = batch.iter().filter_map(IntakeStep::screened).map(|screened| screened.event().id).collect();
        if ids.is_empty() {
            return;
        }
        let Ok(known) = self.shared.store.known_states(&ids, context.now).await else {
            let undecided = batch.iter_mut().filter(|progress| progress.screened().is_some());
            return undecided.for_each(|progress| *progress = IntakeStep::Answered(Err(Refusal::Failed.into())));
        };
        let Ok(mut holding) = self.read_holding_topics(batch, &known).await else {
            let undecided = batch.iter_mut().filter(|progress| progress.screened().is_some());
            return undecided.for_each(|progress| *progress = IntakeStep::Answered(Err(Refusal::Failed.into())));
        };
        let mut known = known.into_iter();
        for progress in batch {
            let IntakeStep::Screened(screened, topics) = progress else { continue };
            let answered = match known.next().flatten() {
                Some(state) => {
                    let refusal = decision::repeat(screened.event(), state, context.now);
                    Ok(refusal.map_or(Outcome::Duplicate, Outcome::Refused))
                }
                None => match self.check_new(context, screened, client, &mut holding).await {
                    Ok(state) => {
                        *topics = state;
                        continue;
                    }
                    Err(refused) => Err(refused),
                },
            };
            *progress = IntakeStep::Answered(answered);
        }
    }

    /// Of the topics that new events name and that are not enabled: those that hold events. Asked for events whose answer
    /// depends on it; memory knows only which topics are enabled.
    async fn read_holding_topics(
        &self,
        batch: &[IntakeStep],
        known: &[Option<State>],
    ) -> Result<HashSet<TopicId>, StoreError> {
        let new = batch.iter().filter_map(IntakeStep::screened).zip(known).filter(|(_, known)| known.is_none());
        let depends = |screened: &Screened| match screened.source() {
            Source::Client => screened.event().kind == Kind::DELETION,
            Source::Gossip | Source::Sync => screened.makes_topics_known(),
            Source::Import | Source::Node => false,
        };
        let named = new.filter(|(screened, _)| depends(screened)).flat_map(|(screened, _)| screened.topics());
        let mut asked: Vec<TopicId> = named.filter(|topic| !self.shared.topics.is_enabled(topic)).cloned().collect();
        if asked.is_empty() {
            return Ok(HashSet::new());
        }
        asked.sort_unstable();
        asked.dedup();
        let found = self.shared.store.topic_stats(&asked).await?;
        let holding = found.into_iter().flatten().filter(|stats| total(&stats.by_class).events > 0);
        Ok(holding.map(|stats| stats.topic).collect())
    }

    /// Policies for a new event, and whether its topics are enabled or hold events.
    async fn check_new(
        &self,
        context: &Context<'_>,
        screened: &Screened,
        client: Option<&Client>,
        holding: &mut HashSet<TopicId>,
    ) -> Result<TopicState, PublishRefused> {
        self.shared.policies.ask(|policy| policy.check_new_event(context, screened, client))?;
        self.check_newcomer(context, screened).await?;
        let is_enabled = |topic: &TopicId| self.shared.topics.is_enabled(topic);
        match screened.check_enabled(is_enabled, |topic| holding.contains(topic)) {
            Ok(()) => {}
            Err(_) if client.is_some() && matches!(context.config.topics, TopicIntake::Open { .. }) => {
                return Ok(TopicState::ToOpen);
            }
            Err(refusal) => return Err(refusal.into()),
        }
        if let Origin::Gossip { peer, .. } | Origin::Sync { peer } = screened.origin()
            && screened.makes_topics_known()
        {
            let is_unknown = |topic: &&TopicId| !is_enabled(topic) && !holding.contains(*topic);
            let unknown: Vec<TopicId> = screened.topics().iter().filter(is_unknown).cloned().collect();
            if let Some(count) = u32::try_from(unknown.len()).ok().and_then(NonZeroU32::new) {
                self.shared.rates.check_new_topics(count, *peer)?;
                // The next event of the batch finds them known.
                holding.extend(unknown);
            }
        }
        Ok(TopicState::Enabled)
    }

    /// With a full disk a request is taken in only from an author with another event here (P-6).
    async fn check_newcomer(&self, context: &Context<'_>, screened: &Screened) -> Result<(), PublishRefused> {
        let node = Load { is_disk_full: self.shared.disk.level() == DiskLevel::Full, ..Load::default() };
        let event = screened.event();
        let Some(refusal) = capacity::refuse_newcomer(event.kind, screened.source(), node, &[]) else { return Ok(()) };
        let by_author = Filter::new().with_authors([event.pubkey]).with_limit(1);
        let found = self.shared.store.query(&Query::of(by_author, Viewer::Node, context.now)).await;
        let has_event = found.map(|answer| !answer.events.is_empty()).map_err(|error| {
            tracing::error!(%error, "can't look up the author of a request; it is refused");
            Refusal::Failed
        })?;
        if has_event { Ok(()) } else { Err(refusal.into()) }
    }

    /// Enables topics by their first use (T-8): all that an event names, one that a deletion request names (T-9).
    async fn open_topics(&self, admitted: &Admitted, client: &Client) -> Result<(), PublishRefused> {
        let author = [admitted.event().pubkey];
        let topics = match admitted.event().kind {
            Kind::DELETION => {
                self.shared.topics.first_open(admitted.topics()).map(std::slice::from_ref).unwrap_or(admitted.topics())
            }
            _ => admitted.topics(),
        };
        // An event may name many topics: each counts.
        for _ in topics.iter().filter(|topic| !self.shared.topics.is_enabled(topic)) {
            self.shared.rates.check(Act::OpenTopic, client.ip, &author)?;
        }
        let config = self.shared.config.load_full();
        let opened = self.shared.topics.open(topics, &config.topics, &*self.shared.store).await?;
        self.shared.metrics.topics_opened.increment(opened as u64);
        Ok(())
    }
}

impl Submitted {
    /// The answer to an event that does not go to the writer.
    fn of_unwritten(step: IntakeStep) -> Self {
        match step {
            IntakeStep::Answered(answered) => Self::Answered(answered),
            IntakeStep::Screened(..) | IntakeStep::Admitted(..) => Self::Answered(Err(Refusal::Failed.into())),
        }
    }
}

impl IntakeStep {
    fn screened(&self) -> Option<&Screened> {
        match self {
            Self::Screened(screened, _) => Some(screened),
            _ => None,
        }
    }

    fn admitted(&self) -> Option<&Admitted> {
        match self {
            Self::Admitted(admitted, _) => Some(admitted),
            _ => None,
        }
    }

    fn verified(self) -> Self {
        match self {
            Self::Screened(screened, topics) => match screened.verify() {
                Ok(admitted) => Self::Admitted(admitted, topics),
                Err(refusal) => Self::Answered(Err(refusal.into())),
            },
            other => other,
        }
    }
}

/// Verifies signatures. One is verified on the spot, which keeps a client's events in order; many are spread over all
/// cores.
async fn verify_signatures(mut batch: Vec<IntakeStep>) -> Vec<IntakeStep> {
    if batch.len() == 1 {
        return batch.into_iter().map(IntakeStep::verified).collect();
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = batch.len().div_ceil(cores).max(1);
    let mut shares = Vec::with_capacity(cores);
    while !batch.is_empty() {
        let rest = batch.split_off(share.min(batch.len()));
        let count = batch.len();
        let verify = move || batch.into_iter().map(IntakeStep::verified).collect::<Vec<_>>();
        shares.push((count, tokio::task::spawn_blocking(verify)));
        batch = rest;
    }
    for (count, verified) in shares {
        let failed = || (0..count).map(|_| IntakeStep::Answered(Err(Refusal::Failed.into()))).collect();
        batch.extend(verified.await.unwrap_or_else(|_| failed()));
    }
    batch
}

#[cfg(test)]
mod tests {
    use kukuri_domain::{Millis, subscription::SubscriptionChange};
    use kukuri_store::{Seq, Store, StoreRules, conformance::faulty::FaultyStore, model::ModelStore};
    use kukuri_testing::{as_json, draft, note};

    use super::*;
    use crate::{
        config::EngineConfig,
        engine::{Engine, EngineParts},
        live::{Outgoing, client_queue},
    };

    #[tokio::test]
    async fn events_that_are_looked_up_together_reach_the_writer_in_their_order() {
        // E-9, on a store over a network
        let store: Arc<dyn Store> = Arc::new(FaultyStore::remote(Arc::new(ModelStore::new(StoreRules::default()))));
        let topic = TopicId::new_unchecked(kukuri_testing::TOPIC);
        store.change_subscription(&topic, SubscriptionChange::enable(), Millis(1)).await.unwrap();
        let (policies, recorder) = (Vec::new(), Arc::new(metrics::NoopRecorder));
        let config = EngineConfig { topics: TopicIntake::Closed, ..EngineConfig::default() };
        let parts = EngineParts { store: Arc::clone(&store), finder: None, config, policies, recorder };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        let client = Client { ip: [192, 0, 2, 1].into(), keys: Arc::default(), connected_at: Millis(1) };
        let (queue, mut receiver) = client_queue();
        let notes: Vec<_> = (0..40).map(|number| note(1, &format!("note {number}")).sign()).collect();
        let (mut sent, mut queued) = (Vec::new(), 0);
        for (number, event) in notes.iter().enumerate() {
            sent.push(event.id);
            let mut texts = vec![as_json(event).to_string()];
            // A copy, and an event of a topic that is not enabled.
            texts.extend((number % 5 == 0).then(|| as_json(event).to_string()));
            let elsewhere = draft(1, 1).tag(["t", &kukuri_testing::topic(9)]).content(&number.to_string()).sign();
            texts.extend((number % 7 == 0).then(|| as_json(&elsewhere).to_string()));
            for text in texts {
                match engine.intake().submit_event(&text, &client, &queue).await {
                    Submitted::Queued => queued += 1,
                    Submitted::Answered(answered) => panic!("{answered:?}"),
                }
            }
        }
        let (mut stored, mut copies, mut refused) = (0, 0, 0);
        for _ in 0..queued {
            match receiver.next().await {
                Outgoing::Answer(_, Outcome::Stored) => stored += 1,
                Outgoing::Answer(_, Outcome::Duplicate) => copies += 1,
                Outgoing::Answer(_, Outcome::Refused(_)) | Outgoing::Refused(..) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((stored, copies, refused), (40, 8, 6));
        let rows = store.outbox(Seq::default(), 100).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.event_id).collect::<Vec<_>>(), sent);
        engine.stop();
    }
}
