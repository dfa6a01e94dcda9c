//! WebSocket frames: made as a client makes them, and found in what a relay has sent. A message may come in parts.

use std::ops::Range;

use anyhow::bail;

const CONTINUED: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// A text message as a client's frame.
pub(crate) fn frame(text: &[u8]) -> Vec<u8> {
    frame_of(TEXT, text)
}

/// The answer to a ping.
pub(crate) fn pong(text: &[u8]) -> Vec<u8> {
    frame_of(PONG, text)
}

/// The mask is zero: allowed, and it leaves the text as it is.
fn frame_of(code: u8, text: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(text.len() + 14);
    frame.push(0x80 | code);
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

/// What was received and not looked at yet.
#[derive(Default)]
pub(crate) struct Frames {
    buffer: Vec<u8>,
    start: usize,
    /// So many bytes before `start` are the beginning of a message of which more is to come.
    begun: usize,
}

/// What a relay has sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A message, and where it is until more is received.
    Text(Range<usize>),
    Ping(Vec<u8>),
    /// The end, and why.
    Close(Vec<u8>),
}

impl Frames {
    pub(crate) fn text(&self, place: &Range<usize>) -> &[u8] {
        &self.buffer[place.clone()]
    }

    /// What has not been looked at.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Passes over what is no frame.
    pub(crate) fn skip(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// The buffer, to add to, with room for so many bytes.
    pub(crate) fn room(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.buffer.drain(..self.start - self.begun);
        self.start = self.begun;
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// The next message, if all of it is here.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<Frame>> {
        while let Some((head, text)) = parse(self.rest())? {
            let text = self.start + text.start..self.start + text.end;
            let (is_last, code) = (head & 0x80 != 0, head & 0x0f);
            match code {
                TEXT | CONTINUED => {
                    // Parts are put together where they are.
                    self.buffer.copy_within(self.start - self.begun..self.start, text.start - self.begun);
                    let whole = text.start - self.begun..text.end;
                    self.start = text.end;
                    self.begun = if is_last { 0 } else { whole.len() };
                    if is_last {
                        return Ok(Some(Frame::Text(whole)));
                    }
                }
                // These may stand between the parts of another.
                PING | PONG | CLOSE => {
                    let about = self.buffer[text.clone()].to_vec();
                    self.buffer.copy_within(self.start - self.begun..self.start, text.end - self.begun);
                    self.start = text.end;
                    match code {
                        PING => return Ok(Some(Frame::Ping(about))),
                        CLOSE => return Ok(Some(Frame::Close(about))),
                        _ => {}
                    }
                }
                other => bail!("a frame of type {other}"),
            }
        }
        Ok(None)
    }
}

/// The first byte of the first frame, and where its text is, if all of it is here.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(u8, Range<usize>)>> {
    let [first, second, rest @ ..] = bytes else { return Ok(None) };
    if second & 0x80 != 0 {
        bail!("a masked frame");
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
    fn said(head: u8, text: &[u8]) -> Vec<u8> {
        [&[head, text.len() as u8], text].concat()
    }

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let sent = [
            said(0x81, b"one"),
            said(0x01, b"tw"),
            said(0x89, b"ping"),
            said(0x00, b"o and "),
            said(0x8a, b"pong"),
            said(0x80, b"more"),
            said(0x81, b""),
            said(0x88, b"\x03\xe8bye"),
        ]
        .concat();
        for size in 1..=sent.len() {
            let (mut frames, mut heard) = (Frames::default(), Vec::new());
            for part in sent.chunks(size) {
                frames.room(part.len()).extend_from_slice(part);
                while let Some(frame) = frames.next().unwrap() {
                    heard.push(match frame {
                        Frame::Text(place) => frames.text(&place).to_vec(),
                        Frame::Ping(about) | Frame::Close(about) => about,
                    });
                }
            }
            assert_eq!(heard, [&b"one"[..], b"ping", b"two and more", b"", b"\x03\xe8bye"], "{size} bytes at a time");
        }
    }

    #[test]
    fn a_frame_tells_its_length_and_leaves_the_text_as_it_is() {
        for length in [0, 125, 126, 65_535, 65_536] {
            let text = vec![b'x'; length];
            let mut frame = frame(&text);
            assert!(frame.ends_with(&text));
            // As a relay would send it: without the mask.
            frame[1] &= 0x7f;
            let mask = frame.len() - length - 4;
            frame.drain(mask..mask + 4);
            assert_eq!(parse(&frame).unwrap().map(|(_, place)| place), Some(mask..mask + length));
        }
    }
}
