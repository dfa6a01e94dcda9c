//! A client that sends bytes: what a WebSocket library would never do.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::PATIENCE;

/// Asks for a WebSocket as a browser does.
const HANDSHAKE: &str = "GET / HTTP/1.1\r\nhost: relay\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
}

impl Raw {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap() }
    }

    /// A WebSocket, after its first message.
    pub(crate) async fn upgraded(address: SocketAddr) -> Self {
        let mut raw = Self::connect(address).await;
        raw.send(HANDSHAKE).await;
        let head = raw.head().await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        // The accept key of this very key, by RFC 6455.
        assert!(head.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        let (opcode, hello) = raw.frame().await.unwrap();
        assert!(opcode == 1 && hello.starts_with(b"[\"AUTH\""), "{opcode}");
        raw
    }

    /// Sends what it can: the other end may be gone already.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    /// The head of an HTTP answer.
    pub(crate) async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = timeout(PATIENCE, self.stream.read_u8()).await.expect("an answer");
            head.push(byte.unwrap_or_else(|error| panic!("{error} after {}", String::from_utf8_lossy(&head))));
        }
        String::from_utf8(head).unwrap()
    }

    /// The body of an HTTP answer, which is known.
    pub(crate) async fn body(&mut self, expected: &str) {
        let mut body = vec![0; expected.len()];
        timeout(PATIENCE, self.stream.read_exact(&mut body)).await.expect("a body").unwrap();
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }

    /// Everything until the other end closes, in whatever way it does.
    pub(crate) async fn everything(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while let Ok(read @ 1..) = timeout(PATIENCE, self.stream.read(&mut part)).await.expect("an end") {
            bytes.extend_from_slice(&part[..read]);
        }
        bytes
    }

    /// The next frame of the relay: its opcode and what is in it.
    pub(crate) async fn frame(&mut self) -> Option<(u8, Vec<u8>)> {
        timeout(PATIENCE, self.read_frame()).await.expect("a frame or an end").ok()
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

    /// The code and the reason with which the relay closes; what it says before is passed over.
    pub(crate) async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            let (opcode, payload) = self.frame().await?;
            if opcode == 8 {
                let (code, reason) = payload.split_at_checked(2)?;
                return Some((u16::from_be_bytes([code[0], code[1]]), String::from_utf8(reason.to_vec()).unwrap()));
            }
        }
    }
}

/// A frame as clients send it: the last of its message, masked.
pub(crate) fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    masked(0x80 | opcode, payload)
}

/// A masked frame with this first byte.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        short @ ..126 => bytes.push(0x80 | short as u8),
        middle @ ..=0xffff => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(middle as u16).to_be_bytes());
        }
        long => {
            bytes.push(0x80 | 127);
            bytes.extend_from_slice(&(long as u64).to_be_bytes());
        }
    }
    let mask = [1, 2, 3, 4];
    bytes.extend_from_slice(&mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}
