//! Values of the domain as columns: numbers in internal columns, text in columns that other services may read.

use bytes::Bytes;
use kukuri_domain::{
    Address, AddressDigest, EventId, Kind, Millis, PublicKey, Reason, Source, Timestamp, TopicId, capacity::Stage,
    remains::Subject, retention::RetentionClass, subscription::Keeper,
};
use kukuri_postgres::{FixedBytes, FromSql, SqlRow, ToSql};
pub(crate) use kukuri_postgres::{SqlQuery, query, signed};
use kukuri_store::Seq;

use crate::{
    error::{Result, damaged},
    work::TopicNo,
};

/// An id, a public key, or the digest of a key.
pub(crate) type Digest = FixedBytes<32>;
/// The digest of a tag.
pub(crate) type TagDigest = FixedBytes<16>;

/// A value that is stored in one column.
pub(crate) trait Column: Sized {
    type Sql<'v>: FromSql<'v> + ToSql + Send + Sync + 'v;

    fn to_sql(&self) -> Self::Sql<'_>;
    fn from_sql(sql: Self::Sql<'_>) -> Result<Self>;
}

/// Reads values from a row.
pub(crate) trait ReadColumn {
    fn read<T: Column>(&self, column: &str) -> Result<T>;
}

impl ReadColumn for SqlRow {
    fn read<T: Column>(&self, column: &str) -> Result<T> {
        T::from_sql(self.get(column)?)
    }
}

/// Reads a struct: the first fields from columns of the same names, the others as given.
macro_rules! from_columns {
    ($row:expr => $($type:ident)::+ { $($column:ident),* $(; $($field:ident $(: $value:expr)?),+)? }) => {
        $($type)::+ { $($column: $row.read(stringify!($column))?,)* $($($field $(: $value)?,)+)? }
    };
}
pub(crate) use from_columns;

/// Values as an array, to be bound to a statement.
pub(crate) fn array<'v, C: Column + 'v>(values: impl IntoIterator<Item = &'v C>) -> Vec<C::Sql<'v>> {
    values.into_iter().map(C::to_sql).collect()
}

/// Binds one array for each value of the rows, for `unnest`.
macro_rules! bind_arrays {
    ($query:expr, for $row:pat_param in $rows:expr; $($value:expr),+ $(,)?) => {
        $query$(.bind({
            #[allow(unused_variables, reason = "each array needs a part of the row")]
            let array = $rows.iter().map(|$row| $value.to_sql()).collect::<Vec<_>>();
            array
        }))+
    };
}
pub(crate) use bind_arrays;

/// Adds statements for rows, if there are any, each for at most [`STATEMENT_ROWS`](crate::batch::STATEMENT_ROWS).
macro_rules! write_arrays {
    ($statements:expr, $sql:expr, for $row:pat_param in $rows:expr; $($value:expr),+ $(,)?) => {
        for some in $rows.chunks($crate::batch::STATEMENT_ROWS) {
            let query = $crate::columns::bind_arrays!($crate::columns::query($sql), for $row in some; $($value),+);
            $statements.push(query);
        }
    };
}
pub(crate) use write_arrays;

macro_rules! columns {
    ($($type:ty as $sql:ty: |$value:ident| $to_sql:expr, |$column:ident| $from_sql:expr;)*) => {$(
        impl Column for $type {
            type Sql<'v> = $sql;

            fn to_sql(&self) -> Self::Sql<'_> {
                let $value = self;
                $to_sql
            }

            fn from_sql($column: Self::Sql<'_>) -> Result<Self> {
                Ok($from_sql)
            }
        }
    )*};
}

columns! {
    bool as bool: |it| *it, |it| it;
    i32 as i32: |it| *it, |it| it;
    i64 as i64: |it| *it, |it| it;
    u64 as i64: |number| signed(*number), |number| unsigned(number);
    String as &'v str: |text| text, |text| text.to_owned();
    Bytes as &'v [u8]: |bytes| bytes, |bytes| Bytes::copy_from_slice(bytes);
    Vec<TopicNo> as Vec<TopicNo>: |topics| topics.clone(), |topics| topics;
    Millis as i64: |moment| signed(moment.0), |moment| Millis(unsigned(moment));
    Timestamp as i64: |moment| signed(moment.0), |moment| Timestamp(unsigned(moment));
    Seq as i64: |seq| signed(seq.0), |seq| Seq(unsigned(seq));
    Kind as i32: |kind| kind.0.into(), |number| {
        let kind = u16::try_from(number).map(Self);
        kind.map_err(|_| damaged(format!("{number} is no kind")))?
    };
    EventId as FixedBytes<32>: |id| FixedBytes(*id.as_bytes()), |id| Self::from_bytes(id.0);
    PublicKey as FixedBytes<32>: |key| FixedBytes(*key.as_bytes()), |key| Self::from_bytes(key.0);
    AddressDigest as FixedBytes<32>: |digest| FixedBytes(digest.0), |digest| Self(digest.0);
    Digest as Self: |digest| *digest, |digest| digest;
    Subject as Vec<u8>: |subject| subject.to_bytes().to_vec(), |bytes| {
        Subject::from_bytes(&bytes).ok_or_else(|| damaged("remains have no subject"))?
    };
    Address as String: |address| address.to_string(), |text| {
        let address = text.parse();
        address.map_err(|_| damaged(format!("{text} is no address")))?
    };
    TopicId as &'v str: |topic| topic.as_str(), |topic| Self::new_unchecked(topic);
    Vec<TopicId> as Vec<String>: |topics| topics.iter().map(ToString::to_string).collect(), |names| {
        names.iter().map(|name| TopicId::new_unchecked(name)).collect()
    };
    Class as &'v str: |class| class.as_str(), |text| {
        let class = Self::ALL.into_iter().find(|class| class.as_str() == text);
        class.ok_or_else(|| damaged(format!("{text} is no class of partitions")))?
    };
    Keeper as &'v str: |keeper| match keeper {
        Self::Operator => "operator",
        Self::Use => "use",
        Self::People => "people",
    }, |text| match text {
        "use" => Self::Use,
        "people" => Self::People,
        _ => Self::Operator,
    };
}

impl<T: Column> Column for Option<T> {
    type Sql<'v> = Option<T::Sql<'v>>;

    fn to_sql(&self) -> Self::Sql<'_> {
        self.as_ref().map(T::to_sql)
    }

    fn from_sql(sql: Self::Sql<'_>) -> Result<Self> {
        sql.map(T::from_sql).transpose()
    }
}

pub(crate) const REASONS: [Reason; 6] =
    [Reason::Nip09, Reason::Expiration, Reason::Replaced, Reason::Vanish, Reason::Retention, Reason::Capacity];

/// The index of a value in its list is its code in the database.
macro_rules! codes {
    ($($type:ident in $values:expr;)*) => {$(
        impl Column for $type {
            type Sql<'v> = i16;

            fn to_sql(&self) -> i16 {
                $values.iter().position(|value| value == self).unwrap_or_default() as i16
            }

            fn from_sql(code: i16) -> Result<Self> {
                let value = usize::try_from(code).ok().and_then(|code| $values.get(code).copied());
                value.ok_or_else(|| damaged(format!("{code} is no {}", stringify!($type))))
            }
        }
    )*};
}

codes! {
    Source in [Self::Client, Self::Gossip, Self::Sync, Self::Import, Self::Node];
    Reason in REASONS;
    Stage in [Self::Open, Self::LiveOnly, Self::Shedding, Self::Purging];
    RetentionClass in Self::ALL;
}

/// Partition class of a row (P-7). It follows from the kind, until a row is moved because it outlives its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Class {
    /// Regular events.
    Default,
    /// Versions of keys, and regular events that a topic keeps longer than other topics do.
    Long,
    /// Deletion and vanish requests.
    Requests,
}

impl Class {
    pub(crate) const ALL: [Self; 3] = [Self::Default, Self::Long, Self::Requests];

    pub(crate) fn of(kind: Kind) -> Self {
        if kind.is_request() {
            Self::Requests
        } else if kind.is_keyed() {
            Self::Long
        } else {
            Self::Default
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Long => "long",
            Self::Requests => "requests",
        }
    }
}

pub(crate) fn unsigned(number: i64) -> u64 {
    number.max(0) as u64
}

/// A number of a cursor; -1 if the cursor has none yet.
pub(crate) fn number_at(cursor: &[u8], place: usize) -> i64 {
    let bytes = cursor.get(place..).and_then(|rest| rest.first_chunk());
    bytes.map_or(-1, |bytes| i64::from_be_bytes(*bytes))
}
