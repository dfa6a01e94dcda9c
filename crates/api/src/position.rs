//! Positions in the changes of a node: a sequence with the epoch of its store (Y-5).
//!
//! A sequence alone means nothing to a follower: after a restore or a fail-over the same numbers name other changes. A
//! position of another epoch gets 410, like one that the outbox no longer reaches.

use std::fmt;

use kukuri_store::{Epoch, Seq, Store};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::{Object, ObjectBuilder, schema::SchemaType, schema::Type};

use crate::{cursor::decimal, error::Error};

/// The number of hex digits of an epoch.
const EPOCH_DIGITS: usize = 16;

/// A sequence of one epoch. Its text is `<epoch>.<seq>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
}

impl Position {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (epoch, seq) = text.split_once('.')?;
        Some(Self { epoch: parse_epoch(epoch)?, seq: Seq(decimal(seq)?) })
    }
}

/// Lower-case hex, all digits.
pub(crate) fn parse_epoch(text: &str) -> Option<Epoch> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_plain = text.len() == EPOCH_DIGITS && text.bytes().all(is_hex);
    u64::from_str_radix(text, 16).ok().filter(|_| is_plain).map(Epoch)
}

/// The epoch of the store now. To be taken before rows are read: see [`kukuri_store::Outbox::watch_epoch`].
pub(crate) fn epoch_of(store: &dyn Store) -> Epoch {
    *store.watch_epoch().borrow()
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The position that a follower has read up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) enum After {
    /// Nothing yet.
    Start,
    /// This position.
    Position(Position),
    /// A number without an epoch, as nodes told before they had epochs.
    Bare(Seq),
}

impl After {
    pub(crate) fn schema() -> Object {
        ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).build()
    }

    /// The sequence, if it belongs to this epoch.
    pub(crate) fn seq_in(self, epoch: Epoch) -> Result<Seq, Error> {
        match self {
            Self::Start => Ok(Seq::default()),
            Self::Position(position) if position.epoch == epoch => Ok(position.seq),
            Self::Position(_) | Self::Bare(_) => Err(Error::OtherEpoch),
        }
    }
}

impl TryFrom<String> for After {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        match decimal(&text) {
            Some(0) => Ok(Self::Start),
            Some(bare) => Ok(Self::Bare(Seq(bare))),
            None => Position::parse(&text).map(Self::Position).ok_or_else(|| {
                Error::invalid("expected 0, or a position that this node told, such as 01c3a9f2e47b5d68.1234")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_the_round_trip_through_text() {
        let position = Position { epoch: Epoch(0x01c3), seq: Seq(12) };
        assert_eq!(position.to_string(), "00000000000001c3.12");
        assert_eq!(Position::parse(&position.to_string()), Some(position));
        for text in
            ["", ".", "1.2", "00000000000001c3", "00000000000001C3.1", "00000000000001c3.-1", "+0000000000001c3.1"]
        {
            assert_eq!(Position::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_positions_of_the_same_epoch_are_read_on_from() {
        // Y-5
        let after = |text: &str| After::try_from(text.to_owned()).unwrap().seq_in(Epoch(1));
        assert_eq!(after("0"), Ok(Seq(0)));
        assert_eq!(after("0000000000000001.7"), Ok(Seq(7)));
        assert_eq!(after("0000000000000002.7"), Err(Error::OtherEpoch));
        assert_eq!(after("7"), Err(Error::OtherEpoch), "a number without its epoch");
    }
}
