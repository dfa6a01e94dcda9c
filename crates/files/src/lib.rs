//! Small files and directories that survive a power failure.
//!
//! A synced file can still be lost: its name is part of its directory, which is synced separately.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const OWNER_ONLY: u32 = 0o600;

/// Writes a file that only its owner can read. Durable when it returns; after a crash the file is the old or the new one.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = File::options().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&part)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&part, path)?;
    sync(&parent(path))
}

/// Creates a directory and its missing parents with this mode. Durable when it returns. An existing directory stays as it
/// is.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|at| !at.as_os_str().is_empty() && !at.exists()).collect();
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    missing.into_iter().try_for_each(|made| sync(&parent(made)))
}

/// Makes a file's content, or the names in a directory, durable.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn file_is_replaced_as_a_whole_and_readable_by_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for content in ["first", "2nd"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode_of(&path)), (content, OWNER_ONLY));
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn directory_is_created_with_its_parents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        create_directory(&path, 0o700).unwrap();
        assert_eq!((mode_of(&path), mode_of(&dir.path().join("a"))), (0o700, 0o700));
        create_directory(&path, 0o755).unwrap();
        assert_eq!(mode_of(&path), 0o700, "an existing one is left as it is");
        assert!(create_directory(&dir.path().join("a/b/c/../x/y"), 0o700).is_ok());
    }
}
