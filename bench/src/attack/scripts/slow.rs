//! Clients that send or read slowly, or not at all.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::sleep,
};

use kukuri_testing::frames::text_frame;

use crate::attack::attacker::{Attacker, TOPIC, publication, stranger};

/// The most connections of one address.
const CONNECTIONS: usize = 50;
/// A small window, so that answers wait at the node.
const RECEIVE_BUFFER: u32 = 4 * 1024;

async fn connect(attacker: &Attacker) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(SocketAddr::new(attacker.ip, 0))?;
    socket.connect(attacker.node).await
}

/// Sends a request, reads at most `rate` bytes each 100 ms, and stays until the node hangs up.
async fn ask_and_dawdle(attacker: &Attacker, requests: &[u8], rate: usize) -> io::Result<()> {
    let mut stream = connect(attacker).await?;
    attacker.number();
    stream.write_all(requests).await?;
    let mut part = vec![0; rate.max(1)];
    loop {
        sleep(Duration::from_millis(100)).await;
        if rate == 0 {
            // A node that hangs up is noticed by its reset alone.
            stream.write_all(b"").await?;
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
        } else if stream.read(&mut part).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Asks for large pages, and reads nothing.
pub(super) async fn snapshots(attacker: Attacker) {
    let request = format!("GET /v1/topics/{TOPIC}/snapshot?limit=500 HTTP/1.1\r\nhost: node\r\n\r\n");
    attacker.on_each(CONNECTIONS, async |_| ask_and_dawdle(&attacker, request.as_bytes(), 0).await).await;
}

/// Follows all changes of a topic from the first on, and reads nothing.
pub(super) async fn streams(attacker: Attacker) {
    let request =
        format!("GET /v1/topics/{TOPIC}/changes?after=0 HTTP/1.1\r\nhost: node\r\naccept: text/event-stream\r\n\r\n");
    attacker.on_each(CONNECTIONS, async |_| ask_and_dawdle(&attacker, request.as_bytes(), 0).await).await;
}

/// Requests large events on WebSocket, and reads 3.5 kB a second.
pub(super) async fn answers(attacker: Attacker) {
    let message = format!(r##"["REQ","large",{{"#t":["{TOPIC}"],"until":{},"limit":500}}]"##, kukuri_testing::now());
    let mut requests = upgrade();
    requests.extend(text_frame(message.as_bytes()));
    attacker.on_each(CONNECTIONS, async |_| ask_and_dawdle(&attacker, &requests, 350).await).await;
}

/// Publishes long posts, and reads them on all other connections as slowly as a client may.
pub(super) async fn live_events(attacker: Attacker) {
    const EVERYBODY: &str = "kukuri:global";
    let text = "long form. ".repeat(60 * 1024 / 11);
    let post = |n| publication(&stranger(n, 1).tag(["t", EVERYBODY]).content(&text).sign());
    let mut requests = upgrade();
    requests.extend(text_frame(format!(r##"["REQ","live",{{"#t":["{EVERYBODY}"],"limit":0}}]"##).as_bytes()));
    tokio::join!(
        attacker.flood(1, 4, post),
        attacker.on_each(CONNECTIONS - 2, async |_| ask_and_dawdle(&attacker, &requests, 2_000).await),
    );
}

/// Sends the head of an HTTP request byte by byte.
pub(super) async fn http_heads(attacker: Attacker) {
    attacker
        .on_each(CONNECTIONS, async |_| {
            let mut stream = connect(&attacker).await?;
            attacker.number();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: node\r\n").await?;
            trickle(&mut stream).await
        })
        .await;
}

/// Sends a WebSocket message byte by byte.
pub(super) async fn messages(attacker: Attacker) {
    attacker
        .on_each(CONNECTIONS, async |_| {
            let mut stream = connect(&attacker).await?;
            attacker.number();
            stream.write_all(&upgrade()).await?;
            // A text frame of 500,000 bytes.
            stream.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0, 7, 0xa1, 0x20, 0, 0, 0, 0]).await?;
            trickle(&mut stream).await
        })
        .await;
}

async fn trickle(stream: &mut TcpStream) -> io::Result<()> {
    loop {
        stream.write_all(b"x").await?;
        sleep(Duration::from_secs(1)).await;
    }
}

/// The request that opens a WebSocket connection.
fn upgrade() -> Vec<u8> {
    b"GET / HTTP/1.1\r\nhost: node\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
      sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .to_vec()
}
