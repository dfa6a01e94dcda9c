//! One client's connection: its messages in, its answers and live events out, in one task.
//!
//! `requests` answers what it asks for, `searching` what it looks for by words; `wire` sends and closes, with `frames` for
//! what is about to be sent; `subscriptions` are those that are live; `caller` keeps apart who calls; `deadlines` are seen to
//! though nobody calls.

mod caller;
mod deadlines;
pub(crate) mod frames;
mod requests;
mod searching;
mod subscriptions;
mod wire;

use std::{
    collections::HashMap,
    future::poll_fn,
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    task::Poll,
};

use caller::Caller;
use frames::{Frames, Opcode};
use futures_util::StreamExt;
use kukuri_domain::{Event, Millis, PublicKey, Viewer};
use kukuri_store::Outcome;
use subscriptions::Subscriptions;
use tokio::{net::TcpStream, sync::watch, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WireError, Message, error::ProtocolError, protocol::frame::coding::CloseCode},
};

use crate::{
    auth::Challenge,
    clock,
    door::Inside,
    intake::{Refused, Screening, Sender},
    message::{ClientMessage, Fault, SubscriptionId, Verb, claimed_id, say, usual_event},
    metrics::Closing,
    queue::{Outgoing, Queue, Receiver, queue},
    rates::{Act, Counted},
    relay::{Relay, Signal},
    sync::Reconciliation,
};

/// Keys that one connection may authenticate as.
const MOST_KEYS: usize = 32;

/// What a connection has to see to.
struct Turn {
    outgoing: Poll<Outgoing>,
    heard: Poll<Option<Result<Message, WireError>>>,
    /// By the relay, or by the timer.
    called: Poll<Option<Signal>>,
}

/// Why a connection ends.
enum End {
    /// The client left, or can't be reached.
    Gone,
    /// The relay closes it, and says why.
    Close(Closing, CloseCode, String),
}

struct Session {
    relay: Arc<Relay>,
    socket: WebSocketStream<TcpStream>,
    ip: IpAddr,
    queue: Arc<Queue>,
    receiver: Receiver,
    challenge: Challenge,
    keys: Arc<[PublicKey]>,
    subscriptions: Subscriptions,
    reconciliations: HashMap<SubscriptionId, Reconciliation>,
    frames: Frames,
    in_flight: usize,
    connected_at: Millis,
    last_heard: Instant,
    asked: bool,
    _inside: Inside,
}

/// Serves a client until it leaves.
pub(crate) async fn serve(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr, inside: Inside) {
    let mut session = Session::new(Arc::clone(&relay), socket, ip, inside);
    if let Err(End::Close(why, code, reason)) = session.run().await {
        relay.metrics.closed(why);
        // Nothing more is queued for it while it hears why.
        session.subscriptions.end_all();
        session.close(why, code, &reason).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever is not counted any more has left nothing behind.
        self.subscriptions.end_all();
        self.relay.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Session {
    fn new(relay: Arc<Relay>, socket: WebSocketStream<TcpStream>, ip: IpAddr, inside: Inside) -> Self {
        relay.connections.fetch_add(1, Ordering::Relaxed);
        relay.metrics.connections_made.increment(1);
        let (queue, receiver) = queue();
        Self {
            relay,
            socket,
            ip,
            queue,
            receiver,
            challenge: Challenge::new(),
            keys: Arc::default(),
            subscriptions: Subscriptions::default(),
            reconciliations: HashMap::new(),
            frames: Frames::default(),
            in_flight: 0,
            connected_at: clock::now(),
            last_heard: Instant::now(),
            asked: false,
            _inside: inside,
        }
    }

    async fn run(&mut self) -> Result<(), End> {
        self.send(say::challenge(self.challenge.as_str())).await?;
        let mut signals = self.relay.signals.subscribe();
        // What was said before it listened counts too.
        signals.mark_changed();
        let timer = tokio::time::sleep_until(self.next_look());
        tokio::pin!(timer);
        let (mut client, mut rest) = (Caller::new(), Caller::new());
        loop {
            let in_flight_limit = self.relay.config().requests.in_flight;
            let signal = next_signal(&mut signals);
            tokio::pin!(signal);
            rest.ask_again();
            let signal = loop {
                let may_read = self.in_flight < in_flight_limit;
                // Live events come most often by far, and are looked for each time.
                let Turn { outgoing, heard, called } = poll_fn(|context| {
                    let outgoing = self.receiver.poll_next(context);
                    let heard = if may_read {
                        client.poll(context, |context| self.socket.poll_next_unpin(context))
                    } else {
                        Poll::Pending
                    };
                    let called = rest.poll(context, |context| match signal.as_mut().poll(context) {
                        Poll::Ready(signal) => Poll::Ready(Some(signal)),
                        Poll::Pending => timer.as_mut().poll(context).map(|()| None),
                    });
                    let is_pending = outgoing.is_pending() && heard.is_pending() && called.is_pending();
                    if is_pending { Poll::Pending } else { Poll::Ready(Turn { outgoing, heard, called }) }
                })
                .await;
                if let Poll::Ready(outgoing) = outgoing {
                    self.send_waiting(outgoing).await?;
                }
                if let Poll::Ready(message) = heard {
                    // What is done for a message is boxed, so that a connection that rests stays small.
                    Box::pin(self.heard(message)).await?;
                    if !self.reconciliations.is_empty() {
                        timer.as_mut().reset(self.next_look());
                        rest.ask_again();
                    }
                }
                match called {
                    Poll::Ready(Some(signal)) => break signal,
                    Poll::Ready(None) => {
                        Box::pin(self.look_after()).await?;
                        timer.as_mut().reset(self.next_look());
                    }
                    Poll::Pending => {}
                }
            };
            if signal.stopping {
                return Box::pin(self.finish()).await;
            }
            timer.as_mut().reset(self.next_look());
        }
    }

    /// The relay stops: what was accepted is answered first.
    async fn finish(&mut self) -> Result<(), End> {
        while self.in_flight > 0 {
            let outgoing = self.receiver.next().await;
            self.send_waiting(outgoing).await?;
        }
        Err(End::Close(Closing::Stopping, CloseCode::Away, "the relay is stopping".to_owned()))
    }

    async fn heard(&mut self, message: Option<Result<Message, WireError>>) -> Result<(), End> {
        self.last_heard = Instant::now();
        self.asked = false;
        match message {
            Some(Ok(Message::Text(text))) => self.answer(&text).await,
            Some(Ok(Message::Binary(_))) => Err(unreadable(CloseCode::Unsupported, "messages are text")),
            Some(Ok(Message::Ping(_))) => self.answer_ping().await,
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Close(_))) => {
                self.answer_close().await;
                Err(End::Gone)
            }
            Some(Err(WireError::Capacity(_))) => {
                let most = self.relay.config().requests.message_bytes;
                Err(unreadable(CloseCode::Size, &format!("a message has at most {most} bytes")))
            }
            Some(Err(WireError::Utf8(_))) => Err(unreadable(CloseCode::Invalid, "messages are UTF-8")),
            // Most clients leave so.
            Some(Err(WireError::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Err(End::Gone),
            Some(Err(WireError::Protocol(_))) => Err(unreadable(CloseCode::Protocol, "this is not WebSocket")),
            Some(Err(_)) | None => Err(End::Gone),
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), End> {
        // Nearly all that is said are events: they are read once.
        if let Some(event) = usual_event(text)
            && self.take_usual_event(event, text).await?
        {
            self.relay.metrics.asked(Verb::Event);
            return Ok(());
        }
        let parsed = ClientMessage::parse(text);
        self.relay.metrics.asked(parsed.as_ref().map_or(Verb::Unreadable, ClientMessage::verb));
        match parsed {
            Ok(ClientMessage::Event(event)) => self.take_event(event).await,
            Ok(ClientMessage::Auth(event)) => self.authenticate(event).await,
            Ok(ClientMessage::Request(id, filters)) => self.subscribe(id, filters).await,
            Ok(ClientMessage::Count(id, filters)) => self.count(&id, filters).await,
            Ok(ClientMessage::Close(id)) => {
                self.subscriptions.end(&id);
                Ok(())
            }
            Ok(ClientMessage::Reconcile(id, filter, message)) => self.reconcile(id, *filter, &message).await,
            Ok(ClientMessage::ReconcileOn(id, message)) => self.reconcile_on(&id, &message).await,
            Ok(ClientMessage::ReconcileNoMore(id)) => {
                self.reconciliations.remove(&id);
                Ok(())
            }
            Err(Fault::Notice(notice)) => self.send(say::notice(&notice)).await,
            Err(Fault::Closed(id, reason)) => {
                self.subscriptions.end(&id);
                self.refuse(&id, &reason).await
            }
            Err(Fault::NotCounted(id, reason)) => self.refuse(&id, &reason).await,
            Err(Fault::NotReconciled(id, reason)) => {
                self.reconciliations.remove(&id);
                self.relay.metrics.refused_request();
                self.send(say::not_reconciled(&id, &reason)).await
            }
        }
    }

    /// Returns whether it was answered: if it was not even JSON, all of the message has to be looked at.
    async fn take_usual_event(&mut self, json: &str, text: &str) -> Result<bool, End> {
        let screening = self.screen(json).await;
        if screening.is_err() && !matches!(ClientMessage::parse(text), Ok(ClientMessage::Event(_))) {
            return Ok(false);
        }
        self.answer_event(json, screening).await?;
        Ok(true)
    }

    async fn take_event(&mut self, json: &str) -> Result<(), End> {
        let screening = self.screen(json).await;
        self.answer_event(json, screening).await
    }

    async fn screen(&self, json: &str) -> Result<Screening, Refused> {
        let sender = Sender { ip: self.ip, keys: Arc::clone(&self.keys), is_unknown: self.is_unknown() };
        self.relay.screen(json, &sender).await
    }

    async fn answer_event(&mut self, json: &str, screening: Result<Screening, Refused>) -> Result<(), End> {
        match screening {
            Ok(Screening::New(admitted)) => {
                self.in_flight += 1;
                self.relay.pipeline.submit(admitted, Arc::clone(&self.queue)).await;
                Ok(())
            }
            Ok(Screening::Answered(outcome)) => {
                self.relay.metrics.answered(&outcome);
                self.send(ok(&claimed_id(json), &outcome)).await
            }
            Err(refused) => {
                self.relay.metrics.refused_event(refused.prefix());
                self.send(say::ok(&claimed_id(json), false, &refused.to_string())).await
            }
        }
    }

    async fn authenticate(&mut self, json: &str) -> Result<(), End> {
        let id = claimed_id(json);
        match self.check_authentication(json) {
            Ok(key) => {
                self.keys = self.keys.iter().copied().filter(|known| *known != key).chain([key]).collect();
                self.subscriptions.show_to(&self.viewer());
                self.send(say::ok(&id, true, "")).await
            }
            Err(message) => self.send(say::ok(&id, false, &message)).await,
        }
    }

    fn check_authentication(&self, json: &str) -> Result<PublicKey, String> {
        let config = self.relay.config();
        // It costs a signature, as an event does.
        let who = Counted { ip: self.ip, keys: &self.keys };
        self.relay.check_rate(Act::Publish, who).map_err(|too_fast| too_fast.to_string())?;
        let event = Event::from_json(json).map_err(|refusal| refusal.to_string())?;
        let checked = self.challenge.check(event, &config.admission.relay_urls, clock::now());
        let key = checked.map_err(|rejected| rejected.to_string())?;
        if config.deny.pubkeys.contains(&key) {
            return Err("blocked: this key is not welcome here".to_owned());
        }
        if self.keys.len() >= MOST_KEYS && !self.keys.contains(&key) {
            return Err(format!("restricted: a connection has at most {MOST_KEYS} keys"));
        }
        Ok(key)
    }

    fn viewer(&self) -> Viewer {
        Viewer::Client(Arc::clone(&self.keys))
    }

    /// Whether it has to authenticate before it is served (W-7).
    fn is_unknown(&self) -> bool {
        self.keys.is_empty() && self.relay.config().auth.is_demanded(self.connected_at, clock::now())
    }

    /// Sends what waits, in one go, but no more than enough: the client, the timer and the relay have their turn before
    /// the rest.
    async fn send_waiting(&mut self, first: Outgoing) -> Result<(), End> {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Decided(id, outcome) => {
                    self.in_flight -= 1;
                    self.frames.push(Opcode::Text, &[ok(&id.to_string(), &outcome).as_bytes()]);
                }
                Outgoing::Live(delivery) => {
                    if let Some(id) = self.subscriptions.whose(&delivery) {
                        self.frames.push(Opcode::Text, &say::event(id, &delivery.event.json));
                    }
                }
                Outgoing::Overflowed => return Err(too_slow("live events overflowed")),
            }
            if self.has_enough_to_send() {
                break;
            }
            next = self.receiver.next_if_ready();
        }
        self.flush().await
    }
}

fn too_slow(what: &str) -> End {
    End::Close(Closing::Slow, CloseCode::Policy, format!("too slow: {what}"))
}

fn unreadable(code: CloseCode, what: &str) -> End {
    End::Close(Closing::Unreadable, code, what.to_owned())
}

/// The next thing that the relay says to all connections.
async fn next_signal(signals: &mut watch::Receiver<Signal>) -> Signal {
    match signals.changed().await {
        Ok(()) => *signals.borrow_and_update(),
        // The relay is gone.
        Err(_) => Signal { stopping: true, ..Signal::default() },
    }
}

/// Ends when the relay is to stop.
pub(crate) async fn stopped(signals: &mut watch::Receiver<Signal>) {
    // An error means that the relay is gone.
    let _ = signals.wait_for(|signal| signal.stopping).await.map(drop);
}

pub(crate) fn ok(id: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Stored | Outcome::Ephemeral => say::ok(id, true, ""),
        Outcome::Duplicate => say::ok(id, true, "duplicate: already have this event"),
        Outcome::Refused(refusal) => say::ok(id, false, &refusal.to_string()),
    }
}
