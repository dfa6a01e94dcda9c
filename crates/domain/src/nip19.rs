//! Public keys as people write them: hex or `npub` (NIP-19).

use bech32::{Bech32, Hrp, primitives::decode::CheckedHrpstring};

use crate::id::PublicKey;

const NPUB: Hrp = Hrp::parse_unchecked("npub");

/// Why a text is not a public key. The text is not repeated: it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// It is neither hex nor an npub.
    #[error("a public key is 64 hex digits, or begins with npub1")]
    NotAKey,
    /// It looks like an npub, and a character is wrong or missing.
    #[error("this npub is mistyped: its checksum is wrong")]
    Mistyped,
    /// It is a secret key.
    #[error("this is a secret key (nsec), which nobody else should see; the public one begins with npub1")]
    Secret,
}

/// Reads a public key: 64 hex digits in either case, or an npub.
pub fn parse_public_key(text: &str) -> Result<PublicKey, KeyTextError> {
    let text = text.trim();
    if let Ok(key) = PublicKey::from_hex(text.to_ascii_lowercase()) {
        return Ok(key);
    }
    let begins_with = |prefix: &str| text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if begins_with("nsec1") {
        return Err(KeyTextError::Secret);
    }
    if !begins_with("npub1") {
        return Err(KeyTextError::NotAKey);
    }
    let decoded = CheckedHrpstring::new::<Bech32>(text).map_err(|_| KeyTextError::Mistyped)?;
    decoded.validate_segwit_padding().map_err(|_| KeyTextError::Mistyped)?;
    let bytes: Vec<u8> = decoded.byte_iter().collect();
    bytes.try_into().map(PublicKey::from_bytes).map_err(|_| KeyTextError::Mistyped)
}

/// The npub of a public key.
pub fn npub(key: &PublicKey) -> String {
    // 32 bytes are never too long.
    bech32::encode::<Bech32>(NPUB, key.as_bytes()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of NIP-19.
    const HEX: &str = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e";
    const EXAMPLE: &str = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";

    #[test]
    fn key_is_read_from_hex_and_npub() {
        let key = PublicKey::from_hex(HEX).unwrap();
        assert_eq!(npub(&key), EXAMPLE);
        for text in [HEX, EXAMPLE, &HEX.to_uppercase(), &EXAMPLE.to_uppercase(), &format!(" {EXAMPLE}\n")] {
            assert_eq!(parse_public_key(text), Ok(key), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_public_key_is_refused() {
        let encode = |bytes: &[u8]| bech32::encode::<Bech32>(NPUB, bytes).unwrap();
        let key = PublicKey::from_hex(HEX).unwrap();
        let of_bech32m = bech32::encode::<bech32::Bech32m>(NPUB, key.as_bytes()).unwrap();
        let (not_a_key, mistyped) = (KeyTextError::NotAKey, KeyTextError::Mistyped);
        for (why, text, expected) in [
            ("empty", String::new(), not_a_key),
            ("a word", "alice".to_owned(), not_a_key),
            ("characters of several bytes", "あいうえお".to_owned(), not_a_key),
            ("one digit short", HEX[1..].to_owned(), not_a_key),
            ("a note", "note1qqqqqq".to_owned(), not_a_key),
            ("a wrong character", EXAMPLE.replace("elf", "elg"), mistyped),
            ("cut", EXAMPLE[..EXAMPLE.len() - 1].to_owned(), mistyped),
            ("of two cases", EXAMPLE.replacen("elf", "ELF", 1), mistyped),
            ("31 bytes", encode(&[7; 31]), mistyped),
            ("33 bytes", encode(&[7; 33]), mistyped),
            ("no data", encode(&[]), mistyped),
            ("Bech32m", of_bech32m, mistyped),
            (
                "a secret key",
                bech32::encode::<Bech32>(Hrp::parse_unchecked("nsec"), key.as_bytes()).unwrap(),
                KeyTextError::Secret,
            ),
        ] {
            assert_eq!(parse_public_key(&text), Err(expected), "{why}: {text}");
        }
    }
}
