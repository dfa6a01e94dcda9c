//! The node's end of the control socket.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use super::{Reply, Request, Running, answer};

const FILE: &str = "control.sock";

/// Where the socket of a data directory is, by a path short enough for the system (108 bytes).
pub(super) fn path(data: &Path) -> anyhow::Result<(PathBuf, Option<fs::File>)> {
    const LONGEST: usize = 100;
    let direct = data.join(FILE);
    if direct.as_os_str().len() <= LONGEST {
        return Ok((direct, None));
    }
    // Through an open directory the way is short wherever it is.
    let directory = fs::File::open(data).with_context(|| data.display().to_string())?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
    Ok((PathBuf::from(format!("/proc/self/fd/{number}/{FILE}")), Some(directory)))
}

/// Opens the socket. Whoever holds the store's lock is the node of this directory, so an old one may go.
pub(crate) fn listen(data: &Path) -> anyhow::Result<UnixListener> {
    let (path, _directory) = path(data)?;
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| path.display().to_string());
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).with_context(|| format!("can't make {}", path.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket of a node that stops.
pub(crate) fn remove(data: &Path) {
    if let Ok((path, _directory)) = path(data) {
        let _ = fs::remove_file(path);
    }
}

/// Answers commands for as long as it is not dropped.
pub(crate) async fn serve(listener: UnixListener, running: Arc<Running>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let running = Arc::clone(&running);
                tokio::spawn(async move {
                    if let Err(error) = talk(stream, &running).await {
                        tracing::debug!(%error, "a command broke off");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a command could not be heard");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn talk(stream: UnixStream, running: &Running) -> anyhow::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut lines = BufReader::new(reading).lines();
    while let Some(line) = lines.next_line().await? {
        let reply = match serde_json::from_str::<Request>(&line) {
            Ok(request) => answer(running, request).await,
            Err(error) => Reply::Failed(format!("not understood: {error}")),
        };
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        writing.write_all(text.as_bytes()).await?;
    }
    Ok(())
}
