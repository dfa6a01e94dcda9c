//! Sending to a client, and closing its connection. A client that does not read is given a while, then it is closed.

use std::time::Duration;

use futures_util::SinkExt;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{
    Error as WireError, Message, Utf8Bytes,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::{End, Session, too_slow};
use crate::{metrics::Closing, queue::Queue};

/// How long a client may take for what is being sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client may take to hear why it is closed: a slow one may yet catch up, a stopping relay does not wait.
const SLOW_CLOSE: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(1);

impl Session {
    pub(super) async fn send(&mut self, text: String) -> Result<(), End> {
        self.feed(text).await?;
        self.flush().await
    }

    /// Adds to what is sent with the next flush, or before.
    pub(super) async fn feed(&mut self, text: String) -> Result<(), End> {
        in_time(self.socket.feed(Message::Text(Utf8Bytes::from(text))), &self.queue).await
    }

    pub(super) async fn flush(&mut self) -> Result<(), End> {
        in_time(self.socket.flush(), &self.queue).await
    }

    pub(super) async fn send_message(&mut self, message: Message) -> Result<(), End> {
        in_time(self.socket.send(message), &self.queue).await
    }

    pub(super) async fn close(&mut self, why: Closing, code: CloseCode, reason: String) {
        let patience = if why == Closing::Slow { SLOW_CLOSE } else { CLOSE };
        let frame = CloseFrame { code, reason: Utf8Bytes::from(reason) };
        let _ = timeout(patience, self.socket.send(Message::Close(Some(frame)))).await;
    }
}

/// A client that takes too long, or falls too far behind meanwhile, is closed.
async fn in_time(sending: impl Future<Output = Result<(), WireError>>, queue: &Queue) -> Result<(), End> {
    tokio::pin!(sending);
    // Nearly always there is room, and neither a timer nor a waiter is needed.
    if let std::task::Poll::Ready(sent) = futures_util::poll!(&mut sending) {
        return sent.map_err(|_| End::Gone);
    }
    tokio::select! {
        sent = timeout(SEND_TIMEOUT, sending) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(too_slow("a message was not taken in time")),
        },
        () = queue.overflowed() => Err(too_slow("live events overflowed")),
    }
}
