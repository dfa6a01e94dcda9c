//! One connection: its messages in, its answers and live events out, in one task.
//!
//! - `inputs`: what the connection waits for; `wake_gate`: which of that has to be polled.
//! - `event`: EVENT and AUTH · `request`: REQ and COUNT · `neg`: NEG-OPEN, NEG-MSG (NIP-77).
//! - `subscriptions`: the live ones · `deadlines`: time-outs.
//! - `wire`: sending and closing; `frames`: the send buffer.

mod deadlines;
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

pub(crate) use event::ok_reply;
use frames::{Frames, Opcode};
use inputs::{Inputs, Received, Wakeup};
use kukuri_domain::Viewer;
use kukuri_engine::{
    Client, clock,
    live::{ClientQueue, Outgoing, QueueReceiver, client_queue},
};
use subscriptions::Subscriptions;
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WebSocketError, Message, error::ProtocolError, protocol::frame::coding::CloseCode},
};

use crate::{
    auth::Challenge,
    message::{ClientMessage, SubscriptionId, common_event_form, reply},
    metrics::{CloseCause, Verb},
    negentropy::Reconciliation,
    relay::Relay,
};

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
    /// Events that wait for their answer.
    in_flight: usize,
    last_received: Instant,
    /// Whether a ping waits for a sign of life.
    is_pinged: bool,
}

/// Serves a client until it leaves or the relay closes the connection.
pub(crate) async fn serve(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr) {
    let mut session = Session::new(Arc::clone(&relay), socket, ip);
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
    fn new(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr) -> Self {
        relay.connections.fetch_add(1, Ordering::Relaxed);
        relay.metrics.connections.increment(1);
        let (queue, receiver) = client_queue();
        Self {
            relay,
            socket,
            client: Client { ip, keys: Arc::default(), connected_at: clock::now() },
            queue,
            receiver,
            challenge: Challenge::new(),
            subscriptions: Subscriptions::default(),
            reconciliations: HashMap::new(),
            frames: Frames::default(),
            in_flight: 0,
            last_received: Instant::now(),
            is_pinged: false,
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
                Some(Wakeup::Signal(_)) => max_in_flight = self.relay.engine.config().requests.in_flight,
                Some(Wakeup::Timer) => Box::pin(self.check_deadlines()).await?,
            }
            inputs.set_timer(self.next_deadline());
        }
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

    async fn dispatch(&mut self, text: &str) -> Result<(), SessionEnd> {
        // Nearly all messages are events of the common form: their JSON is parsed once.
        if let Some(json) = common_event_form(text)
            && self.publish_common_form(json, text).await?
        {
            self.relay.metrics.messages.of(Verb::Event).increment(1);
            return Ok(());
        }
        let parsed = ClientMessage::parse(text);
        let verb = parsed.as_ref().map_or(Verb::Unreadable, ClientMessage::verb);
        self.relay.metrics.messages.of(verb).increment(1);
        match parsed {
            Ok(ClientMessage::Event(json)) => self.publish_event(json).await,
            Ok(ClientMessage::Auth(json)) => self.authenticate(json).await,
            Ok(ClientMessage::Req(id, filters)) => self.serve_req(id, filters).await,
            Ok(ClientMessage::Count(id, filters)) => self.serve_count(&id, filters).await,
            Ok(ClientMessage::Close(id)) => {
                self.subscriptions.end(&id);
                Ok(())
            }
            Ok(ClientMessage::NegOpen(id, opening)) => self.open_reconciliation(id, opening).await,
            Ok(ClientMessage::NegMessage(id, message)) => self.continue_reconciliation(&id, message).await,
            Ok(ClientMessage::NegClose(id)) => {
                self.reconciliations.remove(&id);
                Ok(())
            }
            Err(notice) => self.send(reply::notice(&notice)).await,
        }
    }

    fn viewer(&self) -> Viewer {
        Viewer::Client(Arc::clone(&self.client.keys))
    }

    /// Sends queued entries until the send buffer is full: then client, timer and engine have their turn before the rest.
    async fn send_queued(&mut self, first: Outgoing) -> Result<(), SessionEnd> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Answer(id, outcome) => {
                    self.in_flight -= 1;
                    self.frames.push(Opcode::Text, &[ok_reply(&id.to_string(), &outcome).as_bytes()]);
                }
                Outgoing::Live(delivery) => {
                    if let Some(id) = self.subscriptions.receiver_of(&delivery) {
                        self.frames.push(Opcode::Text, &reply::event(id, &delivery.event.json));
                    }
                }
                Outgoing::Overflowed => return Err(too_slow("live events overflowed")),
            }
            if self.is_buffer_full() {
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
