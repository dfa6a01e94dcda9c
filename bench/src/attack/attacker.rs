//! A client at an address of its own, that uses all that its limits allow.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use kukuri_domain::Event;
use kukuri_testing::{Connection, Draft, connection::connect_from, draft};
use tokio::{net::TcpStream, time::sleep};

use crate::corpus::mixed;

/// The topic that is enabled on every node.
pub(crate) const TOPIC: &str = "kukuri:global";

/// Pause after a refusal: an attacker gains nothing by asking what it will not get.
const PAUSE: Duration = Duration::from_millis(100);

/// An attacking client.
#[derive(Clone)]
pub(crate) struct Attacker {
    pub(crate) ip: IpAddr,
    /// Which of the attackers this is, from 0.
    pub(crate) number: u8,
    pub(crate) node: SocketAddr,
    /// The node's binary.
    pub(crate) program: PathBuf,
    /// The node's data directory.
    pub(crate) data: PathBuf,
    pub(crate) counts: Arc<Counts>,
}

/// How the attackers' messages were answered.
#[derive(Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    /// Connections that the node refused or closed.
    closed: AtomicU64,
}

impl Counts {
    pub(crate) fn summary(&self) -> String {
        let [sent, accepted, refused, closed] =
            [&self.sent, &self.accepted, &self.refused, &self.closed].map(|count| count.load(Ordering::Relaxed));
        format!("{sent} sent, {accepted} served, {refused} refused, {closed} closed")
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Attacker {
    /// A number that no other message of any attacker has.
    pub(crate) fn number(&self) -> u64 {
        self.counts.sent()
    }

    /// A WebSocket connection, as soon as the node lets it in.
    pub(crate) async fn connection(&self) -> Connection {
        loop {
            match Connection::open_from(self.ip, self.node).await {
                Ok(connection) => return connection,
                Err(_) => self.counts.closed(),
            }
            sleep(PAUSE).await;
        }
    }

    /// A TCP connection.
    pub(crate) async fn tcp(&self) -> io::Result<TcpStream> {
        connect_from(self.ip, self.node).await
    }

    /// Does the same on many connections, again whenever one ends.
    pub(crate) async fn on_each<F: Future<Output = io::Result<()>>>(
        &self,
        connections: usize,
        run: impl Fn(usize) -> F,
    ) {
        join_all((0..connections).map(|index| {
            let run = &run;
            async move {
                loop {
                    if run(index).await.is_err() {
                        self.counts.closed();
                    }
                    sleep(PAUSE).await;
                }
            }
        }))
        .await;
    }

    /// Sends messages on many connections, each as soon as fewer than `in_flight` of its connection wait for their answer.
    pub(crate) async fn flood(&self, connections: usize, in_flight: usize, message: impl Fn(u64) -> String) {
        self.on_each(connections, async |_| {
            let mut connection = self.connection().await;
            let mut waiting = 0;
            loop {
                while waiting < in_flight {
                    let text = message(self.number());
                    connection.send_text(&text).await.map_err(io::Error::other)?;
                    waiting += 1;
                }
                let answer = connection.receive().await.map_err(io::Error::other)?;
                match Answer::read(answer) {
                    Answer::Part => {}
                    Answer::Accepted => {
                        self.counts.accepted();
                        waiting -= 1;
                    }
                    Answer::Refused => {
                        self.counts.refused();
                        waiting -= 1;
                        sleep(PAUSE).await;
                    }
                }
            }
        })
        .await;
    }
}

/// The kind of a relay's message.
enum Answer {
    /// More follows, or it answers nothing.
    Part,
    Accepted,
    Refused,
}

impl Answer {
    fn read(text: &[u8]) -> Self {
        let word = text.strip_prefix(b"[\"").unwrap_or_default();
        match word.iter().position(|byte| *byte == b'"').map(|end| &word[..end]) {
            Some(b"OK") if text.windows(6).take(100).any(|part| part == b",true,") => Self::Accepted,
            Some(b"EOSE" | b"COUNT" | b"NEG-MSG") => Self::Accepted,
            Some(b"OK" | b"CLOSED" | b"NEG-ERR") => Self::Refused,
            _ => Self::Part,
        }
    }
}

/// An event of the author with this number.
pub(crate) fn stranger(number: u64, kind: u16) -> Draft {
    let mut secret = [1; 32];
    secret[..8].copy_from_slice(&mixed(number).to_be_bytes());
    draft(1, kind).by(secret)
}

/// The message that publishes an event.
pub(crate) fn publication(event: &Event) -> String {
    format!(r#"["EVENT",{}]"#, String::from_utf8_lossy(&event.to_json()))
}
