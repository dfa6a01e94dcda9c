//! Sending to a client, and closing its connection. A client that does not read is given a while, then it is closed.
//!
//! Reading is the library's business, and so are the frames it answers by itself: a pong, the answer to a close. Those
//! are always sent to their end before anything else is, so that frames do not mix.

use std::{io, time::Duration};

use futures_util::{FutureExt, SinkExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{
    End, Session,
    frames::{Frames, Opcode},
    too_slow,
};
use crate::{metrics::Closing, queue::Queue};

/// What waits is sent when it is this much, or when nothing else comes.
const ENOUGH_BYTES: usize = 64 * 1024;
/// How long a client may take for what is being sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a client may take to hear why it is closed: a slow one may yet catch up, a stopping relay does not wait.
const SLOW_CLOSE: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(1);
/// How often a client that waits for an answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The most of a reason that fits into a close frame.
const LONGEST_REASON: usize = 123;

impl Session {
    pub(super) async fn send(&mut self, text: String) -> Result<(), End> {
        self.feed(&[text.as_bytes()]).await?;
        self.flush().await
    }

    /// Adds a message, in parts, to what is sent with the next flush, or before.
    pub(super) async fn feed(&mut self, parts: &[&[u8]]) -> Result<(), End> {
        self.frames.push(Opcode::Text, parts);
        if self.has_enough_to_send() { self.flush().await } else { Ok(()) }
    }

    pub(super) fn has_enough_to_send(&self) -> bool {
        self.frames.unsent().len() >= ENOUGH_BYTES
    }

    pub(super) async fn flush(&mut self) -> Result<(), End> {
        // Nearly always there is room, and nothing has to be waited for.
        while !self.frames.unsent().is_empty() {
            match self.socket.get_ref().try_write(self.frames.unsent()) {
                Ok(0) => return Err(End::Gone),
                Ok(count) => self.frames.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return in_time(write_out(self.socket.get_mut(), &mut self.frames), &self.queue).await;
                }
                Err(_) => return Err(End::Gone),
            }
        }
        Ok(())
    }

    /// Waits for something to be read for this client, for as long as it is there. Nobody else needs it.
    pub(super) async fn while_there<T>(&self, reading: impl Future<Output = T>) -> Result<T, End> {
        tokio::pin!(reading);
        loop {
            tokio::select! {
                read = &mut reading => return Ok(read),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    // What it has said meanwhile stays unread.
                    let ready = self.socket.get_ref().ready(Interest::READABLE);
                    if let Some(Ok(ready)) = ready.now_or_never()
                        && ready.is_read_closed()
                    {
                        return Err(End::Gone);
                    }
                }
            }
        }
    }

    pub(super) async fn ping(&mut self) -> Result<(), End> {
        self.frames.push(Opcode::Ping, &[]);
        self.flush().await
    }

    /// Sends the pong that the library has made.
    pub(super) async fn answer_ping(&mut self) -> Result<(), End> {
        let flush = async { self.socket.flush().await.map_err(io::Error::other) };
        in_time(flush, &self.queue).await
    }

    /// Sends the answer to a close that the library has made.
    pub(super) async fn answer_close(&mut self) {
        let _ = timeout(CLOSE, self.socket.flush()).await;
    }

    /// Says why, after what was being sent, and leaves.
    pub(super) async fn close(&mut self, why: Closing, code: CloseCode, reason: &str) {
        let reason = &reason[..reason.floor_char_boundary(LONGEST_REASON)];
        self.frames.push(Opcode::Close, &[&u16::from(code).to_be_bytes(), reason.as_bytes()]);
        let patience = if why == Closing::Slow { SLOW_CLOSE } else { CLOSE };
        let stream = self.socket.get_mut();
        if !matches!(timeout(patience, write_out(stream, &mut self.frames)).await, Ok(Ok(()))) {
            return;
        }
        // What the client sent meanwhile is read: a socket that is closed with something unread is reset, and the
        // client might lose the reason.
        let _ = timeout(CLOSE, async {
            stream.shutdown().await?;
            let mut unread = [0; 4096];
            while stream.read(&mut unread).await? > 0 {}
            Ok::<_, io::Error>(())
        })
        .await;
    }
}

/// Can be given up at any point and gone on with.
async fn write_out(stream: &mut TcpStream, frames: &mut Frames) -> io::Result<()> {
    while !frames.unsent().is_empty() {
        let count = stream.write(frames.unsent()).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        frames.advance(count);
    }
    Ok(())
}

/// A client that takes too long, or falls too far behind meanwhile, is closed.
async fn in_time(sending: impl Future<Output = io::Result<()>>, queue: &Queue) -> Result<(), End> {
    tokio::select! {
        sent = timeout(SEND_TIMEOUT, sending) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Gone),
            Err(_) => Err(too_slow("a message was not taken in time")),
        },
        () = queue.overflowed() => Err(too_slow("live events overflowed")),
    }
}
