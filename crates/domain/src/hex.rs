//! Lower-case hexadecimal of a fixed length: the only spelling NIP-01 allows for ids, keys and signatures.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Why a text is not the hex of `N` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {expected} lowercase hex digits")]
pub struct HexError {
    expected: usize,
}

pub(crate) fn decode<const N: usize>(text: &[u8]) -> Result<[u8; N], HexError> {
    let error = HexError { expected: 2 * N };
    if text.len() != 2 * N {
        return Err(error);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0]).ok_or(error)? << 4 | digit(pair[1]).ok_or(error)?;
    }
    Ok(bytes)
}

/// Appends the digits of `bytes` to `out`.
pub(crate) fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    let digits = |byte: &u8| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    out.extend(bytes.iter().flat_map(digits));
}

pub(crate) fn write(bytes: &[u8], f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}
