//! Sending to a client, and closing its connection. A client that does not read in time is closed.
//!
//! tungstenite reads, and makes pongs and answers to a close by itself. Those are always sent completely before anything
//! else, so that frames do not mix.

use std::{io, time::Duration};

use futures_util::{FutureExt, SinkExt};
use kukuri_engine::live::ClientQueue;
use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{
    Session, SessionEnd,
    frames::{Frames, Opcode},
    too_slow,
};
use crate::{allowance::SendAllowance, metrics::CloseCause};

/// Time for a client to take a pong, and its allowance for other messages: see [`crate::allowance`].
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for a client to read why it is closed: a slow one may yet catch up, a stopping relay does not wait.
const SLOW_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a session that waits for the store checks that its client is still connected.
const CONNECTED_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes of a reason that fit into a close frame (RFC 6455).
const MAX_REASON_BYTES: usize = 123;

impl Session {
    pub(super) async fn send(&mut self, text: String) -> Result<(), SessionEnd> {
        self.buffer(&[text.as_bytes()]).await?;
        self.flush().await
    }

    /// Adds a message, in parts, to the send buffer.
    pub(super) async fn buffer(&mut self, parts: &[&[u8]]) -> Result<(), SessionEnd> {
        if !self.try_buffer(parts) {
            self.flush().await?;
            self.frames.push(Opcode::Text, parts);
        }
        if self.frames.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Adds a message to the send buffer, if it has room for it.
    pub(super) fn try_buffer(&mut self, parts: &[&[u8]]) -> bool {
        let has_room = self.frames.has_room_for(parts.iter().map(|part| part.len()).sum());
        if has_room {
            self.frames.push(Opcode::Text, parts);
        }
        has_room
    }

    pub(super) async fn flush(&mut self) -> Result<(), SessionEnd> {
        // The socket nearly always has room.
        while !self.frames.unsent().is_empty() {
            match self.socket.get_ref().try_write(self.frames.unsent()) {
                Ok(0) => return Err(SessionEnd::Gone),
                Ok(count) => {
                    self.frames.advance(count);
                    self.allowance.refill(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.flush_slowly().await,
                Err(_) => return Err(SessionEnd::Gone),
            }
        }
        Ok(())
    }

    /// Flushes to a client that does not keep up. Closes it if it takes too little, or if its queue overflows meanwhile.
    async fn flush_slowly(&mut self) -> Result<(), SessionEnd> {
        let Self { socket, frames, allowance, queue, .. } = self;
        tokio::select! {
            flushed = write_at_min_rate(socket.get_mut(), frames, allowance) => flushed,
            () = queue.overflowed() => Err(too_slow("live events overflowed")),
        }
    }

    /// Waits for an answer of the store, and gives it up if the client disconnects.
    pub(super) async fn while_connected<T>(&self, reading: impl Future<Output = T>) -> Result<T, SessionEnd> {
        tokio::pin!(reading);
        loop {
            tokio::select! {
                // Most answers are ready at once, and need no timer.
                biased;
                read = &mut reading => return Ok(read),
                () = tokio::time::sleep(CONNECTED_INTERVAL) => {
                    // Only asks for readiness: what the client sent stays unread.
                    let ready = self.socket.get_ref().ready(Interest::READABLE);
                    if let Some(Ok(ready)) = ready.now_or_never()
                        && ready.is_read_closed()
                    {
                        return Err(SessionEnd::Gone);
                    }
                }
            }
        }
    }

    pub(super) async fn ping(&mut self) -> Result<(), SessionEnd> {
        self.frames.push(Opcode::Ping, &[]);
        self.flush().await
    }

    /// Sends the pong that tungstenite has made.
    pub(super) async fn send_pong(&mut self) -> Result<(), SessionEnd> {
        let flush = async { self.socket.flush().await.map_err(io::Error::other) };
        within_timeout(flush, &self.queue).await
    }

    /// Sends the answer to a close that tungstenite has made.
    pub(super) async fn answer_close(&mut self) {
        let _ = timeout(CLOSE_TIMEOUT, self.socket.flush()).await;
    }

    /// Sends a close frame after what was being sent, and disconnects.
    pub(super) async fn close(&mut self, cause: CloseCause, code: CloseCode, reason: &str) {
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
        self.frames.push(Opcode::Close, &[&u16::from(code).to_be_bytes(), reason.as_bytes()]);
        let patience = if cause == CloseCause::Slow { SLOW_CLOSE_TIMEOUT } else { CLOSE_TIMEOUT };
        let stream = self.socket.get_mut();
        if !matches!(timeout(patience, write_out(stream, &mut self.frames)).await, Ok(Ok(()))) {
            return;
        }
        // Reads what the client sent meanwhile: a socket closed with unread bytes is reset, and the client might lose the
        // reason.
        let _ = timeout(CLOSE_TIMEOUT, async {
            stream.shutdown().await?;
            let mut unread = [0; 4096];
            while stream.read(&mut unread).await? > 0 {}
            Ok::<_, io::Error>(())
        })
        .await;
    }
}

/// Cancel-safe: can be dropped at any point and continued.
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

/// Writes all frames to a client that takes them at the least rate.
async fn write_at_min_rate<S: AsyncWrite + Unpin>(
    stream: &mut S,
    frames: &mut Frames,
    allowance: &mut SendAllowance,
) -> Result<(), SessionEnd> {
    while !frames.unsent().is_empty() {
        let began = Instant::now();
        let count = match timeout(allowance.left(), stream.write(frames.unsent())).await {
            Ok(Ok(0) | Err(_)) => return Err(SessionEnd::Gone),
            Ok(Ok(count)) => count,
            Err(_) => return Err(too_slow("a message was not taken in time")),
        };
        allowance.take(began.elapsed());
        allowance.refill(count);
        frames.advance(count);
    }
    Ok(())
}

/// Closes a client that takes too long, or whose queue overflows meanwhile.
async fn within_timeout(sending: impl Future<Output = io::Result<()>>, queue: &ClientQueue) -> Result<(), SessionEnd> {
    tokio::select! {
        sent = timeout(SEND_TIMEOUT, sending) => match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(SessionEnd::Gone),
            Err(_) => Err(too_slow("a message was not taken in time")),
        },
        () = queue.overflowed() => Err(too_slow("live events overflowed")),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::session::frames::FLUSH_BYTES;

    /// Sends an answer of 8 MiB to a client that reads this many bytes a second. Returns whether it was sent, and the seconds.
    async fn send_to_reader_of(bytes_per_second: usize) -> (bool, u64) {
        let (mut server, mut client) = duplex(16 * 1024);
        tokio::spawn(async move {
            let mut buffer = vec![0; bytes_per_second / 10];
            while client.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let (mut frames, mut allowance, began) = (Frames::default(), SendAllowance::new(SEND_TIMEOUT), Instant::now());
        for _ in 0..128 {
            frames.push(Opcode::Text, &[&[b'x'; FLUSH_BYTES]]);
            if write_at_min_rate(&mut server, &mut frames, &mut allowance).await.is_err() {
                return (false, began.elapsed().as_secs());
            }
        }
        (true, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_answer_is_taken_at_the_least_rate_or_its_client_is_closed() {
        // Y-2, W-5
        let (is_sent, seconds) = send_to_reader_of(3_500).await;
        assert!(!is_sent && seconds < 40, "{seconds}");
        let (is_sent, seconds) = send_to_reader_of(12_000).await;
        assert!(!is_sent && seconds < 120, "{seconds}");
        let (is_sent, seconds) = send_to_reader_of(20_000).await;
        assert!(is_sent && seconds > 300, "{seconds}");
    }
}
