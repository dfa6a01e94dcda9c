//! Packed records: big-endian integers and byte strings, one after the other.

use kukuri_domain::Millis;

use crate::{
    error::{Failure, Result, damaged},
    tables::Table,
};

/// Appends values to a record.
pub(crate) struct Pack(Vec<u8>);

impl Pack {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(crate) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn millis(self, value: Millis) -> Self {
        self.u64(value.0)
    }

    pub(crate) fn field(self, value: &impl Field) -> Self {
        value.pack_into(self)
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
        self.field()
    }

    pub(crate) fn field<F: Field>(&mut self) -> Result<F> {
        F::unpack_from(self)
    }

    /// The remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// The next bytes as text.
    pub(crate) fn text(&mut self, bytes: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(bytes)?).map_err(|_| self.damaged())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The error for a damaged record.
    pub(crate) fn damaged(&self) -> Failure {
        damaged(format!("a record of {} is not well-formed", self.what))
    }
}

/// A value that can be packed.
pub(crate) trait Field: Sized {
    fn pack_into(&self, pack: Pack) -> Pack;

    fn unpack_from(record: &mut Unpack<'_>) -> Result<Self>;

    fn pack(&self) -> Vec<u8> {
        self.pack_into(Pack::with_capacity(128)).done()
    }
}

/// The value of a table's rows.
pub(crate) trait Record: Field {
    const TABLE: Table;

    fn unpack(record: &[u8]) -> Result<Self> {
        Unpack::new(Self::TABLE.name(), record).field()
    }
}
