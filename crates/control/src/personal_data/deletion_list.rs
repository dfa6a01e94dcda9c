//! Completed deletions, in a file beside the database: not part of a backup, so that a restored backup brings nobody back (N-2).
//!
//! A line is the time, the pseudonym, and whether the person's events went. A person has one line for each version of the secret of
//! pseudonyms, since a backup may be older than the newest. Lines are never removed: they are short, and name nobody.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use kukuri_domain::Timestamp;
use tokio::task::spawn_blocking;

const OWNER_ONLY: u32 = 0o600;
const ACCOUNT: &str = "account";
const ACCOUNT_AND_EVENTS: &str = "account+events";

/// The file.
#[derive(Clone, Debug)]
pub struct DeletionList(PathBuf);

/// A deletion in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedDeletion {
    /// When it was done.
    pub deleted_at: Timestamp,
    /// Whether the person's events went as well.
    pub include_events: bool,
}

impl DeletionList {
    /// The list in a file, which is created by the first deletion.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self(file.into())
    }

    /// All deletions by pseudonym, of each the last.
    pub fn read(&self) -> io::Result<HashMap<String, ListedDeletion>> {
        let text = match std::fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HashMap::new()),
            Err(error) => return Err(error),
        };
        let mut listed = HashMap::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            // A power failure may have cut a line off. Its deletion was not done yet.
            let Some((pseudonym, deletion)) = parse(line) else {
                tracing::warn!(file = %self.0.display(), "the list of deletions has a line that can't be read; it is passed over");
                continue;
            };
            listed.insert(pseudonym, deletion);
        }
        Ok(listed)
    }

    /// Notes a deletion. Durable when this returns.
    pub(super) async fn append(&self, pseudonyms: &[String], deletion: ListedDeletion) -> io::Result<()> {
        let what = if deletion.include_events { ACCOUNT_AND_EVENTS } else { ACCOUNT };
        let line = |pseudonym: &String| format!("{} {pseudonym} {what}\n", deletion.deleted_at.0);
        let lines: String = pseudonyms.iter().map(line).collect();
        let file = self.0.clone();
        let appended = spawn_blocking(move || append(&file, &lines)).await;
        appended.unwrap_or_else(|error| Err(io::Error::other(error)))
    }
}

fn parse(line: &str) -> Option<(String, ListedDeletion)> {
    let mut words = line.split(' ');
    let deleted_at = Timestamp(words.next()?.parse().ok()?);
    let pseudonym = words.next()?.to_owned();
    let include_events = match words.next()? {
        ACCOUNT => false,
        ACCOUNT_AND_EVENTS => true,
        _ => return None,
    };
    words.next().is_none().then_some((pseudonym, ListedDeletion { deleted_at, include_events }))
}

fn append(path: &Path, lines: &str) -> io::Result<()> {
    let is_new = !path.exists();
    let mut file = File::options().create(true).read(true).append(true).mode(OWNER_ONLY).open(path)?;
    let mut content = Vec::with_capacity(lines.len() + 1);
    if !ends_a_line(&mut file)? {
        content.push(b'\n');
    }
    content.extend_from_slice(lines.as_bytes());
    file.write_all(&content)?;
    file.sync_all()?;
    match path.parent() {
        Some(directory) if is_new => kukuri_files::sync(directory),
        _ => Ok(()),
    }
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may stop where it is surprised")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn list_survives_a_line_that_was_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("deletions.log");
        let list = DeletionList::new(&file);
        assert!(list.read().unwrap().is_empty());
        let deletion = |seconds, include_events| ListedDeletion { deleted_at: Timestamp(seconds), include_events };
        list.append(&["1:aa".to_owned(), "2:bb".to_owned()], deletion(5, true)).await.unwrap();
        File::options().append(true).open(&file).unwrap().write_all(b"6 1:c").unwrap();
        list.append(&["1:dd".to_owned()], deletion(7, false)).await.unwrap();
        list.append(&["1:aa".to_owned()], deletion(8, false)).await.unwrap();
        let expected = [("1:aa", deletion(8, false)), ("2:bb", deletion(5, true)), ("1:dd", deletion(7, false))];
        let expected = expected.map(|(pseudonym, deletion)| (pseudonym.to_owned(), deletion));
        assert_eq!(list.read().unwrap(), HashMap::from(expected));
    }
}
