//! WebSocket frames (RFC 6455): encodes client frames and decodes server frames.

use std::ops::Range;

// Opcodes (RFC 6455, 5.2).
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
pub(crate) const CLOSE: u8 = 8;
const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;

/// Bit of the first byte: this frame is the last of its message.
pub(crate) const FINAL: u8 = 0x80;

/// Encodes a text message as one frame. A mask of zero is allowed and leaves the text unchanged.
pub fn text_frame(text: &[u8]) -> Vec<u8> {
    masked_frame(FINAL | TEXT, [0; 4], text)
}

/// Encodes a client's frame. `first`: the byte with FIN bit and opcode; `payload`: before masking.
pub(crate) fn masked_frame(first: u8, mask: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(payload.len() + 14);
    frame.push(first);
    match payload.len() {
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
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A buffer of received bytes that yields frames.
#[derive(Default)]
pub(crate) struct FrameBuffer {
    buffer: Vec<u8>,
    start: usize,
    /// Length of the fragments before `start` of an unfinished message.
    begun: usize,
}

/// A frame sent by a relay.
pub(crate) enum Frame {
    /// A whole message: its range in the buffer, valid until more is received.
    Text(Range<usize>),
    /// A ping and its payload.
    Ping(Vec<u8>),
    /// A closing frame: code and reason, undecoded.
    Close(Vec<u8>),
}

impl FrameBuffer {
    pub(crate) fn text(&self, range: &Range<usize>) -> &[u8] {
        &self.buffer[range.clone()]
    }

    /// The bytes that are not decoded yet.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Skips bytes that are no frame.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Returns the buffer to append to, with capacity for this many more bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.buffer.drain(..self.start - self.begun);
        self.start = self.begun;
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// Returns the next frame if all of it was received; skips pongs. Fails with the reason if a frame is invalid.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, &'static str> {
        while let Some((head, text)) = parse(self.unread())? {
            let text = self.start + text.start..self.start + text.end;
            let (is_last, code) = (head & FINAL != 0, head & 0x0f);
            match code {
                TEXT | CONTINUATION => {
                    // Moves the earlier fragments next to this one: the message is joined in place.
                    self.buffer.copy_within(self.start - self.begun..self.start, text.start - self.begun);
                    let whole = text.start - self.begun..text.end;
                    self.start = text.end;
                    self.begun = if is_last { 0 } else { whole.len() };
                    if is_last {
                        return Ok(Some(Frame::Text(whole)));
                    }
                }
                // Control frames may come between the fragments of a message.
                PING | PONG | CLOSE => {
                    let payload = self.buffer[text.clone()].to_vec();
                    self.buffer.copy_within(self.start - self.begun..self.start, text.end - self.begun);
                    self.start = text.end;
                    match code {
                        PING => return Ok(Some(Frame::Ping(payload))),
                        CLOSE => return Ok(Some(Frame::Close(payload))),
                        _ => {}
                    }
                }
                _ => return Err("unexpected opcode"),
            }
        }
        Ok(None)
    }
}

/// The first byte of the first frame and the range of its payload, if all of it was received.
fn parse(bytes: &[u8]) -> Result<Option<(u8, Range<usize>)>, &'static str> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if second & 0x80 != 0 {
        return Err("a relay's frame is masked");
    }
    let (length, start) = match (second, rest) {
        (126, [a, b, ..]) => (usize::from(u16::from_be_bytes([*a, *b])), 4),
        (127, [a, b, c, d, e, f, g, h, ..]) => (u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) as usize, 10),
        (126 | 127, _) => return Ok(None),
        (length, _) => (usize::from(*length), 2),
    };
    let text = start..length.saturating_add(start);
    Ok((bytes.len() >= text.end).then_some((*first, text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A relay's frame.
    fn sent_by_relay(head: u8, text: &[u8]) -> Vec<u8> {
        [&[head, text.len() as u8], text].concat()
    }

    #[test]
    fn messages_are_found_in_chunks_of_any_size() {
        let sent = [
            sent_by_relay(0x81, b"one"),
            sent_by_relay(0x01, b"tw"),
            sent_by_relay(0x89, b"ping"),
            sent_by_relay(0x00, b"o and "),
            sent_by_relay(0x8a, b"pong"),
            sent_by_relay(0x80, b"more"),
            sent_by_relay(0x81, b""),
            sent_by_relay(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        for size in 1..=sent.len() {
            let (mut frames, mut found) = (FrameBuffer::default(), Vec::new());
            for part in sent.chunks(size) {
                frames.reserve(part.len()).extend_from_slice(part);
                while let Some(frame) = frames.next_frame().unwrap() {
                    found.push(match frame {
                        Frame::Text(range) => frames.text(&range).to_vec(),
                        Frame::Ping(payload) | Frame::Close(payload) => payload,
                    });
                }
            }
            assert_eq!(found, [&b"one"[..], b"ping", b"two and more", b"", b"\x03\xe8bye"], "{size} bytes at a time");
        }
    }

    #[test]
    fn a_frame_has_the_length_of_its_unmasked_text() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let text = vec![b'x'; length];
            let mut frame = text_frame(&text);
            assert!(frame.ends_with(&text));
            // A relay sends no mask.
            frame[1] &= 0x7f;
            let mask = frame.len() - length - 4;
            frame.drain(mask..mask + 4);
            assert_eq!(parse(&frame).unwrap().map(|(_, range)| range), Some(mask..mask + length));
        }
    }
}
