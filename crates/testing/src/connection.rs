//! A WebSocket connection with little overhead: it sends prepared frames and returns messages as slices of its read
//! buffer. It parses no JSON and copies no message.

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

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
    pub(crate) stream: TcpStream,
    frames: FrameBuffer,
    read_size: usize,
    /// Control frames that the socket had no room for. They are sent before the next message.
    replies: Vec<u8>,
    /// The last NOTICE.
    notice: String,
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

    /// Like [`Connection::open`], from a local address: 127.0.0.2 is another client than 127.0.0.1.
    pub async fn open_from(local: IpAddr, address: SocketAddr) -> Result<Self> {
        Self::upgrade(connect_from(local, address).await?, address, &[]).await
    }

    async fn upgrade(stream: TcpStream, address: SocketAddr, headers: &[(&str, &str)]) -> Result<Self> {
        stream.set_nodelay(true)?;
        let (frames, replies, notice) = (FrameBuffer::default(), Vec::new(), String::new());
        let mut connection = Self { stream, frames, read_size: FIRST_READ, replies, notice };
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{headers}\r\n"
        );
        connection.send(request.as_bytes()).await?;
        connection.read_response().await?;
        Ok(connection)
    }

    /// Sends frames with as few writes as the socket allows.
    pub async fn send(&mut self, frames: &[u8]) -> Result<()> {
        self.stream.write_all(&std::mem::take(&mut self.replies)).await?;
        Ok(self.stream.write_all(frames).await?)
    }

    /// Sends a text message.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        self.send(&text_frame(text.as_bytes())).await
    }

    /// Waits for the next message.
    pub async fn receive(&mut self) -> Result<&[u8]> {
        let range = loop {
            match self.next_range()? {
                Some(range) => break range,
                None => self.fill().await?,
            }
        };
        Ok(self.frames.text(&range))
    }

    /// Returns the next message if all of it is buffered.
    pub fn next_buffered(&mut self) -> Result<Option<&[u8]>> {
        let range = self.next_range()?;
        Ok(range.map(|range| self.frames.text(&range)))
    }

    fn next_range(&mut self) -> Result<Option<Range<usize>>> {
        while let Some(frame) = self.frames.next_frame().map_err(ConnectionError::Protocol)? {
            match frame {
                Frame::Text(range) => {
                    if self.frames.text(&range).starts_with(br#"["NOTICE""#) {
                        self.notice = excerpt(self.frames.text(&range));
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

    /// Sends a control frame without waiting.
    fn reply(&mut self, opcode: u8, payload: &[u8]) {
        self.replies.extend(masked_frame(FINAL | opcode, [0; 4], payload));
        let sent = self.stream.try_write(&self.replies).unwrap_or(0);
        self.replies.drain(..sent);
    }

    /// Waits until more bytes are received.
    pub async fn fill(&mut self) -> Result<()> {
        let buffer = self.frames.reserve(self.read_size);
        let capacity = buffer.capacity() - buffer.len();
        let read = self.stream.read_buf(buffer).await?;
        if read == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if read == capacity {
            self.read_size = (self.read_size * 4).min(MAX_READ);
        }
        Ok(())
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

/// Connects from a local address.
pub async fn connect_from(local: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

/// The beginning of a message, for error texts.
pub fn excerpt(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(200).collect()
}
