//! A proxy that delays what it passes on, like a network does, and counts round trips.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

/// Passes connections on until it is dropped.
pub struct DelayingProxy {
    /// Where it listens.
    pub address: SocketAddr,
    round_trips: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl DelayingProxy {
    /// Passes connections on to `server`, each byte this much later, in either direction.
    pub async fn start(server: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, round_trips) = (listener.local_addr().unwrap(), Arc::<AtomicU64>::default());
        let counted = Arc::clone(&round_trips);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, delay, Arc::clone(&counted)));
            }
        });
        Self { address, round_trips, task }
    }

    /// How often a client has sent something after the server's last words, on all connections so far.
    pub fn round_trips(&self) -> u64 {
        self.round_trips.load(Relaxed)
    }
}

impl Drop for DelayingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: TcpStream, server: SocketAddr, delay: Duration, round_trips: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_servers_turn = Arc::new(AtomicBool::new(false));
    let was_servers_turn = Arc::clone(&is_servers_turn);
    let upwards = later(from_client, to_server, delay, move || {
        if !was_servers_turn.swap(true, Relaxed) {
            round_trips.fetch_add(1, Relaxed);
        }
    });
    let downwards = later(from_server, to_client, delay, move || is_servers_turn.store(false, Relaxed));
    tokio::select! {
        () = upwards => {}
        () = downwards => {}
    }
}

/// Passes bytes on, each piece after the delay. Reading does not wait for writing.
async fn later(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration, note: impl Fn()) {
    let (queue, mut queued) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let writing = async {
        while let Some((due, bytes)) = queued.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    let reading = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            note();
            if queue.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, writing);
}
