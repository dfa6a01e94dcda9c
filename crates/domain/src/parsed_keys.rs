//! The parsed keys of recent authors. Parsing a key takes a square root, a tenth of what verifying a signature takes.

use std::sync::{LazyLock, Mutex};

use secp256k1::XOnlyPublicKey;

use crate::id::PublicKey;

/// Keys that are kept, each in the one place that its bytes give. About half a megabyte.
const PLACES: usize = 4_096;

type Place = Mutex<Option<(PublicKey, XOnlyPublicKey)>>;

static KEYS: LazyLock<Box<[Place]>> = LazyLock::new(|| (0..PLACES).map(|_| Place::default()).collect());

/// Whoever chooses a key chooses its place: it takes the place of one other key, which is then parsed again.
fn place_of(key: &PublicKey) -> Option<&'static Place> {
    let [.., first, second] = key.as_bytes();
    KEYS.get(usize::from(u16::from_be_bytes([*first, *second])) % PLACES)
}

/// The parsed key, if it is kept. A place that another thread looks at counts as empty.
pub(crate) fn find(key: &PublicKey) -> Option<XOnlyPublicKey> {
    let kept = (*place_of(key)?.try_lock().ok()?)?;
    (kept.0 == *key).then_some(kept.1)
}

/// Keeps the key of an author whose signature was right.
pub(crate) fn keep(key: PublicKey, parsed: XOnlyPublicKey) {
    if let Some(mut place) = place_of(&key).and_then(|place| place.try_lock().ok()) {
        *place = Some((key, parsed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_key_is_found_under_its_own_bytes_alone() {
        // The x coordinate of the generator of secp256k1.
        let generator =
            "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798".parse::<PublicKey>().unwrap();
        let parsed = XOnlyPublicKey::from_byte_array(*generator.as_bytes()).unwrap();
        let mut bytes = *generator.as_bytes();
        bytes[0] ^= 1;
        let neighbour = PublicKey::from_bytes(bytes);
        keep(generator, parsed);
        assert_eq!(find(&generator), Some(parsed));
        assert_eq!(find(&neighbour), None, "another key of the same place");
        keep(neighbour, parsed);
        assert_eq!(find(&generator), None, "its place was taken");
    }
}
