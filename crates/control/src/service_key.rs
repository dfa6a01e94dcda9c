//! Keys of services that sign events of their own, such as labels and trust assertions (M-9, R-8). All nodes on a database derive the
//! same ones from its service secret; two labels never give one key, so that no service's events replace those of another.

use hmac::{Hmac, Mac};
use secp256k1::{Keypair, SecretKey};
use sha2::Sha256;

use crate::{
    Error, Result,
    secret::{Purpose, Secret, Secrets, hmac_with},
};

/// The salt of all keys.
const SALT: &[u8] = b"kukuri-node/service-keys/v1";
/// All but about one in 2^128 values are keys; the next value is one then.
const MAX_ATTEMPTS: u8 = 8;

impl Secrets {
    /// The key of a service, by a label that stays the same for ever.
    pub fn service_key(&self, label: &str) -> Result<Keypair> {
        let (_, secret) = self.newest(Purpose::Services)?;
        derive(secret, label)
    }
}

/// HKDF-SHA256 (RFC 5869) of the secret. `info` is the number of the attempt, as one byte, and the label.
fn derive(secret: &Secret, label: &str) -> Result<Keypair> {
    let key = finish(hmac_with(SALT, &[secret.bytes()]));
    let mut values = (0..MAX_ATTEMPTS).map(|attempt| finish(hmac_with(&key, &[&[attempt], label.as_bytes(), &[1]])));
    let found = values.find_map(|value| SecretKey::from_secret_bytes(value).ok());
    let secret = found.ok_or_else(|| Error::Damaged(format!("the service secret gives no key for `{label}`")))?;
    Ok(Keypair::from_secret_key(&secret))
}

fn finish(hmac: Hmac<Sha256>) -> [u8; 32] {
    hmac.finalize().into_bytes().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use kukuri_domain::sign::public_key;

    use super::*;

    #[test]
    fn keys_of_services_are_those_of_the_test_vectors() {
        // M-9, R-8: another value would be another signer on every node that exists.
        for (secret, label, expected) in [
            (1, "labels", "56142fb12a4f6ad6bbee8aca69e7167be6532e9ec140fb2423b01331e5349199"),
            (1, "trust:density:", "a2d019e1923161548c0491e3390f31b04574d13c0d773f228fff1a6689607897"),
            (2, "labels", "5a44941ece7a5db61f096eb955ade6a87cafcf57e00a674511c1f9b6b781fc60"),
            (1, "", "8c568b63a66a0142f1e1505b118b7de932c630daf1116fd91b77c3fa65c86cea"),
        ] {
            assert_eq!(
                public_key(&derive(&Secret::of_bytes([secret; 32]), label).unwrap()).to_string(),
                expected,
                "{label}"
            );
        }
    }
}
