//! Values of statements and rows: integers, texts, bytes, null. Truth is 0 or 1, a time is Unix seconds.

use kukuri_domain::{Millis, PublicKey, Timestamp, TopicId};

use crate::{Error, Result};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A `bigint`.
    Integer(i64),
    /// A `text`.
    Text(String),
    /// A `bytea`.
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<Timestamp> for Value {
    fn from(Timestamp(seconds): Timestamp) -> Self {
        seconds.into()
    }
}

impl From<Millis> for Value {
    fn from(time: Millis) -> Self {
        time.seconds().into()
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&String> for Value {
    fn from(value: &String) -> Self {
        Self::Text(value.clone())
    }
}

impl From<&PublicKey> for Value {
    fn from(value: &PublicKey) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<&TopicId> for Value {
    fn from(value: &TopicId) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// What a value can be read as.
pub trait FromValue: Sized {
    /// Reads a value. `None`: it is none of this type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for Value {
    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Integer(number) = value { Some(*number) } else { None }
    }
}

impl FromValue for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value).map(|number| number != 0)
    }
}

impl FromValue for Timestamp {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).map(Self)
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Bytes(bytes) = value { Some(bytes.clone()) } else { None }
    }
}

impl FromValue for PublicKey {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Self::from_hex(text).ok() } else { None }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        if *value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub(super) Vec<Value>);

impl Row {
    /// The first value.
    pub(crate) fn first(&self) -> Option<&Value> {
        self.0.first()
    }

    /// The value of a column, by number.
    pub fn get<T: FromValue>(&self, column: usize) -> Result<T> {
        let value = self.0.get(column).and_then(T::from_value);
        value.ok_or_else(|| {
            let expected = std::any::type_name::<T>();
            Error::Damaged(format!("column {column} does not hold a value of type {expected}"))
        })
    }
}
