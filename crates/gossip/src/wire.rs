//! How messages are written. Today's clients send the JSON of an event and nothing else, so that is what we send: its first
//! byte is `{`. Any other first byte is a version.

use bytes::Bytes;
use kukuri_domain::EventId;

/// Equal on every node: one that takes less would cut off whoever sends more.
pub(crate) const MAX_MESSAGE: usize = 64 * 1024;
/// What is left of it for us. The library says nothing about what is larger, and never sends again.
pub(crate) const MAX_PAYLOAD: usize = MAX_MESSAGE - 64;

const OPENING: u8 = b'{';
/// The id of an event that is too large to broadcast.
const ANNOUNCEMENT: u8 = 1;

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Here is an event.
    Event(Bytes),
    /// There is an event; ask me for it.
    Announcement(EventId),
}

/// A message that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// Of a version that this node does not know.
    Version,
    /// Too short or too long for what it says it is.
    Malformed,
}

impl Message {
    /// What is sent for an event.
    pub(crate) fn of(id: EventId, json: &Bytes) -> Self {
        if json.len() <= MAX_PAYLOAD { Self::Event(json.clone()) } else { Self::Announcement(id) }
    }

    /// As it goes out.
    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Self::Event(json) => json.clone(),
            Self::Announcement(id) => [&[ANNOUNCEMENT], id.as_bytes().as_slice()].concat().into(),
        }
    }

    /// What came in.
    pub(crate) fn decode(content: Bytes) -> Result<Self, Unreadable> {
        match content.split_first() {
            Some((&OPENING, _)) => Ok(Self::Event(content)),
            Some((&ANNOUNCEMENT, id)) => {
                let id: [u8; 32] = id.try_into().map_err(|_| Unreadable::Malformed)?;
                Ok(Self::Announcement(EventId::from_bytes(id)))
            }
            Some(_) => Err(Unreadable::Version),
            None => Err(Unreadable::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_sent_as_it_is_and_a_large_one_is_announced() {
        let id = EventId::from_bytes([9; 32]);
        let json = |bytes: usize| Bytes::from(vec![OPENING; bytes]);
        for (bytes, is_sent) in [(2, true), (MAX_PAYLOAD, true), (MAX_PAYLOAD + 1, false), (10 * MAX_MESSAGE, false)] {
            let message = Message::of(id, &json(bytes));
            assert_eq!(message == Message::Event(json(bytes)), is_sent, "{bytes}");
            assert!(message.encode().len() <= MAX_PAYLOAD);
            assert_eq!(Message::decode(message.encode()), Ok(message));
        }
    }

    #[test]
    fn what_is_not_understood_is_told_apart() {
        for (content, expected) in [
            (&b""[..], Unreadable::Malformed),
            (b"\x01", Unreadable::Malformed),
            (&[1; 34], Unreadable::Malformed),
            (b"\x02anything", Unreadable::Version),
            (b"[\"EVENT\"]", Unreadable::Version),
            (b" {}", Unreadable::Version),
        ] {
            assert_eq!(Message::decode(Bytes::copy_from_slice(content)), Err(expected), "{content:?}");
        }
    }
}
