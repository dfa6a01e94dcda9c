//! What has its time though nobody calls: authentication that is due, reconciliations that rest, a client that is silent.

use std::time::Duration;

use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{End, Session};
use crate::{clock, intake::AUTHENTICATE, message::say, metrics::Closing, sync::Reconciliation};

impl Session {
    /// When this connection has to be looked after next, if nothing happens.
    pub(super) fn next_look(&self) -> Instant {
        let config = self.relay.config();
        let mut next = self.last_heard + config.requests.silence;
        if self.keys.is_empty()
            && let Some(deadline) = config.auth.deadline(self.connected_at)
        {
            let wait = Duration::from_millis(deadline.0.saturating_sub(clock::now().0));
            next = next.min(Instant::now() + wait);
        }
        self.reconciliations.values().map(Reconciliation::ends_at).fold(next, Instant::min)
    }

    /// Ends what has rested for too long, and asks whether the client is still there.
    pub(super) async fn look_after(&mut self) -> Result<(), End> {
        let config = self.relay.config();
        let is_due = config.auth.deadline(self.connected_at).is_some_and(|deadline| clock::now() >= deadline);
        if self.keys.is_empty() && is_due {
            self.send(say::notice(AUTHENTICATE)).await?;
            return Err(End::Close(Closing::Unauthenticated, CloseCode::Policy, AUTHENTICATE.to_owned()));
        }
        let now = Instant::now();
        let over: Vec<_> = self.reconciliations.extract_if(|_, sync| sync.ends_at() <= now).map(|(id, _)| id).collect();
        for id in over {
            self.send(say::not_reconciled(&id, "closed: nothing was said for too long")).await?;
        }
        if self.last_heard.elapsed() < config.requests.silence {
            return Ok(());
        }
        if self.asked {
            return Err(End::Close(Closing::Silent, CloseCode::Away, "no sign of life".to_owned()));
        }
        self.asked = true;
        self.last_heard = Instant::now();
        self.ping().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use std::sync::Arc;

    use kukuri_store::{StoreRules, model::ModelStore};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_tungstenite::{
        WebSocketStream,
        tungstenite::{Message, protocol::Role},
    };

    use super::*;
    use crate::{config::RelayConfig, message::SubscriptionId, relay::Relay};

    #[tokio::test]
    async fn a_reconciliation_that_rests_is_ended_whatever_else_its_client_says() {
        // W-4: all reconciliations share one room.
        let store = Arc::new(ModelStore::new(StoreRules::default()));
        let mut config = RelayConfig::default();
        config.requests.silence = Duration::from_secs(3_600);
        let (relay, _) = Relay::start(store, None, config).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, address) = listener.accept().await.unwrap();
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        let inside = relay.door.enter(1).unwrap();
        let mut session = Session::new(Arc::clone(&relay), socket, address.ip(), inside);
        let [old, young] = ["old", "young"].map(SubscriptionId::new);
        for id in [&old, &young] {
            let sync = Reconciliation::new(Vec::new(), &relay.sync_room).unwrap();
            session.reconciliations.insert(id.clone(), sync);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let ends_at = session.reconciliations[&old].ends_at();
        assert!(session.heard(Some(Ok(Message::Pong(Vec::new().into())))).await.is_ok());
        assert_eq!(session.next_look(), ends_at, "it was not about this one");

        session.reconciliations.get_mut(&old).unwrap().rest();
        assert!(session.next_look() <= Instant::now());
        assert!(session.look_after().await.is_ok());
        assert_eq!(session.reconciliations.keys().collect::<Vec<_>>(), [&young]);
        assert_eq!(session.next_look(), session.reconciliations[&young].ends_at());
    }
}
