//! Values with a form of their own in Postgres.

use bytes::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

type Conversion<T> = Result<T, Box<dyn std::error::Error + Sync + Send>>;

/// A `bytea` of a fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FixedBytes<const N: usize>(pub [u8; N]);

impl<const N: usize> ToSql for FixedBytes<N> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Conversion<IsNull> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }

    to_sql_checked!();
}

impl<'v, const N: usize> FromSql<'v> for FixedBytes<N> {
    fn from_sql(_: &Type, raw: &'v [u8]) -> Conversion<Self> {
        let bytes = raw.try_into();
        Ok(Self(bytes.map_err(|_| format!("a column holds {} bytes instead of {N}", raw.len()))?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }
}

/// As a `bigint`: Postgres has no unsigned integers. Larger values are clamped.
pub fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
