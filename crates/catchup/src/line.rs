//! Frames on a stream: a length of four bytes, then as many. Every read and write has its time.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

use crate::{message::Message, report::End, settings::Settings};

/// How long the last word may take: nobody waits for it.
const LAST_WORD: Duration = Duration::from_secs(1);

/// A stream to a peer.
pub(crate) struct Line<S> {
    stream: S,
    frame_bytes: usize,
    patience: Duration,
    /// When the session has to end.
    over_at: Instant,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// The other has said its last word.
    is_ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    pub(crate) fn new(stream: S, settings: &Settings) -> Self {
        Self {
            stream,
            frame_bytes: settings.frame_bytes,
            patience: settings.patience,
            over_at: Instant::now() + settings.longest,
            bytes_in: 0,
            bytes_out: 0,
            is_ended: false,
        }
    }

    pub(crate) async fn send(&mut self, message: &Message) -> Result<(), End> {
        let deadline = self.deadline()?;
        let frame = message.encode();
        self.bytes_out += frame.len() as u64 + 4;
        let stream = &mut self.stream;
        let write = async {
            stream.write_all(&(frame.len() as u32).to_be_bytes()).await?;
            stream.write_all(&frame).await?;
            stream.flush().await
        };
        timeout_at(deadline, write).await.map_err(|_| self.late())?.map_err(End::from)
    }

    pub(crate) async fn receive(&mut self) -> Result<Message, End> {
        let deadline = self.deadline()?;
        let most = self.frame_bytes;
        let stream = &mut self.stream;
        let read = async {
            let length = stream.read_u32().await? as usize;
            if length > most {
                return Err(End::Misbehaved("a frame is too long"));
            }
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame).await?;
            Ok(frame)
        };
        let frame = match timeout_at(deadline, read).await {
            Ok(frame) => frame?,
            Err(_) => return Err(self.late()),
        };
        self.bytes_in += frame.len() as u64 + 4;
        let message = Message::decode(&frame)?;
        self.is_ended = matches!(message, Message::Bye { .. });
        Ok(message)
    }

    /// Says why it ends, if the other still listens.
    pub(crate) async fn close(&mut self, message: &Message) {
        self.over_at = Instant::now() + LAST_WORD;
        if self.is_ended || self.send(message).await.is_ok() {
            let _ = timeout_at(self.over_at, self.stream.shutdown()).await;
        }
    }

    fn deadline(&self) -> Result<Instant, End> {
        let now = Instant::now();
        if now >= self.over_at { Err(End::Over) } else { Ok((now + self.patience).min(self.over_at)) }
    }

    fn late(&self) -> End {
        if Instant::now() >= self.over_at { End::Over } else { End::Silent }
    }
}
