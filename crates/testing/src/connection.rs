//! A WebSocket connection with little overhead: it sends prepared frames and returns messages as ranges of its read
//! buffer. It parses no JSON and copies no message.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::net::{TcpSocket, TcpStream};

use crate::frames::{CLOSE, FINAL, Frame, FrameBuffer, PONG, masked_frame, text_frame};

/// Size of the first read: small, as there may be thousands of connections.
const FIRST_READ: usize = 2 * 1024;
const MAX_READ: usize = 256 * 1024;

/// The handshake's key, and the accept value that RFC 6455 derives from it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The code of a closing frame that has none (RFC 6455, 7.1.5).
const NO_CODE: u16 = 1005;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The server answered the handshake with another status than 101.
    #[error("the relay refused the connection with status {status}: {body}")]
    NotUpgraded {
        /// The HTTP status.
        status: u16,
        /// The body of the answer.
        body: String,
    },
    /// The relay sent a closing frame.
    #[error("the relay closed the connection: {code} {reason} {notice}")]
    Closed {
        /// The code of the closing frame.
        code: u16,
        /// The reason in the closing frame.
        reason: String,
        /// The last NOTICE: usually the cause.
        notice: String,
    },
    /// The connection ended without a closing frame.
    #[error("the relay hung up: {0}")]
    Io(#[from] io::Error),
    /// The relay broke the protocol.
    #[error("the relay broke the protocol of WebSocket: {0}")]
    Protocol(&'static str),
}

type Result<T> = std::result::Result<T, ConnectionError>;

/// An open connection.
pub struct Connection {
    /// The sending half.
    pub sender: Sender,
    /// The receiving half.
    pub receiver: Receiver,
}

/// The state of both halves.
struct Shared {
    stream: TcpStream,
    /// A frame is being written; nothing may come between its parts.
    is_writing: AtomicBool,
    /// Pongs that wait until the frame is written.
    pongs: Mutex<Vec<u8>>,
}

impl Connection {
    /// Connects and upgrades to WebSocket.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::open_with(address, &[]).await
    }

    /// Like [`Connection::open`], with further HTTP headers.
    pub async fn open_with(address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self> {
        Self::upgrade(TcpStream::connect(address).await?, address, headers).await
    }

    /// Connects with a small receive buffer, so that the relay soon notices a client that does not read.
    pub async fn open_narrow(address: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(4 * 1024)?;
        Self::upgrade(socket.connect(address).await?, address, &[]).await
    }

    async fn upgrade(stream: TcpStream, address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self> {
        stream.set_nodelay(true)?;
        let shared = Arc::new(Shared { stream, is_writing: AtomicBool::new(false), pongs: Mutex::default() });
        let mut connection = Self {
            sender: Sender { shared: Arc::clone(&shared) },
            receiver: Receiver { shared, frames: FrameBuffer::default(), read_size: FIRST_READ, notice: String::new() },
        };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{headers}\r\n"
        );
        connection.send(request.as_bytes()).await?;
        connection.receiver.read_response().await?;
        Ok(connection)
    }

    /// Sends frames.
    pub async fn send(&mut self, frames: &[u8]) -> Result<()> {
        self.sender.send(frames).await
    }

    /// Sends a text message.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        self.send(&text_frame(text.as_bytes())).await
    }
}

/// The sending half.
pub struct Sender {
    shared: Arc<Shared>,
}

impl Sender {
    /// Sends frames with as few writes as the socket allows.
    pub async fn send(&mut self, frames: &[u8]) -> Result<()> {
        self.shared.is_writing.store(true, Ordering::Relaxed);
        self.write(frames).await?;
        self.shared.is_writing.store(false, Ordering::Relaxed);
        let pongs = std::mem::take(&mut *self.shared.pongs.lock().unwrap_or_else(PoisonError::into_inner));
        if pongs.is_empty() { Ok(()) } else { self.write(&pongs).await }
    }

    async fn write(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.shared.stream.try_write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.shared.stream.writable().await?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// The receiving half, with its read buffer.
pub struct Receiver {
    shared: Arc<Shared>,
    frames: FrameBuffer,
    read_size: usize,
    notice: String,
}

impl Receiver {
    /// The text of a message.
    pub fn text(&self, range: &Range<usize>) -> &[u8] {
        self.frames.text(range)
    }

    /// The beginning of a message, for error texts.
    pub fn excerpt(&self, range: &Range<usize>) -> String {
        String::from_utf8_lossy(self.frames.text(range)).chars().take(200).collect()
    }

    /// Waits for the next message. The range is valid until more is received.
    pub async fn receive(&mut self) -> Result<Range<usize>> {
        loop {
            if let Some(range) = self.next_buffered()? {
                return Ok(range);
            }
            self.fill().await?;
        }
    }

    /// Returns the next message if all of it is buffered. The range is valid until more is received.
    pub fn next_buffered(&mut self) -> Result<Option<Range<usize>>> {
        while let Some(frame) = self.frames.next_frame().map_err(ConnectionError::Protocol)? {
            match frame {
                Frame::Text(range) => {
                    if self.text(&range).starts_with(br#"["NOTICE""#) {
                        self.notice = self.excerpt(&range);
                    }
                    return Ok(Some(range));
                }
                Frame::Ping(payload) => self.reply(PONG, &payload),
                Frame::Close(payload) => {
                    self.reply(CLOSE, &payload);
                    let code = payload.first_chunk().map_or(NO_CODE, |code| u16::from_be_bytes(*code));
                    let reason = String::from_utf8_lossy(payload.get(2..).unwrap_or_default()).into_owned();
                    return Err(ConnectionError::Closed { code, reason, notice: self.notice.clone() });
                }
            }
        }
        Ok(None)
    }

    /// Sends a control frame now, or after the frame that is being written.
    fn reply(&self, opcode: u8, payload: &[u8]) {
        let frame = masked_frame(FINAL | opcode, [0; 4], payload);
        let is_sent = !self.shared.is_writing.load(Ordering::Relaxed) && self.shared.stream.try_write(&frame).is_ok();
        if !is_sent {
            self.shared.pongs.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&frame);
        }
    }

    /// Waits until more bytes are received.
    pub async fn fill(&mut self) -> Result<()> {
        let buffer = self.frames.reserve(self.read_size);
        loop {
            let capacity = buffer.capacity() - buffer.len();
            match self.shared.stream.try_read_buf(buffer) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(read) => {
                    if read == capacity {
                        self.read_size = (self.read_size * 4).min(MAX_READ);
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.shared.stream.readable().await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn read_response(&mut self) -> Result<()> {
        let end = loop {
            if let Some(end) = self.frames.unread().windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let head = String::from_utf8_lossy(&self.frames.unread()[..end]).into_owned();
        let header = |name: &str| {
            let headers = head.lines().filter_map(|line| line.split_once(':'));
            headers.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(ConnectionError::Protocol("no answer of HTTP"))?;
        if status == 101 {
            self.frames.skip(end);
            let is_accepted = header("sec-websocket-accept") == Some(ACCEPT);
            return if is_accepted { Ok(()) } else { Err(ConnectionError::Protocol("wrong Sec-WebSocket-Accept")) };
        }
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
        while self.frames.unread().len() < end + length {
            self.fill().await?;
        }
        let body = String::from_utf8_lossy(&self.frames.unread()[end..end + length]).into_owned();
        Err(ConnectionError::NotUpgraded { status, body })
    }
}
