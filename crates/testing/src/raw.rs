//! A TCP connection that sends any bytes: HTTP, and WebSocket frames that break the rules.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    connection::{Connection, excerpt},
    frames::{FINAL, masked_frame},
    waiting::TIMEOUT,
};

/// A TCP connection without a protocol.
pub struct Raw {
    /// The TCP socket.
    pub stream: TcpStream,
}

impl Raw {
    /// Connects, and sends nothing yet.
    pub async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// Upgrades to WebSocket and reads the relay's first message.
    pub async fn upgraded(address: SocketAddr) -> Self {
        let mut connection = Connection::open(address).await.unwrap();
        let hello = connection.receive().await.unwrap();
        assert!(hello.starts_with(b"[\"AUTH\""), "{}", excerpt(hello));
        Self { stream: connection.stream }
    }

    /// Sends bytes. The other end may have closed already.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// Reads the head of an HTTP answer.
    pub async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = timeout(TIMEOUT, self.stream.read_u8()).await.expect("an answer");
            head.push(byte.unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&head))));
        }
        String::from_utf8(head).unwrap()
    }

    /// Reads the body of an HTTP answer. Panics unless it is `expected`.
    pub async fn body(&mut self, expected: &str) {
        let mut body = vec![0; expected.len()];
        timeout(TIMEOUT, self.stream.read_exact(&mut body)).await.expect("a body").unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }

    /// Reads until the other end closes, or resets, the connection.
    pub async fn everything(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = timeout(TIMEOUT, self.stream.read_to_end(&mut bytes)).await.expect("an end");
        bytes
    }

    /// Reads the relay's next frame: opcode and payload.
    pub async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        timeout(TIMEOUT, self.read_frame()).await.expect("a frame or an end").ok()
    }

    async fn read_frame(&mut self) -> std::io::Result<(u8, Vec<u8>)> {
        let opcode = self.stream.read_u8().await? & 0x0f;
        let length = match self.stream.read_u8().await? {
            126 => usize::from(self.stream.read_u16().await?),
            127 => self.stream.read_u64().await? as usize,
            short => usize::from(short),
        };
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await?;
        Ok((opcode, payload))
    }

    /// Reads until the relay's closing frame, and returns its code and reason.
    pub async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            let (opcode, payload) = self.frame().await?;
            if opcode == 8 {
                let (code, reason) = payload.split_at_checked(2)?;
                return Some((u16::from_be_bytes([code[0], code[1]]), String::from_utf8(reason.to_vec()).unwrap()));
            }
        }
    }
}

/// Encodes a client's frame: final and masked.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    masked(FINAL | opcode, payload)
}

/// Encodes a masked frame with this first byte.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    masked_frame(first, [1, 2, 3, 4], payload)
}
