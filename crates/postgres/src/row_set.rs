//! Rows of a table as one value: an array of the table's row type, in binary. So a statement of one parameter inserts any number of
//! rows, whatever their columns hold, also arrays.

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::{SessionError, SqlQuery, query};

type Conversion<T> = Result<T, Box<dyn std::error::Error + Sync + Send>>;

/// A column: its name and type.
pub type ColumnOf = (&'static str, Type);

/// Rows to insert into a table.
#[derive(Debug)]
pub struct RowSet {
    table: &'static str,
    columns: &'static [ColumnOf],
    /// Of each row the values of all columns, each after its length, which is -1 for NULL.
    values: BytesMut,
    value_count: usize,
}

impl RowSet {
    /// No rows of a table yet.
    pub fn new(table: &'static str, columns: &'static [ColumnOf]) -> Self {
        Self { table, columns, values: BytesMut::new(), value_count: 0 }
    }

    /// Adds the next value of a row: values come by the order of the columns.
    pub fn put(&mut self, value: &(impl ToSql + Sync)) -> Result<(), SessionError> {
        let (name, ty) = &self.columns[self.value_count % self.columns.len()];
        let start = self.values.len();
        self.values.put_i32(-1);
        let put = value.to_sql_checked(ty, &mut self.values);
        match put.map_err(|error| SessionError::Unexpected(format!("{}.{name}: {error}", self.table)))? {
            IsNull::Yes => {}
            IsNull::No => {
                let length = (self.values.len() - start - 4) as i32;
                self.values[start..start + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
        self.value_count += 1;
        Ok(())
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.value_count == 0
    }

    fn rows(&self) -> usize {
        self.value_count / self.columns.len()
    }

    /// The statement that inserts the rows; `None` if there are none.
    pub fn insert<'q>(self) -> Option<SqlQuery<'q>> {
        if self.is_empty() {
            return None;
        }
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| *name).collect();
        let (table, names) = (self.table, names.join(", "));
        let insert = format!("INSERT INTO {table} ({names}) SELECT {names} FROM unnest($1::{table}[])");
        Some(query(insert).bind(self))
    }
}

impl ToSql for RowSet {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Conversion<IsNull> {
        let Kind::Array(row) = ty.kind() else { return Err(format!("{ty} is no array").into()) };
        let Kind::Composite(fields) = row.kind() else { return Err(format!("{row} is no row type").into()) };
        // Where the value of each field of the table stands among the columns.
        let places: Vec<Option<usize>> =
            fields.iter().map(|field| self.columns.iter().position(|(name, _)| *name == field.name())).collect();
        if places.iter().flatten().count() < self.columns.len() {
            return Err(format!("{row} lacks one of the columns {:?}", self.columns).into());
        }
        out.reserve(self.values.len() + self.rows() * (8 + fields.len() * 8));
        // Dimensions, no nulls, the type of the elements; length and lower bound of the dimension.
        out.put_i32(1);
        out.put_i32(0);
        out.put_u32(row.oid());
        out.put_i32(i32::try_from(self.rows())?);
        out.put_i32(1);
        let (mut at, mut values) = (0, Vec::with_capacity(self.columns.len()));
        for _ in 0..self.rows() {
            values.clear();
            for _ in self.columns {
                let length =
                    self.values.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
                let end = at + 4 + usize::try_from(length.unwrap_or(-1)).unwrap_or_default();
                values.push(&self.values[at..end]);
                at = end;
            }
            let start = out.len();
            out.put_i32(0);
            out.put_i32(i32::try_from(fields.len())?);
            for (field, place) in fields.iter().zip(&places) {
                out.put_u32(field.type_().oid());
                match place {
                    Some(place) => out.extend_from_slice(values[*place]),
                    None => out.put_i32(-1),
                }
            }
            let length = i32::try_from(out.len() - start - 4)?;
            out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
