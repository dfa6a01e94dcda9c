//! The send buffer: WebSocket frames (RFC 6455), written one after the other and sent together.
//!
//! A server's frames are not masked, so a frame is a short head and the message itself. Writing them here saves a copy and
//! a system call for each message.

/// The send buffer is flushed when it holds this much, or when nothing else is queued. It holds more only if one message does.
pub(crate) const FLUSH_BYTES: usize = 64 * 1024;
/// Bytes that stay allocated while nothing is sent: a node has many idle connections.
const MAX_IDLE_CAPACITY: usize = 4 * 1024;

/// The head of the longest frame.
const MAX_HEAD_BYTES: usize = 10;

/// The kind of a frame. A message is never cut into several.
#[derive(Clone, Copy)]
pub(crate) enum Opcode {
    Text = 1,
    Close = 8,
    Ping = 9,
}

/// Frames, and how many of their bytes have been sent.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    sent: usize,
}

impl Frames {
    /// Adds a frame whose payload comes in parts.
    pub(crate) fn push(&mut self, opcode: Opcode, parts: &[&[u8]]) {
        const FINAL: u8 = 0x80;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.reserve(MAX_HEAD_BYTES + length);
        self.bytes.push(FINAL | opcode as u8);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ ..=125), _) => self.bytes.push(short),
            (_, Ok(medium)) => {
                self.bytes.push(126);
                self.bytes.extend_from_slice(&medium.to_be_bytes());
            }
            _ => {
                self.bytes.push(127);
                self.bytes.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
    }

    /// As `Vec::reserve`, but a large message does not double a large buffer: many slow readers may have one each.
    fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            let capacity = (2 * self.bytes.capacity()).min(FLUSH_BYTES).max(needed);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Whether a message of this length can wait here for the next flush.
    pub(crate) fn has_room_for(&self, length: usize) -> bool {
        let unsent = self.unsent().len();
        unsent == 0 || unsent + MAX_HEAD_BYTES + length <= FLUSH_BYTES
    }

    /// Whether it is time to flush.
    pub(crate) fn is_full(&self) -> bool {
        self.unsent().len() >= FLUSH_BYTES
    }

    /// The bytes still to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    /// Notes that `count` more bytes were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent < self.bytes.len() {
            return;
        }
        self.sent = 0;
        if self.bytes.capacity() > MAX_IDLE_CAPACITY {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::{
        Message,
        protocol::{Role, WebSocketContext},
    };

    use super::*;

    #[test]
    fn tungstenite_reads_frames_of_every_length() {
        let mut frames = Frames::default();
        let lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 100_000];
        for length in lengths {
            let text = "x".repeat(length);
            let (head, tail) = text.as_bytes().split_at(length / 2);
            frames.push(Opcode::Text, &[head, tail]);
        }
        frames.push(Opcode::Ping, &[]);
        frames.push(Opcode::Close, &[&1000u16.to_be_bytes(), b"bye"]);

        let mut stream = std::io::Cursor::new(frames.unsent().to_vec());
        let mut reader = WebSocketContext::new(Role::Client, None);
        for length in lengths {
            let Message::Text(text) = reader.read(&mut stream).unwrap() else { panic!("text of {length}") };
            assert_eq!(text.len(), length);
        }
        assert!(matches!(reader.read(&mut stream).unwrap(), Message::Ping(_)));
        let Message::Close(Some(close)) = reader.read(&mut stream).unwrap() else { panic!("a close") };
        assert_eq!((u16::from(close.code), close.reason.as_str()), (1000, "bye"));
    }

    #[test]
    fn a_partly_sent_buffer_continues_and_then_gives_memory_back() {
        let mut frames = Frames::default();
        frames.push(Opcode::Text, &[&[b'x'; 2 * MAX_IDLE_CAPACITY]]);
        let all = frames.unsent().len();
        frames.advance(10);
        assert_eq!(frames.unsent().len(), all - 10);
        frames.push(Opcode::Text, &[b"more"]);
        frames.advance(frames.unsent().len());
        assert!(frames.unsent().is_empty());
        assert_eq!(frames.bytes.capacity(), 0);
    }

    #[test]
    fn buffer_of_a_slow_reader_is_as_large_as_one_flush_or_one_message() {
        // Y-1: of events of any size, as they come.
        let mut frames = Frames::default();
        for number in 0..1_000 {
            let length = number * 7_919 % 131_072;
            if !frames.has_room_for(length) {
                frames.advance(frames.unsent().len());
            }
            frames.push(Opcode::Text, &[&vec![b'x'; length]]);
            let max = FLUSH_BYTES.max(MAX_HEAD_BYTES + length);
            assert!(
                frames.bytes.len() <= max && frames.bytes.capacity() <= max,
                "{length}: {}",
                frames.bytes.capacity()
            );
        }
    }
}
