//! The inputs of a connection, waited for all at once: entries of its queue, messages of its client, signals of the engine, and its
//! timer.

use std::{future::poll_fn, pin::Pin, task::Poll};

use futures_util::StreamExt;
use kukuri_engine::{
    Signal,
    live::{Outgoing, QueueReceiver},
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, Sleep},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Error as WebSocketError, Message},
};

use super::wake_gate::WakeGate;

/// A message of the client, or how its connection ended.
pub(super) type Received = Option<Result<Message, WebSocketError>>;

/// Everything that is ready at one time.
pub(super) struct Turn {
    pub(super) outgoing: Option<Outgoing>,
    pub(super) received: Option<Received>,
    pub(super) wakeup: Option<Wakeup>,
}

/// The timer, or a signal of the engine.
pub(super) enum Wakeup {
    Timer,
    Signal(Signal),
}

type NextSignal = Pin<Box<dyn Future<Output = (Signal, watch::Receiver<Signal>)> + Send>>;

pub(super) struct Inputs {
    signal: NextSignal,
    timer: Pin<Box<Sleep>>,
    client_gate: WakeGate,
    wakeup_gate: WakeGate,
}

impl Inputs {
    pub(super) fn new(mut signals: watch::Receiver<Signal>, deadline: Instant) -> Self {
        // A signal that was sent before counts as well.
        signals.mark_changed();
        Self {
            signal: Box::pin(next_signal(signals)),
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            client_gate: WakeGate::new(),
            wakeup_gate: WakeGate::new(),
        }
    }

    pub(super) fn set_timer(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline);
        self.wakeup_gate.open();
    }

    /// Waits until something is ready. The socket is read only if the session passes it.
    pub(super) async fn next(
        &mut self,
        queue: &mut QueueReceiver,
        mut socket: Option<&mut WebSocketStream<TcpStream>>,
    ) -> Turn {
        poll_fn(|context| {
            // Live events are the most frequent input by far, so the queue is polled each time.
            let outgoing = queue.poll_next(context);
            let received = match &mut socket {
                Some(socket) => self.client_gate.poll(context, |context| socket.poll_next_unpin(context)),
                None => Poll::Pending,
            };
            let Self { signal, timer, wakeup_gate, .. } = self;
            let wakeup = wakeup_gate.poll(context, |context| match signal.as_mut().poll(context) {
                Poll::Ready((sent, signals)) => {
                    *signal = Box::pin(next_signal(signals));
                    Poll::Ready(Wakeup::Signal(sent))
                }
                Poll::Pending => timer.as_mut().poll(context).map(|()| Wakeup::Timer),
            });
            if outgoing.is_pending() && received.is_pending() && wakeup.is_pending() {
                return Poll::Pending;
            }
            Poll::Ready(Turn { outgoing: ready(outgoing), received: ready(received), wakeup: ready(wakeup) })
        })
        .await
    }
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

async fn next_signal(mut signals: watch::Receiver<Signal>) -> (Signal, watch::Receiver<Signal>) {
    let signal = match signals.changed().await {
        Ok(()) => *signals.borrow_and_update(),
        // The engine is gone.
        Err(_) => Signal { stopping: true, ..Signal::default() },
    };
    (signal, signals)
}
