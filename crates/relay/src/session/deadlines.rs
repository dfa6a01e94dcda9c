//! Time-outs of a connection: authentication that is due, idle reconciliations, a silent client.

use std::time::Duration;

use kukuri_domain::Millis;
use kukuri_engine::{clock, config::Transition, refused::AUTH_REQUIRED};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Session, SessionEnd};
use crate::{closed::Closed, message::reply, metrics::CloseCause, negentropy::Reconciliation};

/// How far a connection made before enforcement has come in the transition. A change of the configuration begins another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TransitionState {
    /// Enforcement has not begun.
    #[default]
    Waiting,
    /// The client was told by when it has to authenticate.
    Told(Transition),
    /// The grace is over.
    Over(Transition),
}

impl TransitionState {
    /// The next step of a transition: when it is due, and the state after it.
    fn next(self, transition: Transition) -> Option<(Millis, Self)> {
        let Transition { begins_at, ends_at } = transition;
        match self {
            Self::Over(known) if known == transition => None,
            Self::Told(known) if known == transition => Some((ends_at, Self::Over(transition))),
            // Without a grace there is nothing to tell before the end.
            _ if begins_at == ends_at => Some((ends_at, Self::Over(transition))),
            _ => Some((begins_at, Self::Told(transition))),
        }
    }
}

impl Session {
    /// When the next time-out may be due.
    pub(super) fn next_deadline(&self) -> Instant {
        let config = self.relay.engine.config();
        let connected_at = self.client.connected_at;
        let authentication = config.auth.deadline(connected_at).filter(|_| self.client.keys.is_empty());
        let transition = config.auth.transition(connected_at).and_then(|transition| self.transition.next(transition));
        let mut next = self.last_received + config.requests.idle;
        for due in authentication.into_iter().chain(transition.map(|(due, _)| due)) {
            let wait = Duration::from_millis(due.0.saturating_sub(clock::now().0));
            next = next.min(Instant::now() + wait);
        }
        self.reconciliations.values().map(Reconciliation::ends_at).fold(next, Instant::min)
    }

    /// Closes a client that has not authenticated in time, ends idle reconciliations, and pings a silent client.
    pub(super) async fn check_deadlines(&mut self) -> Result<(), SessionEnd> {
        let config = self.relay.engine.config();
        let is_due = config.auth.deadline(self.client.connected_at).is_some_and(|deadline| clock::now() >= deadline);
        if self.client.keys.is_empty() && is_due {
            self.send(reply::notice(AUTH_REQUIRED)).await?;
            return Err(SessionEnd::Close(CloseCause::Unauthenticated, CloseCode::Policy, AUTH_REQUIRED.to_owned()));
        }
        if let Some(transition) = config.auth.transition(self.client.connected_at) {
            self.follow_transition(transition).await?;
        }
        let now = Instant::now();
        let idle: Vec<_> = self.reconciliations.extract_if(|_, one| one.ends_at() <= now).map(|(id, _)| id).collect();
        for id in idle {
            self.send(reply::neg_error(&id, &Closed::NegIdle.to_string())).await?;
        }
        if self.last_received.elapsed() < config.requests.idle {
            return Ok(());
        }
        if self.is_pinged {
            return Err(SessionEnd::Close(CloseCause::Silent, CloseCode::Away, "no sign of life".to_owned()));
        }
        self.is_pinged = true;
        self.last_received = Instant::now();
        self.ping().await
    }

    /// Tells a client that was connected before enforcement to authenticate, and by when. At the end of the grace the
    /// subscriptions of an authenticated one are judged like those of a new client.
    async fn follow_transition(&mut self, transition: Transition) -> Result<(), SessionEnd> {
        while let Some((due, state)) = self.transition.next(transition)
            && clock::now() >= due
        {
            self.transition = state;
            match state {
                TransitionState::Told(_) if self.client.keys.is_empty() => {
                    self.send(reply::auth_challenge(self.challenge.as_str())).await?;
                    let seconds = transition.ends_at.0.saturating_sub(clock::now().0).div_ceil(1_000);
                    let deadline = transition.ends_at.seconds();
                    self.send(reply::notice(&format!(
                        "auth-required: this relay now serves authenticated clients only: authenticate within {seconds} \
                         seconds (by {deadline}, Unix time), or this connection will be closed"
                    )))
                    .await?;
                }
                TransitionState::Over(_) => self.check_subscriptions().await?,
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kukuri_engine::{Engine, EngineConfig, EngineParts};
    use kukuri_store::{StoreRules, model::ModelStore};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };

    use super::*;
    use crate::{auth::Challenge, message::SubscriptionId, nip11::Info, relay::Relay};

    #[tokio::test]
    async fn an_idle_reconciliation_is_ended_whatever_else_its_client_sends() {
        // W-4: all reconciliations share one budget.
        let mut config = EngineConfig::default();
        config.requests.idle = Duration::from_secs(3_600);
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config,
            policies: Vec::new(),
            recorder: Arc::new(metrics::NoopRecorder),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        let relay = Arc::new(Relay::new(engine, Info::default()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        let mut session = Session::new(Arc::clone(&relay), socket, address.ip(), Challenge::new().unwrap());
        let [old, young] = ["old", "young"].map(SubscriptionId::new);
        for id in [&old, &young] {
            let share = relay.neg_budget.reserve(address.ip(), 1).unwrap();
            let reconciliation = Reconciliation::new(Vec::new(), share).unwrap();
            session.reconciliations.insert(id.clone(), reconciliation);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ends_at = session.reconciliations[&old].ends_at();
        assert!(session.receive(Some(Ok(Message::Pong(Vec::new().into())))).await.is_ok());
        assert_eq!(session.next_deadline(), ends_at, "a pong is no message of this reconciliation");

        session.reconciliations.get_mut(&old).unwrap().become_idle();
        assert!(session.next_deadline() <= Instant::now());
        assert!(session.check_deadlines().await.is_ok());
        assert_eq!(session.reconciliations.keys().collect::<Vec<_>>(), [&young]);
        assert_eq!(session.next_deadline(), session.reconciliations[&young].ends_at());
    }
}
