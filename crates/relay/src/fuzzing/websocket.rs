//! Any bytes that a client sends after the handshake, and the frames that answer them.

use std::io::{Cursor, Read, Result, Write};

use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{Role, WebSocketConfig, WebSocketContext},
};

use crate::session::frames::{Frames, Opcode};

const MAX_MESSAGE_BYTES: usize = 1_024;

/// Bytes in, and nothing kept of what is written.
struct Peer<'b>(Cursor<&'b [u8]>);

impl Read for Peer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let texts = read_as_server(bytes);
    let mut frames = Frames::default();
    for text in &texts {
        let middle = text.floor_char_boundary(text.len() / 2);
        frames.push(Opcode::Text, &[&text.as_bytes()[..middle], &text.as_bytes()[middle..]]);
    }
    let sent = frames.unsent();
    let (mut client, mut peer) = (WebSocketContext::new(Role::Client, None), Peer(Cursor::new(sent)));
    for text in &texts {
        match client.read(&mut peer) {
            Ok(Message::Text(read)) => assert_eq!(read.as_str(), text, "a client reads what was sent"),
            other => panic!("{other:?} in place of {text:?}"),
        }
    }
}

/// The texts of a client, until it breaks a rule or leaves.
fn read_as_server(bytes: &[u8]) -> Vec<String> {
    let config = WebSocketConfig::default()
        .read_buffer_size(256)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let (mut server, mut peer) = (WebSocketContext::new(Role::Server, Some(config)), Peer(Cursor::new(bytes)));
    let (mut texts, mut received) = (Vec::new(), 0);
    loop {
        match server.read(&mut peer) {
            Ok(message) => {
                assert!(message.len() <= MAX_MESSAGE_BYTES, "{} bytes", message.len());
                match message {
                    Message::Text(text) => {
                        received += text.len();
                        texts.push(text.as_str().to_owned());
                    }
                    Message::Close(_) => return texts,
                    _ => {}
                }
                assert!(received <= bytes.len(), "more than was sent");
            }
            Err(_) => return texts,
        }
    }
}
