//! A connection that fails when its client reads too slowly (U-4). The answer is dropped with the connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use kukuri_relay::allowance::SendAllowance;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// The longest time that writes may be blocked before the client has read anything more.
const MAX_BLOCKED: Duration = Duration::from_secs(30);

/// Counts the time that writes are blocked against an allowance, which written bytes refill. It is one for all answers of a
/// connection.
pub(crate) struct MinRateStream<T> {
    inner: T,
    allowance: SendAllowance,
    blocked: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<T> MinRateStream<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, allowance: SendAllowance::new(MAX_BLOCKED), blocked: None }
    }

    pub(crate) fn into_inner(self) -> T {
        self.inner
    }

    fn account(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Pending => {
                let allowance = self.allowance.left();
                let (_, deadline) = self.blocked.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(allowance))));
                deadline.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Ready(written) => {
                if let Some((since, _)) = self.blocked.take() {
                    self.allowance.take(since.elapsed());
                }
                self.allowance.refill(*written.as_ref().unwrap_or(&0));
                Poll::Ready(written)
            }
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for MinRateStream<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for MinRateStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.account(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.account(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Writes 256 KiB to a reader that reads this many bytes a second; the seconds it took, or until it failed.
    async fn write_to_reader_of(bytes_per_second: usize) -> (io::Result<()>, u64) {
        let (server, mut client) = duplex(16 * 1024);
        tokio::spawn(async move {
            let mut buffer = vec![0; bytes_per_second];
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                if !buffer.is_empty() && client.read_exact(&mut buffer).await.is_err() {
                    return;
                }
            }
        });
        let started = Instant::now();
        let written = MinRateStream::new(server).write_all(&vec![0; 256 * 1024]).await;
        (written, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_reads_nothing_is_cut_off() {
        let (written, seconds) = write_to_reader_of(0).await;
        assert_eq!((written.map_err(|error| error.kind()), seconds), (Err(io::ErrorKind::TimedOut), 30));
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_rate_counts_over_many_small_answers() {
        // U-4
        let (server, mut client) = duplex(16 * 1024);
        tokio::spawn(async move {
            let mut buffer = [0; 100];
            while client.read_exact(&mut buffer).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        let (mut stream, started) = (MinRateStream::new(server), Instant::now());
        let ended = loop {
            if let Err(error) = stream.write_all(&[0; 500]).await {
                break error;
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn client_below_the_least_rate_is_cut_off_and_one_above_is_not() {
        let (written, seconds) = write_to_reader_of(1024).await;
        assert!(written.is_err() && (30..40).contains(&seconds), "{seconds}");
        let (written, seconds) = write_to_reader_of(4 * 1024).await;
        assert!(written.is_err() && seconds < 60, "{seconds}");
        let (written, seconds) = write_to_reader_of(16 * 1024).await;
        assert!(written.is_ok() && seconds < 20, "{seconds}");
    }
}
