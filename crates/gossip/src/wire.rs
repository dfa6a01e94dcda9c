//! The encoding of gossip messages. Clients of the kukuri network send the bare JSON of an event, and so does this node: its
//! first byte is `{`. Any other first byte is a version.

use bytes::Bytes;
use kukuri_domain::EventId;

use crate::metrics::Dropped;

/// The same on every node: a node with less would disconnect peers that send more.
pub(crate) const MAX_MESSAGE_LEN: usize = 64 * 1024;
/// Without the overhead of iroh-gossip, which silently stops sending after a larger message.
pub(crate) const MAX_PAYLOAD_LEN: usize = MAX_MESSAGE_LEN - 64;

const JSON_START: u8 = b'{';
/// First byte of an announcement: the id of an event that is too large to broadcast.
const ANNOUNCEMENT: u8 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The JSON of an event.
    Event(Bytes),
    /// The id of an event to fetch from the sender.
    Announcement(EventId),
}

impl Message {
    /// The message for an event: the event itself if it fits.
    pub(crate) fn of(id: EventId, json: &Bytes) -> Self {
        if json.len() <= MAX_PAYLOAD_LEN { Self::Event(json.clone()) } else { Self::Announcement(id) }
    }

    pub(crate) fn encode(&self) -> Bytes {
        match self {
            Self::Event(json) => json.clone(),
            Self::Announcement(id) => [&[ANNOUNCEMENT], id.as_bytes().as_slice()].concat().into(),
        }
    }

    pub(crate) fn decode(content: Bytes) -> Result<Self, Dropped> {
        match content.split_first() {
            Some((&JSON_START, _)) => Ok(Self::Event(content)),
            Some((&ANNOUNCEMENT, id)) => {
                let id: [u8; 32] = id.try_into().map_err(|_| Dropped::Malformed)?;
                Ok(Self::Announcement(EventId::from_bytes(id)))
            }
            Some(_) => Err(Dropped::Version),
            None => Err(Dropped::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_event_is_sent_as_json_and_a_large_one_announced() {
        let id = EventId::from_bytes([9; 32]);
        let json = |bytes: usize| Bytes::from(vec![JSON_START; bytes]);
        for (bytes, is_sent) in
            [(2, true), (MAX_PAYLOAD_LEN, true), (MAX_PAYLOAD_LEN + 1, false), (10 * MAX_MESSAGE_LEN, false)]
        {
            let message = Message::of(id, &json(bytes));
            assert_eq!(message == Message::Event(json(bytes)), is_sent, "{bytes}");
            assert!(message.encode().len() <= MAX_PAYLOAD_LEN);
            assert_eq!(Message::decode(message.encode()), Ok(message));
        }
    }

    #[test]
    fn malformed_messages_and_unknown_versions_are_told_apart() {
        for (content, expected) in [
            (&b""[..], Dropped::Malformed),
            (b"\x01", Dropped::Malformed),
            (&[1; 34], Dropped::Malformed),
            (b"\x02anything", Dropped::Version),
            (b"[\"EVENT\"]", Dropped::Version),
            (b" {}", Dropped::Version),
        ] {
            assert_eq!(Message::decode(Bytes::copy_from_slice(content)), Err(expected), "{content:?}");
        }
    }
}
