//! The node's own key: made at the first start, readable by its owner alone.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use kukuri_domain::PublicKey;
use secp256k1::{Keypair, SecretKey};

const FILE: &str = "node.key";
const OWNER_ONLY: u32 = 0o600;

/// The node's secret. Never printed by accident: it has no `Debug`.
pub(crate) struct NodeKey(Keypair);

impl NodeKey {
    /// The file it is kept in.
    pub(crate) fn file(data: &Path) -> PathBuf {
        data.join(FILE)
    }

    /// Reads the key of a data directory, making one if there is none.
    pub(crate) fn load_or_make(data: &Path) -> anyhow::Result<Self> {
        let path = Self::file(data);
        match Self::load(&path) {
            Err(error) if is_missing(&error) => Self::make(&path).with_context(|| path.display().to_string()),
            loaded => loaded,
        }
    }

    /// Reads a key.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let mode = fs::metadata(path)?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            bail!("{}: others may read the node's key (mode {mode:o}); make it {OWNER_ONLY:o}", path.display());
        }
        let Some(secret) = secret_of(text.trim()) else {
            bail!("{}: not a key: 64 hex digits are expected", path.display());
        };
        Ok(Self(Keypair::from_secret_key(&secret)))
    }

    fn make(path: &Path) -> anyhow::Result<Self> {
        let secret = loop {
            let mut bytes = [0; 32];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            // All but a few numbers are keys.
            if let Ok(secret) = SecretKey::from_secret_bytes(bytes) {
                break secret;
            }
        };
        // Written aside and renamed: half a key would keep the node from starting ever after.
        let part = path.with_extension("part");
        let mut file = File::options().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&part)?;
        file.write_all(format!("{}\n", hex(&secret.to_secret_bytes())).as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        Ok(Self(Keypair::from_secret_key(&secret)))
    }

    /// What others know it by.
    pub(crate) fn public(&self) -> PublicKey {
        let (key, _) = self.0.x_only_public_key();
        PublicKey::from_bytes(key.to_byte_array())
    }
}

fn is_missing(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

fn secret_of(text: &str) -> Option<SecretKey> {
    text.parse().ok()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let made = NodeKey::load_or_make(dir.path()).unwrap();
        let path = NodeKey::file(dir.path());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert_eq!(NodeKey::load_or_make(dir.path()).unwrap().public(), made.public());

        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = NodeKey::load_or_make(dir.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains("others may read"), "{error}");
        fs::set_permissions(&path, fs::Permissions::from_mode(OWNER_ONLY)).unwrap();
        fs::write(&path, "nonsense").unwrap();
        let error = NodeKey::load_or_make(dir.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains("64 hex digits"), "{error}");
    }
}
