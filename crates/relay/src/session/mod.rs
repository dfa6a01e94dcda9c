//! One connection: its messages in, its answers and live events out, in one task.
//!
//! - `inputs`: what the connection waits for; `wake_gate`: which of that has to be polled.
//! - `dispatch`: which rate a message counts against, and what serves it.
//! - `event`: EVENT and AUTH · `request`: REQ and COUNT · `neg`: NEG-OPEN, NEG-MSG (NIP-77).
//! - `subscriptions`: the live ones · `deadlines`: time-outs.
//! - `wire`: sending and closing; `frames`: the send buffer.

mod deadlines;
mod dispatch;
mod event;
pub(crate) mod frames;
mod inputs;
mod neg;
mod request;
pub(crate) mod subscriptions;
mod wake_gate;
mod wire;

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
};

use deadlines::TransitionState;
use dispatch::UnreadableCount;
pub(crate) use event::ok_reply;
use frames::{Frames, Opcode};
use inputs::{Inputs, Received, Wakeup};
use kukuri_domain::Viewer;
use kukuri_engine::{
    Client, clock,
    live::{ClientQueue, Outgoing, QueueReceiver},
};
use subscriptions::Subscriptions;
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WebSocketError, Message, error::ProtocolError, protocol::frame::coding::CloseCode},
};
use wire::SEND_TIMEOUT;

use crate::{
    allowance::SendAllowance,
    auth::Challenge,
    message::{SubscriptionId, reply},
    metrics::CloseCause,
    negentropy::Reconciliation,
    relay::Relay,
};

/// Approximate bytes of an EVENT message besides the event's JSON.
const EVENT_HEAD_BYTES: usize = 80;

/// Why a connection ends.
enum SessionEnd {
    /// The client left, or can't be reached.
    Gone,
    /// The relay closes it, with a reason.
    Close(CloseCause, CloseCode, String),
}

struct Session {
    relay: Arc<Relay>,
    socket: WebSocketStream<TcpStream>,
    client: Client,
    queue: Arc<ClientQueue>,
    receiver: QueueReceiver,
    challenge: Challenge,
    subscriptions: Subscriptions,
    reconciliations: HashMap<SubscriptionId, Reconciliation>,
    frames: Frames,
    allowance: SendAllowance,
    /// Events that wait for their answer.
    in_flight: usize,
    unreadable: UnreadableCount,
    last_received: Instant,
    /// Whether a ping waits for a sign of life.
    is_pinged: bool,
    transition: TransitionState,
}

/// Serves a client until it leaves or the relay closes the connection.
pub(crate) async fn serve(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr) {
    let challenge = match Challenge::new() {
        Ok(challenge) => challenge,
        Err(error) => {
            tracing::error!(%error, "the system gives no random bytes for an AUTH challenge; the connection is dropped");
            relay.metrics.closed.of(CloseCause::Failed).increment(1);
            return;
        }
    };
    let mut session = Session::new(Arc::clone(&relay), socket, ip, challenge);
    if let Err(SessionEnd::Close(cause, code, reason)) = session.run().await {
        relay.metrics.closed.of(cause).increment(1);
        // Nothing more is queued while the client is told why.
        session.subscriptions.end_all();
        session.close(cause, code, &reason).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Subscriptions end before the connection stops being counted.
        self.subscriptions.end_all();
        self.relay.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    fn new(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr, challenge: Challenge) -> Self {
        relay.connections.fetch_add(1, Ordering::Relaxed);
        relay.metrics.connections.increment(1);
        let (queue, receiver) = relay.engine.client_queue(ip);
        Self {
            relay,
            socket,
            client: Client { ip, keys: Arc::default(), connected_at: clock::now() },
            queue,
            receiver,
            challenge,
            subscriptions: Subscriptions::default(),
            reconciliations: HashMap::new(),
            frames: Frames::default(),
            allowance: SendAllowance::new(SEND_TIMEOUT),
            in_flight: 0,
            unreadable: UnreadableCount::new(),
            last_received: Instant::now(),
            is_pinged: false,
            transition: TransitionState::default(),
        }
    }

    async fn run(&mut self) -> Result<(), SessionEnd> {
        self.send(reply::auth_challenge(self.challenge.as_str())).await?;
        let mut inputs = Inputs::new(self.relay.engine.signals(), self.next_deadline());
        let mut max_in_flight = self.relay.engine.config().requests.in_flight;
        loop {
            let may_read = self.in_flight < max_in_flight;
            let turn = inputs.next(&mut self.receiver, may_read.then_some(&mut self.socket)).await;
            if let Some(outgoing) = turn.outgoing {
                self.send_queued(outgoing).await?;
            }
            if let Some(received) = turn.received {
                // Boxed, so that an idle connection stays small.
                Box::pin(self.receive(received)).await?;
                if !self.reconciliations.is_empty() {
                    inputs.set_timer(self.next_deadline());
                }
            }
            match turn.wakeup {
                None => continue,
                Some(Wakeup::Signal(signal)) if signal.stopping => return Box::pin(self.finish()).await,
                Some(Wakeup::Signal(_)) => {
                    max_in_flight = self.relay.engine.config().requests.in_flight;
                    Box::pin(self.check_client()).await?;
                    Box::pin(self.check_deadlines()).await?;
                }
                Some(Wakeup::Timer) => Box::pin(self.check_deadlines()).await?,
            }
            inputs.set_timer(self.next_deadline());
        }
    }

    /// Closes a client that is denied from now on, or those of its subscriptions that are.
    async fn check_client(&mut self) -> Result<(), SessionEnd> {
        let Err(refused) = self.relay.engine.check_client(&self.client) else {
            return self.check_subscriptions().await;
        };
        let reason = refused.to_string();
        self.send(reply::notice(&reason)).await?;
        Err(SessionEnd::Close(CloseCause::Denied, CloseCode::Policy, reason))
    }

    async fn check_subscriptions(&mut self) -> Result<(), SessionEnd> {
        let reads = self.relay.engine.reads();
        for (id, refused) in self.subscriptions.end_refused(|live| reads.check_live(&self.client, live)) {
            self.refuse_request(&id, &refused.into()).await?;
        }
        Ok(())
    }

    /// The node stops: events in flight are answered first.
    async fn finish(&mut self) -> Result<(), SessionEnd> {
        while self.in_flight > 0 {
            let outgoing = self.receiver.next().await;
            self.send_queued(outgoing).await?;
        }
        Err(SessionEnd::Close(CloseCause::Stopping, CloseCode::Away, "the relay is stopping".to_owned()))
    }

    async fn receive(&mut self, received: Received) -> Result<(), SessionEnd> {
        self.last_received = Instant::now();
        self.is_pinged = false;
        match received {
            Some(Ok(Message::Text(text))) => self.dispatch(&text).await,
            Some(Ok(Message::Binary(_))) => Err(unreadable(CloseCode::Unsupported, "messages are text")),
            Some(Ok(Message::Ping(_))) => self.send_pong().await,
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Close(_))) => {
                self.answer_close().await;
                Err(SessionEnd::Gone)
            }
            Some(Err(WebSocketError::Capacity(_))) => {
                let max = self.relay.engine.config().requests.message_bytes;
                Err(unreadable(CloseCode::Size, &format!("a message has at most {max} bytes")))
            }
            Some(Err(WebSocketError::Utf8(_))) => Err(unreadable(CloseCode::Invalid, "messages are UTF-8")),
            // Most clients leave without a close frame.
            Some(Err(WebSocketError::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Err(SessionEnd::Gone),
            Some(Err(WebSocketError::Protocol(_))) => Err(unreadable(CloseCode::Protocol, "this is not WebSocket")),
            Some(Err(_)) | None => Err(SessionEnd::Gone),
        }
    }

    fn viewer(&self) -> Viewer {
        self.client.viewer()
    }

    /// Sends queued entries until the send buffer is full: then client, timer and engine have their turn before the rest.
    async fn send_queued(&mut self, first: Outgoing) -> Result<(), SessionEnd> {
        let (mut next, mut has_flushed) = (Some(first), false);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Answer(id, outcome) => {
                    self.in_flight -= 1;
                    self.frames.push(Opcode::Text, &[ok_reply(&id.to_string(), &outcome).as_bytes()]);
                }
                Outgoing::Refused(id, refused) => {
                    self.in_flight -= 1;
                    let reply = reply::ok(&id.to_string(), false, &refused.to_string());
                    self.frames.push(Opcode::Text, &[reply.as_bytes()]);
                }
                Outgoing::Live(delivery) => {
                    has_flushed = !self.frames.has_room_for(delivery.event.json.len() + EVENT_HEAD_BYTES);
                    if has_flushed {
                        self.flush().await?;
                    }
                    if let Some(id) = self.subscriptions.receiver_of(&delivery) {
                        self.frames.push(Opcode::Text, &reply::event(id, &delivery.event.json));
                    }
                }
                Outgoing::Overflowed => return Err(too_slow("live events overflowed")),
            }
            if has_flushed || self.frames.is_full() {
                break;
            }
            next = self.receiver.next_if_ready();
        }
        self.flush().await
    }
}

fn too_slow(what: &str) -> SessionEnd {
    SessionEnd::Close(CloseCause::Slow, CloseCode::Policy, format!("too slow: {what}"))
}

fn unreadable(code: CloseCode, what: &str) -> SessionEnd {
    SessionEnd::Close(CloseCause::Unreadable, code, what.to_owned())
}
