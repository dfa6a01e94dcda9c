//! Rows for `COPY` in its binary format, which needs no text encoding and allows arrays in rows.

use sqlx::{Encode, PgConnection, Postgres, encode::IsNull, postgres::PgArgumentBuffer};

use crate::error::{Failure, Result};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Encoded rows for one `COPY`.
pub(crate) struct Copy {
    statement: String,
    column_count: i16,
    buffer: PgArgumentBuffer,
    has_rows: bool,
}

impl Copy {
    pub(crate) fn new(table: &str, columns: &str) -> Self {
        let mut buffer = PgArgumentBuffer::default();
        buffer.extend_from_slice(SIGNATURE);
        let statement = format!("COPY cn_relay.{table} ({columns}) FROM STDIN (FORMAT binary)");
        Self { statement, column_count: columns.split(',').count() as i16, buffer, has_rows: false }
    }

    /// Begins a row: one value per column has to follow, in the order of the columns.
    pub(crate) fn begin_row(&mut self) {
        self.has_rows = true;
        self.buffer.extend_from_slice(&self.column_count.to_be_bytes());
    }

    pub(crate) fn put<'v>(&mut self, value: impl Encode<'v, Postgres>) -> Result<()> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        let length = match value.encode_by_ref(&mut self.buffer).map_err(sqlx::Error::Encode)? {
            IsNull::No => (self.buffer.len() - start - 4) as i32,
            IsNull::Yes => -1,
        };
        self.buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Sends the rows, if any.
    pub(crate) async fn send(mut self, connection: &mut PgConnection) -> Result<()> {
        if !self.has_rows {
            return Ok(());
        }
        self.buffer.extend_from_slice(&(-1i16).to_be_bytes());
        let mut copy = connection.copy_in_raw(&self.statement).await?;
        if let Err(error) = copy.send(self.buffer.as_slice()).await {
            // The server's own error says more than the failed send.
            return Err(copy.abort("rows could not be sent").await.err().unwrap_or(error).into());
        }
        copy.finish().await.map(drop).map_err(Failure::from)
    }
}

/// Begins a row and puts these values.
macro_rules! copy_row {
    ($copy:expr; $($value:expr),+ $(,)?) => {{
        let copy = &mut $copy;
        copy.begin_row();
        $(copy.put($value.to_sql())?;)+
    }};
}
pub(crate) use copy_row;
