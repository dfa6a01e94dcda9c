//! Packed records: big-endian integers and byte strings, one after the other.

use kukuri_domain::{EventId, Millis, PublicKey, Timestamp};
use kukuri_store::StoreError;

/// Appends values to a record.
#[derive(Default)]
pub(crate) struct Pack(Vec<u8>);

impl Pack {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn millis(self, value: Millis) -> Self {
        self.u64(value.0)
    }

    pub(crate) fn timestamp(self, value: Timestamp) -> Self {
        self.u64(value.0)
    }

    pub(crate) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values off the front of a record.
pub(crate) struct Unpack<'a> {
    what: &'static str,
    rest: &'a [u8],
}

type Result<T> = std::result::Result<T, StoreError>;

impl<'a> Unpack<'a> {
    /// `what` names the record in the error if it is too short.
    pub(crate) fn new(what: &'static str, record: &'a [u8]) -> Self {
        Self { what, rest: record }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (front, rest) = self.rest.split_first_chunk().ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(*front)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.damaged())?;
        self.rest = rest;
        Ok(front)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn millis(&mut self) -> Result<Millis> {
        self.u64().map(Millis)
    }

    pub(crate) fn timestamp(&mut self) -> Result<Timestamp> {
        self.u64().map(Timestamp)
    }

    pub(crate) fn id(&mut self) -> Result<EventId> {
        self.array().map(EventId::from_bytes)
    }

    pub(crate) fn pubkey(&mut self) -> Result<PublicKey> {
        self.array().map(PublicKey::from_bytes)
    }

    /// The remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The remaining bytes as text.
    pub(crate) fn text(self) -> Result<&'a str> {
        std::str::from_utf8(self.rest).map_err(|_| self.damaged())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The error for a damaged record.
    pub(crate) fn damaged(&self) -> StoreError {
        StoreError::Damaged(format!("a record of {} is not well-formed", self.what))
    }
}
