//! The node's secret keys: `node.key` (Nostr, for clients) and `gossip.key` (iroh, for peers). Each is a file that the
//! node creates at its first start, readable by its owner only.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use kukuri_domain::{PublicKey, sign::public_key};
use secp256k1::{Keypair, SecretKey};

const NOSTR_FILE: &str = "node.key";
const GOSSIP_FILE: &str = "gossip.key";
const OWNER_ONLY: u32 = 0o600;

/// Reads the iroh key, or creates it. Any 32 bytes are a valid key.
pub(crate) fn for_gossip(data: &Path) -> anyhow::Result<[u8; 32]> {
    load_or_create(&data.join(GOSSIP_FILE))
}

/// The files of all keys.
pub(crate) fn files(directory: &Path) -> [PathBuf; 2] {
    [NOSTR_FILE, GOSSIP_FILE].map(|file| directory.join(file))
}

pub(crate) fn nostr_file(data: &Path) -> PathBuf {
    data.join(NOSTR_FILE)
}

/// Reads the Nostr key, or creates it.
pub(crate) fn for_nostr(data: &Path) -> anyhow::Result<Keypair> {
    let path = nostr_file(data);
    let secret = SecretKey::from_secret_bytes(load_or_create(&path)?).map_err(|_| not_a_key(&path))?;
    Ok(Keypair::from_secret_key(&secret))
}

/// The public key of [`for_nostr`].
pub(crate) fn nostr_public_key(data: &Path) -> anyhow::Result<PublicKey> {
    Ok(public_key(&for_nostr(data)?))
}

fn load_or_create(path: &Path) -> anyhow::Result<[u8; 32]> {
    if path.exists() { load(path) } else { create(path).with_context(|| path.display().to_string()) }
}

fn load(path: &Path) -> anyhow::Result<[u8; 32]> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!("{}: others may read the node's key (mode {mode:o}); run chmod {OWNER_ONLY:o} on it", path.display());
    }
    from_hex(text.trim()).ok_or_else(|| not_a_key(path))
}

fn create(path: &Path) -> anyhow::Result<[u8; 32]> {
    // All but about one in 2^128 values are valid secp256k1 keys.
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
    kukuri_files::write(path, format!("{}\n", to_hex(&secret)).as_bytes())?;
    Ok(secret)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> = text.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    bytes.try_into().ok().filter(|_| digits.len() == 64)
}

fn not_a_key(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("{}: not a key: 64 hex digits are expected", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_created_once_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let created = nostr_public_key(dir.path()).unwrap();
        let path = nostr_file(dir.path());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert_eq!(nostr_public_key(dir.path()).unwrap(), created);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = nostr_public_key(dir.path()).unwrap_err().to_string();
        assert!(error.contains("others may read"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(OWNER_ONLY)).unwrap();
        assert_eq!(for_gossip(dir.path()).unwrap(), for_gossip(dir.path()).unwrap());
        let both = [NOSTR_FILE, GOSSIP_FILE].map(|file| fs::read(dir.path().join(file)).unwrap());
        assert_ne!(both[0], both[1], "each purpose has its own key");
        fs::write(&path, "nonsense").unwrap();
        let error = nostr_public_key(dir.path()).unwrap_err().to_string();
        assert!(error.contains("64 hex digits"), "{error}");
    }
}
