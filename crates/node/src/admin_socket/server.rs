//! The node's end of the admin socket.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
};

use super::{AdminContext, AdminReply, AdminRequest, answer};
use crate::output;

const SOCKET_FILE: &str = "admin.sock";

/// The socket's path, short enough for `sockaddr_un` (108 bytes). The file keeps a shortened path valid.
pub(super) fn path(data: &Path) -> anyhow::Result<(PathBuf, Option<fs::File>)> {
    const MAX_PATH_BYTES: usize = 100;
    let direct = data.join(SOCKET_FILE);
    if direct.as_os_str().len() <= MAX_PATH_BYTES {
        return Ok((direct, None));
    }
    // A path through a file descriptor is short, however long the directory's own path is.
    let directory = fs::File::open(data).with_context(|| data.display().to_string())?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&directory);
    Ok((PathBuf::from(format!("/proc/self/fd/{number}/{SOCKET_FILE}")), Some(directory)))
}

/// Opens the socket. The caller holds the lock of the data directory, so an existing socket file is stale.
pub(crate) fn listen(data: &Path) -> anyhow::Result<UnixListener> {
    let (path, _directory) = path(data)?;
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| path.display().to_string());
    }
    bind_private(&path).with_context(|| format!("can't make {}", path.display()))
}

/// Binds a socket that only its owner can ever open. A socket gets its mode by the umask, so it is bound in a directory of
/// the owner's and moved when its own mode is set.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let private = path.with_extension("part");
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::DirBuilder::new().mode(0o700).create(&private)?,
    }
    let bound = private.join("s");
    let listener = UnixListener::bind(&bound)?;
    fs::set_permissions(&bound, fs::Permissions::from_mode(0o600))?;
    fs::rename(&bound, path)?;
    fs::remove_dir(&private)?;
    Ok(listener)
}

/// Removes the socket at shutdown.
pub(crate) fn remove(data: &Path) {
    if let Ok((path, _directory)) = path(data) {
        let _ = fs::remove_file(path);
    }
}

/// Answers commands until the future is dropped.
pub(crate) async fn serve(listener: UnixListener, context: Arc<AdminContext>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let context = Arc::clone(&context);
                tokio::spawn(async move {
                    if let Err(error) = serve_connection(stream, &context).await {
                        tracing::debug!(%error, "a command disconnected before its reply");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection on the admin socket; retrying");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: UnixStream, context: &AdminContext) -> anyhow::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next_line().await? {
        let reply: AdminReply = match serde_json::from_str::<AdminRequest>(&line) {
            Ok(request) => answer(context, request).await.map_err(|error| output::one_line(&error)),
            Err(error) => Err(format!("unknown request: {error}")),
        };
        let mut text = serde_json::to_string(&reply)?;
        text.push('\n');
        lines.get_mut().write_all(text.as_bytes()).await?;
    }
    Ok(())
}
