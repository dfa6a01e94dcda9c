//! Any text that a caller hands back as a cursor.

use kukuri_domain::{EventId, Timestamp};

use crate::{
    cursor::{RequestPlace, SearchCursor, SnapshotPlace},
    error::Error,
};

/// Panics if a rule does not hold for these bytes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    match SearchCursor::try_from(text.to_owned()) {
        Ok(cursor) => {
            assert_eq!(cursor.to_string(), text, "only this node's own cursors are accepted");
            check_next(cursor);
        }
        Err(error) => check_refusal(&error),
    }
    match RequestPlace::try_from(text.to_owned()) {
        Ok(place) => assert_eq!(place.to_string(), text, "only this node's own cursors are accepted"),
        Err(error) => check_refusal(&error),
    }
    match SnapshotPlace::try_from(text.to_owned()) {
        Ok(place) => assert_eq!(place.to_string(), text, "only this node's own cursors are accepted"),
        Err(error) => check_refusal(&error),
    }
}

/// A cursor that was accepted can be continued, and its continuation is accepted again.
fn check_next(cursor: SearchCursor) {
    assert!(cursor.now <= Timestamp::MAX_IN_EVENT);
    let (shown, skip) = (EventId::from_bytes([0xfe; 32]), cursor.skip + 1);
    if let Some(next) = cursor.next(skip, [shown].into_iter(), std::iter::empty()) {
        assert!(next.has_shown(&shown));
        assert_eq!(SearchCursor::try_from(next.to_string()).as_ref(), Ok(&next));
    }
}

fn check_refusal(error: &Error) {
    assert!(matches!(error, Error::InvalidRequest { .. }), "{error}");
    assert!(error.to_string().len() < 300, "{error}");
}
