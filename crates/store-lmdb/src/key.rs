//! Key layouts. Integers are big-endian, so byte order is value order.
//!
//! Keys of every `By` table end in an [`Order`]: newest first, ties by the lower id, made unique by the row number.
//! (Eight bytes of an id are not unique: two events of one second that share them can be made on purpose.)

use kukuri_domain::{
    Address, EventId, Kind, Letter, Millis, PublicKey, Timestamp, deletion::DeletionTargetKind,
    retention::RetentionClass,
};
use kukuri_store::Seq;

use crate::{
    error::{Result, damaged},
    pack::Pack,
};

/// Row number in `Events`: the order of arrival, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EventNo(pub(crate) u64);

/// A topic's number in this store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TopicNo(pub(crate) u32);

/// An author's number in this store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AuthorNo(pub(crate) u32);

impl EventNo {
    pub(crate) fn key(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// The row number at the end of a key.
    pub(crate) fn of_key(key: &[u8]) -> Result<Self> {
        number_of(key).map(Self)
    }
}

pub(crate) fn seq(seq: Seq) -> [u8; 8] {
    seq.0.to_be_bytes()
}

pub(crate) fn seq_of(key: &[u8]) -> Result<Seq> {
    number_of(key).map(Seq)
}

fn number_of(key: &[u8]) -> Result<u64> {
    let number = key.last_chunk().copied().map(u64::from_be_bytes);
    number.ok_or_else(|| damaged("a key is too short to end in a number"))
}

/// An event's position in a newest-first table. Compares like its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order([u8; Order::LEN]);

impl Order {
    /// Seven bytes of time, eight of id, six of row number.
    pub(crate) const LEN: usize = 21;
    const TIME: usize = 7;
    /// A position before all rows.
    pub(crate) const FIRST: Self = Self([0; Self::LEN]);

    pub(crate) fn new(created_at: Timestamp, id: &EventId, no: EventNo) -> Self {
        let mut order = Self::at(created_at);
        order.0[Self::TIME..15].copy_from_slice(&id.prefix());
        order.0[15..].copy_from_slice(&no.0.to_be_bytes()[2..]);
        order
    }

    /// The first position of a second.
    pub(crate) fn at(created_at: Timestamp) -> Self {
        let newest_first = u64::MAX - created_at.0;
        let mut order = [0; Self::LEN];
        order[..Self::TIME].copy_from_slice(&newest_first.to_be_bytes()[1..]);
        Self(order)
    }

    /// The last position of a second.
    pub(crate) fn end_of(created_at: Timestamp) -> Self {
        let mut order = Self::at(created_at);
        order.0[Self::TIME..].fill(u8::MAX);
        order
    }

    /// The position at the end of a table's key.
    pub(crate) fn of_key(key: &[u8]) -> Option<Self> {
        key.last_chunk().copied().map(Self)
    }

    /// The bytes of the time.
    pub(crate) fn time(&self) -> &[u8] {
        &self.0[..Self::TIME]
    }

    pub(crate) fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    pub(crate) fn created_at(&self) -> Timestamp {
        let mut bytes = [u8::MAX; 8];
        bytes[1..].copy_from_slice(&self.0[..Self::TIME]);
        Timestamp(u64::MAX - u64::from_be_bytes(bytes))
    }

    pub(crate) fn no(&self) -> EventNo {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0[15..]);
        EventNo(u64::from_be_bytes(bytes))
    }

    /// Whether only the full ids decide which of the two comes first.
    pub(crate) fn ties_with(&self, other: &Self) -> bool {
        self.0[..15] == other.0[..15]
    }
}

/// Prefixes of newest-first keys: the part before the [`Order`].
pub(crate) mod prefix {
    use super::*;

    pub(crate) fn topic(topic: TopicNo) -> Vec<u8> {
        Pack::with_capacity(4 + Order::LEN).field(&topic).done()
    }

    pub(crate) fn topic_kind(topic: TopicNo, kind: Kind) -> Vec<u8> {
        Pack::with_capacity(6 + Order::LEN).field(&topic).field(&kind).done()
    }

    pub(crate) fn author(author: AuthorNo) -> Vec<u8> {
        Pack::with_capacity(8 + Order::LEN).field(&author).done()
    }

    pub(crate) fn author_topic(author: AuthorNo, topic: TopicNo) -> Vec<u8> {
        Pack::with_capacity(8 + Order::LEN).field(&author).field(&topic).done()
    }

    pub(crate) fn kind(kind: Kind) -> Vec<u8> {
        Pack::with_capacity(2 + Order::LEN).field(&kind).done()
    }

    /// Values are hashed, because they may be long; 16 bytes of BLAKE3 do not collide.
    pub(crate) fn tag(letter: Letter, value: &str) -> Vec<u8> {
        let hash = blake3::hash(value.as_bytes());
        Pack::with_capacity(17 + Order::LEN).field(&letter.code()).bytes(&hash.as_bytes()[..16]).done()
    }
}

pub(crate) fn expiry(expiration: Timestamp, no: EventNo) -> Vec<u8> {
    Pack::with_capacity(16).field(&expiration).field(&no).done()
}

pub(crate) fn age(topic: TopicNo, class: RetentionClass, no: EventNo) -> Vec<u8> {
    Pack::with_capacity(13).field(&ages(topic, class)).field(&no).done()
}

/// Key prefix of one topic's rows of one class.
pub(crate) fn ages(topic: TopicNo, class: RetentionClass) -> [u8; 5] {
    let [a, b, c, d] = topic.0.to_be_bytes();
    [a, b, c, d, class as u8]
}

/// An id without a row, by the time it was last seen.
pub(crate) fn gone(last_seen_at: Millis, id: &EventId) -> Vec<u8> {
    Pack::with_capacity(40).field(&last_seen_at).field(id).done()
}

/// Key prefix of an address's hidden versions.
pub(crate) fn hidden_versions(address: &Address) -> Vec<u8> {
    Pack::with_capacity(HIDDEN_LEN).field(&address.pubkey()).bytes(&address.digest().0[..8]).done()
}

/// Key prefix of all hidden rows of an owner.
pub(crate) fn hidden_rows(owner: &PublicKey) -> Vec<u8> {
    Pack::with_capacity(HIDDEN_LEN).field(owner).bytes(&[0; 8]).done()
}

/// A hidden row under one of its prefixes, oldest first.
pub(crate) fn hidden(prefix: Vec<u8>, created_at: Timestamp, no: EventNo) -> Vec<u8> {
    [&prefix[..], &created_at.0.to_be_bytes(), &no.key()].concat()
}

/// Length of a key of `Hidden`: owner, digest, time, row number.
pub(crate) const HIDDEN_LEN: usize = 32 + 8 + 8 + 8;

/// A topic that lost its record, by the head of the outbox at that moment.
pub(crate) fn former_topic(head: Seq, topic: TopicNo) -> Vec<u8> {
    Pack::with_capacity(12).field(&head).field(&topic).done()
}

/// Key prefix of a target's tombstones.
pub(crate) fn tombstones(target: &DeletionTargetKind) -> Vec<u8> {
    match target {
        DeletionTargetKind::EventId(id) => Pack::with_capacity(65).field(&b'e').field(id).done(),
        DeletionTargetKind::Address(address) => Pack::with_capacity(65).field(&b'a').bytes(&address.digest().0).done(),
    }
}

pub(crate) fn tombstone(target: &DeletionTargetKind, requester: &PublicKey) -> Vec<u8> {
    let mut key = tombstones(target);
    key.extend_from_slice(requester.as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_newest_first_then_lower_id_and_round_trips() {
        let id = |byte| EventId::from_bytes([byte; 32]);
        let newer = Order::new(Timestamp(20), &id(9), EventNo(1));
        let older = Order::new(Timestamp(10), &id(1), EventNo(2));
        let tied = Order::new(Timestamp(10), &id(2), EventNo(3));
        assert!(newer < older && older < tied);
        assert_eq!(tied.created_at(), Timestamp(10));
        assert_eq!(tied.no(), EventNo(3));
        assert_eq!(Order::at(Timestamp::MAX_IN_EVENT).created_at(), Timestamp::MAX_IN_EVENT);
        assert!(Order::at(Timestamp(10)) < older && tied < Order::end_of(Timestamp(10)));
        assert!(Order::new(Timestamp(10), &id(2), EventNo(9)).ties_with(&tied));
    }
}
