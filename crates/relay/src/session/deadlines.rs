//! Time-outs of a connection: authentication that is due, idle reconciliations, a silent client.

use std::time::Duration;

use kukuri_engine::{clock, refused::AUTH_REQUIRED};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Session, SessionEnd};
use crate::{closed::Closed, message::reply, metrics::CloseCause, negentropy::Reconciliation};

impl Session {
    /// When the next time-out may be due.
    pub(super) fn next_deadline(&self) -> Instant {
        let config = self.relay.engine.config();
        let mut next = self.last_received + config.requests.idle;
        if self.client.keys.is_empty()
            && let Some(deadline) = config.auth.deadline(self.client.connected_at)
        {
            let wait = Duration::from_millis(deadline.0.saturating_sub(clock::now().0));
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
