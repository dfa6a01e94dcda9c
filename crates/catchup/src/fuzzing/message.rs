//! Any frame of a peer.

use kukuri_domain::Timestamp;

use crate::{
    message::{Message, max_item_len},
    report::SessionEnd,
};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let message = match Message::decode(bytes) {
        Ok(message) => message,
        Err(end) => {
            assert!(matches!(end, SessionEnd::Misbehaved(_) | SessionEnd::OtherVersion(_)), "{end:?}");
            return;
        }
    };
    let frame = message.encode();
    assert!(frame.len() <= bytes.len(), "a frame of {} bytes was read from {}", frame.len(), bytes.len());
    let again = Message::decode(&frame).expect("what this node writes, it reads");
    assert_eq!(again, message);
    assert_eq!(again.encode(), frame);
    check_bounds(&message, frame.len());
}

fn check_bounds(message: &Message, length: usize) {
    match message {
        Message::Hello { since, .. } | Message::Welcome { since } => assert!(*since <= Timestamp::MAX_IN_EVENT),
        Message::Offer { ids } | Message::Want { ids, .. } => assert!(32 * ids.len() < length),
        Message::Items { items } => {
            let bound: usize = items.iter().map(|(_, shared)| max_item_len(shared)).sum();
            assert!(length <= 1 + bound, "{length} bytes, at most {bound} were expected");
        }
        Message::Part { .. }
        | Message::Cut { .. }
        | Message::Compare { .. }
        | Message::ItemsEnd
        | Message::Bye { .. } => {}
    }
}
