//! Encoder for the binary format of `COPY`, which needs no text encoding and allows arrays in rows.

use sqlx::PgConnection;

use crate::error::{Failure, Result};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const INT4_OID: i32 = 23;
const BYTEA_OID: i32 = 17;

/// Encoded rows for one `COPY`.
pub(crate) struct Copy {
    statement: &'static str,
    columns: i16,
    buffer: Vec<u8>,
    rows: usize,
}

impl Copy {
    /// `columns` is the number of columns that `statement` names; every row has that many fields, in that order.
    pub(crate) fn new(statement: &'static str, columns: i16) -> Self {
        Self { statement, columns, buffer: SIGNATURE.to_vec(), rows: 0 }
    }

    pub(crate) fn row(&mut self) -> &mut Self {
        self.rows += 1;
        self.buffer.extend_from_slice(&self.columns.to_be_bytes());
        self
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.buffer.extend_from_slice(&(value.len() as i32).to_be_bytes());
        self.buffer.extend_from_slice(value);
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.buffer.extend_from_slice(&(-1i32).to_be_bytes());
        self
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn i16(&mut self, value: i16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    pub(crate) fn bool(&mut self, value: bool) -> &mut Self {
        self.bytes(&[value.into()])
    }

    /// An optional value, encoded by `put`; `None` is NULL.
    pub(crate) fn or_null<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T) -> &mut Self) -> &mut Self {
        match value {
            Some(value) => put(self, value),
            None => self.null(),
        }
    }

    pub(crate) fn numbers(&mut self, values: &[i32]) -> &mut Self {
        self.array(INT4_OID, values, |copy, value| copy.i32(*value))
    }

    pub(crate) fn byte_strings<const N: usize>(&mut self, values: &[[u8; N]]) -> &mut Self {
        self.array(BYTEA_OID, values, |copy, value| copy.bytes(value))
    }

    fn array<T>(
        &mut self,
        element: i32,
        values: &[T],
        put: impl for<'c> Fn(&'c mut Self, &T) -> &'c mut Self,
    ) -> &mut Self {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        let dimensions = i32::from(!values.is_empty());
        for number in [dimensions, 0, element] {
            self.buffer.extend_from_slice(&number.to_be_bytes());
        }
        if dimensions == 1 {
            for number in [values.len() as i32, 1] {
                self.buffer.extend_from_slice(&number.to_be_bytes());
            }
        }
        for value in values {
            put(self, value);
        }
        let length = (self.buffer.len() - start - 4) as i32;
        self.buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
        self
    }

    /// Sends the rows, if any.
    pub(crate) async fn send(mut self, connection: &mut PgConnection) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.buffer.extend_from_slice(&(-1i16).to_be_bytes());
        let mut copy = connection.copy_in_raw(self.statement).await?;
        if let Err(error) = copy.send(self.buffer).await {
            // The server's own error says more than the failed send.
            return Err(copy.abort("rows could not be sent").await.err().unwrap_or(error).into());
        }
        copy.finish().await.map(drop).map_err(Failure::from)
    }
}
