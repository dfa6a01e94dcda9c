//! What a command answers: text on standard output.

use std::io::{self, Write};

/// Writes an answer. A reader who has left (`| head`) has seen enough; that is no error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
