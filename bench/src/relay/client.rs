//! A WebSocket client that costs little: it sends frames that were made beforehand and finds the frames in what it
//! receives, nothing more.

use std::{
    io::ErrorKind,
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, bail, ensure};
use tokio::net::{TcpSocket, TcpStream};

use super::{
    frames::{Frame, Frames, pong},
    message::Message,
};

/// Bytes that are read at once: few at first, as there may be thousands of clients.
const FIRST_READ: usize = 2 * 1024;
const LARGEST_READ: usize = 256 * 1024;

/// A connection.
pub(crate) struct Client {
    pub(crate) saying: Saying,
    pub(crate) hearing: Hearing,
}

/// What both halves share.
struct Line {
    stream: TcpStream,
    /// A frame is being written; nothing may come between its parts.
    is_writing: AtomicBool,
    /// Pongs that wait for it.
    pongs: Mutex<Vec<u8>>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::upgrade(TcpStream::connect(address).await?, address).await
    }

    /// One that takes little off the network before somebody reads it.
    pub(crate) async fn connect_narrow(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4 * 1024)?;
        Self::upgrade(socket.connect(address).await?, address).await
    }

    async fn upgrade(stream: TcpStream, address: SocketAddr) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        let line = Arc::new(Line { stream, is_writing: AtomicBool::new(false), pongs: Mutex::default() });
        let mut client = Self {
            saying: Saying { line: Arc::clone(&line) },
            hearing: Hearing { line, frames: Frames::default(), at_once: FIRST_READ, notice: String::new() },
        };
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        client.say(request.as_bytes()).await?;
        client.hearing.skip_response().await?;
        Ok(client)
    }

    pub(crate) async fn say(&mut self, frames: &[u8]) -> anyhow::Result<()> {
        self.saying.say(frames).await
    }

    /// Subscribes and waits for the end of what is stored.
    pub(crate) async fn subscribe(&mut self, request: &[u8]) -> anyhow::Result<usize> {
        self.say(request).await?;
        let mut stored = 0;
        loop {
            let place = self.hearing.hear().await?;
            match Message::read(self.hearing.text(&place)) {
                Message::Event { .. } => stored += 1,
                Message::Eose => return Ok(stored),
                Message::Closed { .. } => bail!("refused: {}", self.hearing.shown(&place)),
                Message::Ok { .. } | Message::Other => {}
            }
        }
    }
}

/// The sending half.
pub(crate) struct Saying {
    line: Arc<Line>,
}

impl Saying {
    /// Sends frames, as many at once as the network takes.
    pub(crate) async fn say(&mut self, frames: &[u8]) -> anyhow::Result<()> {
        self.line.is_writing.store(true, Ordering::Relaxed);
        self.write(frames).await?;
        self.line.is_writing.store(false, Ordering::Relaxed);
        let pongs = std::mem::take(&mut *self.line.pongs.lock().unwrap_or_else(PoisonError::into_inner));
        if pongs.is_empty() { Ok(()) } else { self.write(&pongs).await }
    }

    async fn write(&self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            match self.line.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.line.stream.writable().await?,
                Err(error) => return Err(error).context("the relay hung up"),
            }
        }
        Ok(())
    }
}

/// The receiving half, and what it has received but not looked at.
pub(crate) struct Hearing {
    line: Arc<Line>,
    frames: Frames,
    at_once: usize,
    /// The last NOTICE: usually the reason for what happens next.
    notice: String,
}

impl Hearing {
    /// The text of a message.
    pub(crate) fn text(&self, place: &Range<usize>) -> &[u8] {
        self.frames.text(place)
    }

    /// The same, to be shown to people.
    pub(crate) fn shown(&self, place: &Range<usize>) -> String {
        String::from_utf8_lossy(self.frames.text(place)).chars().take(200).collect()
    }

    /// Waits for the next message.
    pub(crate) async fn hear(&mut self) -> anyhow::Result<Range<usize>> {
        loop {
            if let Some(place) = self.next_heard()? {
                return Ok(place);
            }
            self.fill().await?;
        }
    }

    /// The next message, if it has been received. Its place is good until more is received.
    pub(crate) fn next_heard(&mut self) -> anyhow::Result<Option<Range<usize>>> {
        while let Some(frame) = self.frames.next()? {
            match frame {
                Frame::Text(place) => {
                    if self.text(&place).starts_with(br#"["NOTICE""#) {
                        self.notice = self.shown(&place);
                    }
                    return Ok(Some(place));
                }
                Frame::Ping(about) => self.answer(&pong(&about)),
                Frame::Close(about) => {
                    let reason = String::from_utf8_lossy(about.get(2..).unwrap_or_default()).into_owned();
                    bail!("the relay closed: {reason} {}", self.notice)
                }
            }
        }
        Ok(None)
    }

    /// Sends a pong now, or after what is being sent.
    fn answer(&self, pong: &[u8]) {
        let is_sent = !self.line.is_writing.load(Ordering::Relaxed) && self.line.stream.try_write(pong).is_ok();
        if !is_sent {
            self.line.pongs.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(pong);
        }
    }

    /// Waits for more.
    pub(crate) async fn fill(&mut self) -> anyhow::Result<()> {
        let buffer = self.frames.room(self.at_once);
        loop {
            let room = buffer.capacity() - buffer.len();
            match self.line.stream.try_read_buf(buffer) {
                Ok(0) => bail!("the relay hung up {}", self.notice),
                Ok(read) => {
                    if read == room {
                        self.at_once = (self.at_once * 4).min(LARGEST_READ);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.line.stream.readable().await?,
                Err(error) => return Err(error).context("the relay hung up"),
            }
        }
    }

    async fn skip_response(&mut self) -> anyhow::Result<()> {
        loop {
            let end = self.frames.rest().windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&self.frames.rest()[..end]);
                let first = head.lines().next().context("an answer")?;
                ensure!(first.contains(" 101 "), "{first}");
                self.frames.skip(end + 4);
                return Ok(());
            }
            self.fill().await?;
        }
    }
}
