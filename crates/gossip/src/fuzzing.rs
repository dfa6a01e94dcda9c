//! What must hold for any message of a peer (a feature, for fuzz targets and the replay of their corpus).

use bytes::Bytes;
use kukuri_domain::Event;

use crate::wire::{MAX_PAYLOAD_LEN, Message};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Ok(message) = Message::decode(Bytes::copy_from_slice(bytes)) else { return };
    assert_eq!(message.encode(), bytes, "what is read is written as the same");
    assert_eq!(Message::decode(message.encode()), Ok(message.clone()));
    let Message::Event(json) = message else { return };
    let Ok(event) = Event::from_json(&json) else { return };
    // The event that this node would broadcast.
    let json = event.to_json();
    let message = Message::of(event.id, &json);
    assert!(message.encode().len() <= MAX_PAYLOAD_LEN);
    match Message::decode(message.encode()) {
        Ok(Message::Event(read)) => assert_eq!(Event::from_json(&read), Ok(event)),
        Ok(Message::Announcement(id)) => assert_eq!(id, event.id),
        Err(dropped) => panic!("this node drops what it sends: {dropped:?}"),
    }
}

#[cfg(test)]
mod tests {
    use kukuri_domain::EventId;
    use kukuri_testing::corpus::{replay, seed};

    use super::*;

    #[test]
    fn kept_inputs_keep_the_rules() {
        seed("gossip_message", "announcement", &Message::Announcement(EventId::from_bytes([7; 32])).encode());
        replay("gossip_message", check);
    }
}
