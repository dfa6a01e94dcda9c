//! EVENT and AUTH: what a client publishes, and as whom.

use kukuri_domain::{Event, PublicKey};
use kukuri_engine::{PublishRefused, clock, intake::Submitted};
use kukuri_store::Outcome;

use super::{Session, SessionEnd};
use crate::{
    auth::Rejected,
    message::{ClientMessage, claimed_id, reply},
};

/// Keys that one connection may authenticate as.
const MAX_KEYS: usize = 32;

impl Session {
    /// Publishes the event of a message that was not parsed as a whole. Returns `false` if the message is no EVENT after all
    /// and has to be.
    pub(super) async fn publish_unparsed(&mut self, json: &str, text: &str) -> Result<bool, SessionEnd> {
        let submitted = self.hand_to_intake(json).await;
        // A client that is too fast is refused before anything is parsed.
        if matches!(submitted, Submitted::Answered(Err(PublishRefused::Rule(_))))
            && !matches!(ClientMessage::parse(text), Ok(ClientMessage::Event(_)))
        {
            return Ok(false);
        }
        self.answer_event(json, submitted).await?;
        Ok(true)
    }

    pub(super) async fn publish_event(&mut self, json: &str) -> Result<(), SessionEnd> {
        let submitted = self.hand_to_intake(json).await;
        self.answer_event(json, submitted).await
    }

    /// Refuses an AUTH that was not parsed.
    pub(super) async fn refuse_authentication(
        &mut self,
        json: &str,
        refused: &PublishRefused,
    ) -> Result<(), SessionEnd> {
        self.send(reply::ok(&claimed_id(json), false, &refused.to_string())).await
    }

    async fn hand_to_intake(&self, json: &str) -> Submitted {
        self.relay.engine.intake().submit_event(json, &self.client, &self.queue).await
    }

    async fn answer_event(&mut self, json: &str, submitted: Submitted) -> Result<(), SessionEnd> {
        let answered = match submitted {
            Submitted::Queued => {
                self.in_flight += 1;
                return Ok(());
            }
            Submitted::Answered(answered) => answered,
        };
        self.relay.engine.intake().count_answered(&answered);
        let id = claimed_id(json);
        let text = match &answered {
            Ok(outcome) => ok_reply(&id, outcome),
            Err(refused) => reply::ok(&id, false, &refused.to_string()),
        };
        self.send(text).await
    }

    pub(super) async fn authenticate(&mut self, json: &str) -> Result<(), SessionEnd> {
        let id = claimed_id(json);
        match self.check_authentication(json) {
            Ok(key) => {
                let others = self.client.keys.iter().copied().filter(|known| *known != key);
                self.client.keys = others.chain([key]).collect();
                self.subscriptions.set_viewer(&self.viewer());
                self.send(reply::ok(&id, true, "")).await
            }
            Err(refused) => self.send(reply::ok(&id, false, &refused.to_string())).await,
        }
    }

    fn check_authentication(&self, json: &str) -> Result<PublicKey, AuthRefused> {
        let engine = &self.relay.engine;
        let event = Event::from_json(json).map_err(PublishRefused::from)?;
        let key = self.challenge.check(&event, &engine.config().admission.relay_urls, clock::now())?;
        engine.check_key(&key)?;
        if self.client.keys.len() >= MAX_KEYS && !self.client.keys.contains(&key) {
            return Err(AuthRefused::TooManyKeys);
        }
        Ok(key)
    }
}

/// Why an AUTH is refused. Its `Display` is the message of `OK false`.
#[derive(Debug, thiserror::Error)]
enum AuthRefused {
    #[error(transparent)]
    Engine(#[from] PublishRefused),
    #[error(transparent)]
    Challenge(#[from] Rejected),
    #[error("restricted: a connection has at most {MAX_KEYS} keys")]
    TooManyKeys,
}

/// The OK for an event that was decided on.
pub(crate) fn ok_reply(id: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Stored | Outcome::Ephemeral => reply::ok(id, true, ""),
        Outcome::Duplicate => reply::ok(id, true, "duplicate: already have this event"),
        Outcome::Refused(refusal) => reply::ok(id, false, &refusal.to_string()),
    }
}
