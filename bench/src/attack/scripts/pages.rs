//! Pages that anybody may ask for.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::attack::attacker::Attacker;

const CONNECTIONS: usize = 10;

/// Asks for metrics and the status page without end.
pub(super) async fn pages(attacker: Attacker) {
    attacker
        .on_each(CONNECTIONS, async |connection| {
            let path = ["/metrics", "/"][connection % 2];
            let mut stream = attacker.tcp().await?;
            let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\naccept: text/html\r\n\r\n");
            let mut answer = vec![0; 64 * 1024];
            loop {
                attacker.number();
                stream.write_all(request.as_bytes()).await?;
                let read = stream.read(&mut answer).await?;
                if read == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                if answer.starts_with(b"HTTP/1.1 200") {
                    attacker.counts.accepted();
                } else {
                    attacker.counts.refused();
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        })
        .await;
}
