//! Frames on a byte stream: a length of four bytes, then the message. Every read and write has a timeout.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

use crate::{message::Message, report::SessionEnd, settings::Settings};

const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct FrameStream<S> {
    stream: S,
    settings: Settings,
    session_deadline: Instant,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The peer has sent `Bye`.
    is_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FrameStream<S> {
    pub(crate) fn new(stream: S, settings: &Settings) -> Self {
        Self {
            stream,
            settings: *settings,
            session_deadline: Instant::now() + settings.session_timeout,
            bytes_in: 0,
            bytes_out: 0,
            is_ended: false,
        }
    }

    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), SessionEnd> {
        let deadline = self.deadline()?;
        let frame = message.encode();
        self.bytes_out += frame.len() as u64 + 4;
        let stream = &mut self.stream;
        let write = async {
            stream.write_all(&(frame.len() as u32).to_be_bytes()).await?;
            stream.write_all(&frame).await?;
            stream.flush().await
        };
        timeout_at(deadline, write).await.map_err(|_| self.timeout_end())?.map_err(SessionEnd::from)
    }

    /// Receives the answer to a message. `Bye` is none: it ends the session.
    pub(crate) async fn receive_answer(&mut self) -> Result<Message, SessionEnd> {
        match self.receive().await? {
            Message::Bye { code } => Err(SessionEnd::from_code(code)),
            answer => Ok(answer),
        }
    }

    pub(crate) async fn receive(&mut self) -> Result<Message, SessionEnd> {
        let deadline = self.deadline()?;
        let max_len = self.settings.max_frame_bytes;
        let stream = &mut self.stream;
        let read = async {
            let length = stream.read_u32().await? as usize;
            if length > max_len {
                return Err(SessionEnd::Misbehaved("a frame is too long"));
            }
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame).await?;
            Ok(frame)
        };
        let frame = timeout_at(deadline, read).await.map_err(|_| self.timeout_end())??;
        self.bytes_in += frame.len() as u64 + 4;
        let message = Message::decode(&frame)?;
        self.is_ended = matches!(message, Message::Bye { .. });
        Ok(message)
    }

    /// Sends `Bye`, unless the peer has, and closes the stream.
    pub(crate) async fn close_with(&mut self, bye: &Message) {
        self.session_deadline = Instant::now() + CLOSE_TIMEOUT;
        if self.is_ended || self.send(bye).await.is_ok() {
            let _ = timeout_at(self.session_deadline, self.stream.shutdown()).await;
        }
    }

    fn deadline(&self) -> Result<Instant, SessionEnd> {
        let now = Instant::now();
        if now >= self.session_deadline {
            Err(SessionEnd::LimitReached)
        } else {
            Ok((now + self.settings.io_timeout).min(self.session_deadline))
        }
    }

    fn timeout_end(&self) -> SessionEnd {
        if Instant::now() >= self.session_deadline { SessionEnd::LimitReached } else { SessionEnd::PeerTimeout }
    }
}
