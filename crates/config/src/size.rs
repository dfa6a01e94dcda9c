//! Numbers of bytes: `131072`, `512KiB`, `2GiB`.

use std::fmt;

use crate::{TextSetting, TomlValue};

const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// This many bytes.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// This many KiB.
    pub const fn kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// This many MiB.
    pub const fn mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// This many GiB.
    pub const fn gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes, for a length in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<usize> for ByteSize {
    fn from(bytes: usize) -> Self {
        Self(bytes as u64)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, bytes)| self.0 > 0 && self.0.is_multiple_of(*bytes)) {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => self.0.fmt(f),
        }
    }
}

impl TextSetting for ByteSize {
    const ALLOWED: &'static str = "a number of bytes, or a size such as 512KiB, 64MiB or 2GiB";

    fn parse(text: &str) -> Option<Self> {
        let found = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (digits, bytes) = found.unwrap_or((text, 1));
        // `parse` would accept a plus sign.
        let number: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
        number.checked_mul(bytes).and_then(Self::from_number)
    }

    fn from_number(number: u64) -> Option<Self> {
        // TOML has no larger integer.
        i64::try_from(number).is_ok().then_some(Self(number))
    }

    fn to_value(&self) -> TomlValue {
        let is_whole = UNITS.iter().any(|(_, bytes)| self.0 > 0 && self.0.is_multiple_of(*bytes));
        if is_whole { self.to_string().into() } else { TomlValue::Integer(self.0.cast_signed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_written_in_its_largest_whole_unit_and_read_back() {
        for (text, bytes, shown) in [
            ("0", 0, "0"),
            ("1000", 1_000, "1000"),
            ("1024", 1_024, "1KiB"),
            ("1536KiB", 1_572_864, "1536KiB"),
            ("2048MiB", 2 << 30, "2GiB"),
            ("3TiB", 3 << 40, "3TiB"),
        ] {
            let size = ByteSize::parse(text).unwrap();
            assert_eq!((size.get(), size.to_string().as_str()), (bytes, shown), "{text}");
            assert_eq!(ByteSize::parse(shown), Some(size));
        }
        for text in ["", "KiB", "1KB", "1 KiB", "+1", "-1", "1.5GiB", "9999999TiB", "18446744073709551615"] {
            assert_eq!(ByteSize::parse(text), None, "{text}");
        }
    }
}
