//! HyperLogLog sketch in 256 bytes: estimates the number of distinct authors (NIP-45).
//!
//! A client merges the sketches of several nodes register by register. So it learns how many people reacted without
//! fetching their events, and counts a person on two nodes only once.

use sha2::{Digest, Sha256};

use crate::{filter::Filter, hex, id::PublicKey, tags::Letter, topic::claims_to_be_topic};

const REGISTERS: usize = 256;

/// A sketch of public keys. The filter sets the offset of the key bytes that are used, so that a key that was mined to
/// inflate one count does not inflate another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// 8 to 23. The nine bytes of a key from here on are used.
    offset: usize,
    registers: [u8; REGISTERS],
}

impl Sketch {
    /// An empty sketch for a filter. `None`: the filter has no tag to take an offset from.
    ///
    /// The offset comes from the first value of the first tag, in the order of the filter's JSON. A `#t` that names
    /// only topics is skipped (W-6): a client adds it because this node requires it, and sends the same filter without
    /// it to other relays.
    pub fn for_filter(filter: &Filter) -> Option<Self> {
        let only_topics = |letter: Letter| {
            letter == Letter::T
                && filter.tag_values(letter).is_some_and(|values| values.iter().all(|v| claims_to_be_topic(v)))
        };
        let (_, value) = filter.tags_as_written().find(|(letter, _)| !only_topics(*letter))?;
        // The hex digit at index 32 is the upper half of byte 16.
        Some(Self { offset: usize::from(bytes_of(value?)[16] >> 4) + 8, registers: [0; REGISTERS] })
    }

    /// Adds a public key. Adding it again changes nothing.
    pub fn add(&mut self, key: &PublicKey) {
        let Some((index, rest)) = key.as_bytes()[self.offset..].split_first() else { return };
        let Some(rest) = rest.first_chunk() else { return };
        self.add_part(*index, u64::from_be_bytes(*rest));
    }

    /// Adds a public key by the byte at the offset and the eight bytes after it. Of keys with the same byte, the one with the
    /// lowest rest stands for all.
    pub fn add_part(&mut self, index: u8, rest: u64) {
        let register = &mut self.registers[usize::from(index)];
        *register = (*register).max(rest.leading_zeros() as u8 + 1);
    }

    /// Where in a public key the bytes begin that are used.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The registers, as in the `hll` field of an answer.
    pub fn to_hex(&self) -> String {
        hex::encode(&self.registers)
    }
}

/// The bytes of an id or public key, the public key of an address, or the SHA-256 of any other value.
fn bytes_of(value: &str) -> [u8; 32] {
    let key_of_address = || {
        let mut parts = value.splitn(3, ':');
        let (kind, key, _identifier) = (parts.next()?, parts.next()?, parts.next()?);
        kind.parse::<u16>().ok()?;
        hex::decode(key.as_bytes()).ok()
    };
    let as_it_is = hex::decode(value.as_bytes()).ok();
    as_it_is.or_else(key_of_address).unwrap_or_else(|| Sha256::digest(value).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(json: &str) -> Option<usize> {
        Sketch::for_filter(&Filter::from_json(json).unwrap()).map(|sketch| sketch.offset)
    }

    /// 64 hex digits, with `digit` at index 32.
    fn with_digit(digit: char) -> String {
        format!("{}{digit}{}", "a".repeat(32), "5".repeat(31))
    }

    #[test]
    fn the_offset_is_a_digit_of_the_first_value_of_the_first_tag() {
        // NIP-45. SHA-256 of "nostr" has a 4 at index 32, of "" a 2, of "30023:zz:d" a 9, of "a" an a, of "b" an 8.
        let (zero, seven, last) = (with_digit('0'), with_digit('7'), with_digit('f'));
        let loud = seven.to_uppercase();
        for (why, json, expected) in [
            ("an id", format!(r##"{{"#e":["{zero}"]}}"##), Some(8)),
            ("a key", format!(r##"{{"#p":["{last}"],"kinds":[3]}}"##), Some(23)),
            ("an address", format!(r##"{{"#a":["30023:{seven}:a:b"]}}"##), Some(15)),
            ("an address without a d", format!(r##"{{"#a":["0:{seven}:"]}}"##), Some(15)),
            ("any other text", r##"{"#r":["nostr"]}"##.into(), Some(12)),
            ("no text", r##"{"#d":[""]}"##.into(), Some(10)),
            ("an address of nobody", r##"{"#a":["30023:zz:d"]}"##.into(), Some(17)),
            ("the first value as written", r##"{"#r":["b","a"]}"##.into(), Some(16)),
            ("the first tag as written", r##"{"#x":["b"],"#a":["a"]}"##.into(), Some(16)),
            ("the other way round", r##"{"#a":["a"],"#x":["b"]}"##.into(), Some(18)),
            ("upper-case hex is any other text", format!(r##"{{"#e":["{loud}"]}}"##), Some(23)),
            ("no tag", r##"{"kinds":[1]}"##.into(), None),
            ("a tag without a value", r##"{"#e":[]}"##.into(), None),
            ("a tag without a value comes first all the same", r##"{"#e":[],"#a":["a"]}"##.into(), None),
            ("W-6: topics do not count", r##"{"#t":["kukuri:global"],"#a":["a"]}"##.into(), Some(18)),
            ("W-6: nor do they alone", r##"{"#t":["kukuri:global"]}"##.into(), None),
            ("W-6: hashtags do", r##"{"#t":["a"],"#x":["b"]}"##.into(), Some(18)),
            ("W-6: also among topics", r##"{"#t":["nostr","kukuri:global"],"#x":["b"]}"##.into(), Some(12)),
        ] {
            assert_eq!(offset(&json), expected, "{why}");
        }
    }

    #[test]
    fn register_of_the_first_key_byte_keeps_the_most_leading_zeros_plus_one() {
        let key = |bytes: [u8; 9]| {
            let mut key = [0xff; 32];
            key[8..17].copy_from_slice(&bytes);
            PublicKey::from_bytes(key)
        };
        let mut sketch = Sketch { offset: 8, registers: [0; REGISTERS] };
        for (bytes, index, value, why) in [
            ([0, 0x80, 0, 0, 0, 0, 0, 0, 0], 0, 1, "no zero bit"),
            ([1, 0x01, 0, 0, 0, 0, 0, 0, 0], 1, 8, "seven"),
            ([1, 0x7f, 0, 0, 0, 0, 0, 0, 0], 1, 8, "one: the most stays"),
            ([2, 0, 0, 0x10, 0, 0, 0, 0, 0], 2, 20, "nineteen"),
            ([255, 0, 0, 0, 0, 0, 0, 0, 1], 255, 64, "sixty-three"),
            ([7, 0, 0, 0, 0, 0, 0, 0, 0], 7, 65, "all of them"),
        ] {
            sketch.add(&key(bytes));
            sketch.add(&key(bytes));
            assert_eq!(sketch.registers[index], value, "{why}");
        }
        let hex = sketch.to_hex();
        assert_eq!(hex.len(), 512);
        assert!(hex.starts_with("010814") && hex.ends_with("0040"), "{hex}");
        assert_eq!(hex.chars().filter(|digit| *digit != '0').count(), 7, "65 is 41");

        let mut last = Sketch { offset: 23, registers: [0; REGISTERS] };
        last.add(&PublicKey::from_bytes([0; 32]));
        assert_eq!(last.registers[0], 65, "the last offset ends with the key");
    }
}
