//! Lower-case hexadecimal: the only spelling NIP-01 allows for ids, keys and signatures.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A text that is not the hex of `N` bytes.
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
    let mut all = 0;
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (VALUES[usize::from(pair[0])], VALUES[usize::from(pair[1])]);
        all |= high | low;
        *byte = high << 4 | low;
    }
    // One check at the end instead of one per digit: nearly all texts are valid.
    if all & NO_DIGIT == 0 { Ok(bytes) } else { Err(error) }
}

/// Appends the digits of `bytes` to `out`.
pub(crate) fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    for (digits, byte) in out[start..].chunks_exact_mut(2).zip(bytes) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// The digits of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut digits = Vec::new();
    encode_into(bytes, &mut digits);
    // Digits are ASCII.
    String::from_utf8(digits).unwrap_or_default()
}

const NO_DIGIT: u8 = 0x80;
/// The value of a hex digit.
const VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};
