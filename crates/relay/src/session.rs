//! One client's connection: its messages in, its answers and live events out, in one task.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use futures_util::SinkExt;
use kukuri_domain::{Event, Filter, PublicKey, Viewer};
use kukuri_store::{Outcome, Query, Seq};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    auth::Challenge,
    clock,
    message::{ClientMessage, Fault, SubscriptionId, claimed_id, say},
    queue::{Delivery, Outgoing, Queue, Receiver, queue},
    relay::{Relay, Screening},
};

/// A client that does not read is given this long to take what is being sent, then it is closed.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client may take to hear why it is closed: a slow one may yet catch up, a stopping relay does not wait.
const SLOW_CLOSE: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(1);

/// Why a connection ends.
enum End {
    /// The client left, or can't be reached.
    Gone,
    /// The relay closes it, and says why.
    Close(u16, &'static str),
}

struct Session {
    relay: Arc<Relay>,
    socket: WebSocket,
    queue: Arc<Queue>,
    receiver: Receiver,
    challenge: Challenge,
    keys: Arc<[PublicKey]>,
    subscriptions: HashMap<SubscriptionId, Live>,
    in_flight: usize,
    last_heard: Instant,
    asked: bool,
}

/// A subscription that is live, and the sequence its stored events were read at.
struct Live {
    number: u64,
    filters: Vec<Filter>,
    read_at: Seq,
}

/// Serves a client until it leaves.
pub(crate) async fn serve(relay: Arc<Relay>, socket: WebSocket) {
    relay.connections.fetch_add(1, Ordering::Relaxed);
    let (queue, receiver) = queue();
    let mut session = Session {
        relay: Arc::clone(&relay),
        socket,
        queue,
        receiver,
        challenge: Challenge::new(),
        keys: Arc::default(),
        subscriptions: HashMap::new(),
        in_flight: 0,
        last_heard: Instant::now(),
        asked: false,
    };
    if let Err(End::Close(code, reason)) = session.run().await {
        session.close(code, reason).await;
    }
    for live in session.subscriptions.values() {
        relay.hub.unsubscribe(live.number);
    }
    relay.connections.fetch_sub(1, Ordering::Relaxed);
}

impl Session {
    async fn run(&mut self) -> Result<(), End> {
        self.send(say::challenge(self.challenge.as_str())).await?;
        let mut stopping = self.relay.stopping.subscribe();
        let silence = self.relay.config.requests.silence;
        loop {
            let may_read = self.in_flight < self.relay.config.requests.in_flight;
            tokio::select! {
                message = self.socket.recv(), if may_read => self.heard(message).await?,
                outgoing = self.receiver.next() => self.send_waiting(outgoing).await?,
                () = self.queue.overflowed() => return Err(End::Close(close_code::POLICY, "too slow: live events overflowed")),
                () = stopped(&mut stopping) => return self.finish().await,
                () = tokio::time::sleep_until(self.last_heard + silence) => self.ask_if_there().await?,
            }
        }
    }

    /// The relay stops: what was accepted is answered first.
    async fn finish(&mut self) -> Result<(), End> {
        while self.in_flight > 0 {
            let outgoing = self.receiver.next().await;
            self.send_waiting(outgoing).await?;
        }
        Err(End::Close(close_code::AWAY, "the relay is stopping"))
    }

    async fn ask_if_there(&mut self) -> Result<(), End> {
        if self.asked {
            return Err(End::Close(close_code::AWAY, "no sign of life"));
        }
        self.asked = true;
        self.last_heard = Instant::now();
        self.send_message(Message::Ping(bytes::Bytes::new())).await
    }

    async fn heard(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        self.last_heard = Instant::now();
        self.asked = false;
        match message {
            Some(Ok(Message::Text(text))) => self.answer(&text).await,
            Some(Ok(Message::Binary(_))) => Err(End::Close(close_code::UNSUPPORTED, "messages are text")),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_)) | Err(_)) | None => Err(End::Gone),
        }
    }

    async fn answer(&mut self, text: &str) -> Result<(), End> {
        match ClientMessage::parse(text) {
            Ok(ClientMessage::Event(event)) => self.take_event(event).await,
            Ok(ClientMessage::Auth(event)) => self.authenticate(event).await,
            Ok(ClientMessage::Request(id, filters)) => self.subscribe(id, filters).await,
            Ok(ClientMessage::Count(id, filters)) => self.count(&id, filters).await,
            Ok(ClientMessage::Close(id)) => {
                self.unsubscribe(&id);
                Ok(())
            }
            Err(Fault::Notice(notice)) => self.send(say::notice(&notice)).await,
            Err(Fault::Closed(id, reason)) => {
                self.unsubscribe(&id);
                self.send(say::closed(&id, &reason)).await
            }
        }
    }

    async fn take_event(&mut self, json: &str) -> Result<(), End> {
        match self.relay.screen(json, Arc::clone(&self.keys)).await {
            Ok(Screening::New(admitted)) => {
                self.in_flight += 1;
                self.relay.pipeline.submit(admitted, Arc::clone(&self.queue)).await;
                Ok(())
            }
            Ok(Screening::Answered(outcome)) => self.send(ok(&claimed_id(json), &outcome)).await,
            Err(refusal) => self.send(ok(&claimed_id(json), &Outcome::Refused(refusal))).await,
        }
    }

    async fn authenticate(&mut self, json: &str) -> Result<(), End> {
        let id = claimed_id(json);
        let checked = match Event::from_json(json) {
            Ok(event) => self
                .challenge
                .check(event, &self.relay.config.admission.relay_urls, clock::now())
                .map_err(|rejected| rejected.to_string()),
            Err(refusal) => Err(refusal.to_string()),
        };
        match checked {
            Ok(key) => {
                self.keys = self.keys.iter().copied().filter(|known| *known != key).chain([key]).collect();
                self.see_with_new_keys();
                self.send(say::ok(&id, true, "")).await
            }
            Err(message) => self.send(say::ok(&id, false, &message)).await,
        }
    }

    /// Live subscriptions show from now on what the new keys may see.
    fn see_with_new_keys(&mut self) {
        let viewer = self.viewer();
        for (id, live) in &mut self.subscriptions {
            let queue = Arc::clone(&self.queue);
            let number = self.relay.hub.subscribe(id.clone(), live.filters.clone(), viewer.clone(), queue);
            self.relay.hub.unsubscribe(std::mem::replace(&mut live.number, number));
        }
    }

    fn viewer(&self) -> Viewer {
        Viewer::Client(Arc::clone(&self.keys))
    }

    /// Stored events, then the end of them, then live ones, with no gap and nothing twice (W-2).
    ///
    /// Live events are queued from before the query is read; those that the query has seen are passed over when their
    /// turn comes.
    async fn subscribe(&mut self, id: SubscriptionId, filters: Vec<Filter>) -> Result<(), End> {
        self.unsubscribe(&id);
        let filters = match self.relay.check_filters(filters) {
            Ok(filters) => filters,
            Err(reason) => return self.send(say::closed(&id, &reason)).await,
        };
        let most = self.relay.config.requests.subscriptions;
        if self.subscriptions.len() >= most {
            return self.send(say::closed(&id, &format!("error: more subscriptions than {most}"))).await;
        }
        let queue = Arc::clone(&self.queue);
        let number = self.relay.hub.subscribe(id.clone(), filters.clone(), self.viewer(), queue);
        let query = Query { filters: filters.clone(), viewer: self.viewer(), now: clock::now() };
        let answer = match self.relay.store.query(&query).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "a query failed");
                self.relay.hub.unsubscribe(number);
                return self.send(say::closed(&id, "error: the query failed")).await;
            }
        };
        self.subscriptions.insert(id.clone(), Live { number, filters, read_at: answer.seq });
        for event in &answer.events {
            self.feed(say::event(&id, &event.json)).await?;
        }
        self.send(say::end_of_stored(&id)).await
    }

    fn unsubscribe(&mut self, id: &SubscriptionId) {
        if let Some(live) = self.subscriptions.remove(id) {
            self.relay.hub.unsubscribe(live.number);
        }
    }

    async fn count(&mut self, id: &SubscriptionId, filters: Vec<Filter>) -> Result<(), End> {
        let filters = match self.relay.check_filters(filters) {
            Ok(filters) => filters,
            Err(reason) => return self.send(say::closed(id, &reason)).await,
        };
        let query = Query { filters, viewer: self.viewer(), now: clock::now() };
        match self.relay.store.count(&query, None).await {
            Ok(count) => self.send(say::count(id, count.events)).await,
            Err(error) => {
                tracing::error!(%error, "a count failed");
                self.send(say::closed(id, "error: the count failed")).await
            }
        }
    }

    /// Sends everything that waits, in one go.
    async fn send_waiting(&mut self, first: Option<Outgoing>) -> Result<(), End> {
        let mut next = first;
        while let Some(outgoing) = next {
            match outgoing {
                Outgoing::Decided(id, outcome) => {
                    self.in_flight -= 1;
                    self.feed(ok(&id.to_string(), &outcome)).await?;
                }
                Outgoing::Live(delivery) if self.is_due(&delivery) => {
                    self.feed(say::event(&delivery.subscription, &delivery.json)).await?;
                }
                Outgoing::Live(_) => {}
            }
            next = self.receiver.next_if_ready();
        }
        self.flush().await
    }

    /// Whether a live event belongs to a subscription that is still there, and was not among its stored ones.
    fn is_due(&self, delivery: &Delivery) -> bool {
        self.subscriptions
            .get(&delivery.subscription)
            .is_some_and(|live| live.number == delivery.number && delivery.seq.is_none_or(|seq| seq > live.read_at))
    }

    // Sending.

    async fn send(&mut self, text: String) -> Result<(), End> {
        self.feed(text).await?;
        self.flush().await
    }

    async fn feed(&mut self, text: String) -> Result<(), End> {
        let feed = self.socket.feed(Message::Text(Utf8Bytes::from(text)));
        in_time(feed, &self.queue).await
    }

    async fn flush(&mut self) -> Result<(), End> {
        in_time(self.socket.flush(), &self.queue).await
    }

    async fn send_message(&mut self, message: Message) -> Result<(), End> {
        in_time(self.socket.send(message), &self.queue).await
    }

    async fn close(&mut self, code: u16, reason: &'static str) {
        let patience = if code == close_code::POLICY { SLOW_CLOSE } else { CLOSE };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let _ = timeout(patience, self.socket.send(Message::Close(Some(frame)))).await;
    }
}

/// Ends when the relay is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the relay is gone.
    let _ = stopping.wait_for(|stopping| *stopping).await.map(drop);
}

/// A client that takes too long, or falls too far behind meanwhile, is closed.
async fn in_time(sending: impl Future<Output = Result<(), axum::Error>>, queue: &Queue) -> Result<(), End> {
    tokio::select! {
        sent = timeout(SEND_TIMEOUT, sending) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(End::Close(close_code::POLICY, "too slow: a message was not taken in time")),
        },
        () = queue.overflowed() => Err(End::Close(close_code::POLICY, "too slow: live events overflowed")),
    }
}

fn ok(id: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Stored | Outcome::Ephemeral => say::ok(id, true, ""),
        Outcome::Duplicate => say::ok(id, true, "duplicate: already have this event"),
        Outcome::Refused(refusal) => say::ok(id, false, &refusal.to_string()),
    }
}
