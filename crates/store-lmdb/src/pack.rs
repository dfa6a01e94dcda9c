//! Packed records: big-endian integers and byte strings, one after the other.

use crate::{
    error::{Result, damaged},
    tables::Table,
};

/// Appends values to a record or a key.
pub(crate) struct Pack(Vec<u8>);

impl Pack {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
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

/// A value that can be packed.
pub(crate) trait Field: Sized {
    fn pack_into(&self, pack: Pack) -> Pack;

    /// Reads the value off the front of a record. `None`: the record is damaged.
    fn unpack_from(record: &mut &[u8]) -> Option<Self>;

    fn pack(&self) -> Vec<u8> {
        self.pack_into(Pack::with_capacity(128)).done()
    }
}

/// Reads the next value off the front of a record.
pub(crate) fn take<F: Field>(record: &mut &[u8]) -> Option<F> {
    F::unpack_from(record)
}

/// Reads all values of a record; `what` names it in the error.
pub(crate) fn unpack<'a, T>(
    what: &str,
    mut record: &'a [u8],
    read: impl FnOnce(&mut &'a [u8]) -> Option<T>,
) -> Result<T> {
    read(&mut record).ok_or_else(|| damaged(format!("a record of {what} is not well-formed")))
}

/// The value of a table's rows.
pub(crate) trait Record: Field {
    const TABLE: Table;

    fn unpack(record: &[u8]) -> Result<Self> {
        unpack(Self::TABLE.name(), record, take)
    }
}
