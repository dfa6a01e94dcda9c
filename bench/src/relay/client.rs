//! A WebSocket client that costs little: it sends frames that were made beforehand and finds the frames in what it
//! receives, nothing more.

use std::{net::SocketAddr, ops::Range};

use anyhow::{Context, bail};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// A text message as a client's frame. The mask is zero: allowed, and it leaves the text as it is.
pub(crate) fn frame(text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(text.len() + 14);
    frame.push(0x80 | TEXT);
    match text.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(text);
    frame
}

/// A connection.
pub(crate) struct Client {
    pub(crate) saying: OwnedWriteHalf,
    pub(crate) hearing: Hearing,
}

impl Client {
    /// Connects and waits for the relay's challenge.
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reading, mut saying) = stream.into_split();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        saying.write_all(request.as_bytes()).await?;
        let mut hearing = Hearing { reading, buffer: Vec::with_capacity(1024), start: 0 };
        hearing.skip_response().await?;
        let hello = hearing.hear().await?;
        if !hearing.text(&hello).starts_with(br#"["AUTH""#) {
            bail!("the relay did not begin with a challenge");
        }
        Ok(Self { saying, hearing })
    }

    pub(crate) async fn say(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.saying.write_all(frame).await?)
    }
}

/// The receiving half, and what it has received but not looked at.
pub(crate) struct Hearing {
    reading: OwnedReadHalf,
    buffer: Vec<u8>,
    start: usize,
}

impl Hearing {
    /// The text of a message.
    pub(crate) fn text(&self, place: &Range<usize>) -> &[u8] {
        &self.buffer[place.clone()]
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
        while let Some((code, text)) = parse(&self.buffer[self.start..])? {
            let text = self.start + text.start..self.start + text.end;
            self.start = text.end;
            match code {
                TEXT => return Ok(Some(text)),
                // No measurement takes long enough for the relay to give us up.
                PING => {}
                CLOSE => bail!("the relay closed: {}", String::from_utf8_lossy(&self.buffer[text])),
                other => bail!("a frame of type {other}"),
            }
        }
        Ok(None)
    }

    /// Waits for more.
    pub(crate) async fn fill(&mut self) -> anyhow::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        if self.reading.read_buf(&mut self.buffer).await? == 0 {
            bail!("the relay hung up");
        }
        Ok(())
    }

    async fn skip_response(&mut self) -> anyhow::Result<()> {
        loop {
            let end = self.buffer.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = end {
                let head = String::from_utf8_lossy(&self.buffer[..end]);
                let first = head.lines().next().context("an answer")?;
                anyhow::ensure!(first.contains(" 101 "), "{first}");
                self.start = end + 4;
                return Ok(());
            }
            self.fill().await?;
        }
    }
}

/// The type of the first frame and where its text is, if all of it is here.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(u8, Range<usize>)>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if first & 0x80 == 0 || second & 0x80 != 0 {
        bail!("a frame in parts, or masked");
    }
    let (length, start) = match (second, rest) {
        (126, [a, b, ..]) => (usize::from(u16::from_be_bytes([*a, *b])), 4),
        (127, [a, b, c, d, e, f, g, h, ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize, 10),
        (126 | 127, _) => return Ok(None),
        (length, _) => (usize::from(*length), 2),
    };
    let text = start..start + length;
    Ok((bytes.len() >= text.end).then_some((first & 0x0f, text)))
}

/// The id in `["OK","…",true,…]`.
pub(crate) fn accepted(text: &[u8]) -> anyhow::Result<&[u8]> {
    let parts = text.strip_prefix(br#"["OK",""#).and_then(|rest| rest.split_at_checked(64));
    match parts {
        Some((id, rest)) if rest.starts_with(br#"",true,"#) => Ok(id),
        _ => bail!("not accepted: {}", String::from_utf8_lossy(text)),
    }
}
