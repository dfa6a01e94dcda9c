//! Streams over a real socket.

use std::net::SocketAddr;

use crate::support::Node;
use kukuri_domain::topic::TopicsMode;
use kukuri_store::conformance::build::{TOPIC, note};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

async fn listen(node: &Node) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, node.router.clone()).into_future());
    address
}

async fn ask(address: SocketAddr, rest: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET /v1/topics/{TOPIC}/changes HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{rest}\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(socket)
}

/// Reads lines up to one with this prefix.
async fn line(socket: &mut BufReader<TcpStream>, beginning: &str) -> String {
    loop {
        let mut line = String::new();
        assert!(socket.read_line(&mut line).await.unwrap() > 0, "the connection has ended");
        if line.starts_with(beginning) {
            return line.trim_end().to_owned();
        }
    }
}

#[tokio::test]
async fn stream_is_live_resumable_and_ends_with_the_node() {
    // W-8
    let node = Node::new(TopicsMode::Required);
    let address = listen(&node).await;
    let mut socket = ask(address, "accept: text/event-stream\r\n").await;
    assert_eq!(line(&mut socket, "HTTP").await, "HTTP/1.1 200 OK");
    assert_eq!(line(&mut socket, "content-type").await, "content-type: text/event-stream");
    line(&mut socket, ":").await;
    for number in 1..=3 {
        node.send(&[note(&number.to_string()).build()]).await;
        assert_eq!(line(&mut socket, "id:").await, format!("id: {}", node.position(number)));
        assert!(line(&mut socket, "data:").await.contains(&format!("\"content\":\"{number}\"")));
    }
    drop(socket);

    let mut resumed =
        ask(address, &format!("accept: text/event-stream\r\nlast-event-id: {}\r\n", node.position(2))).await;
    assert_eq!(line(&mut resumed, "id:").await, format!("id: {}", node.position(3)), "after the last id");
    node.stop.send(true).unwrap();
    let mut rest = Vec::new();
    resumed.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "the chunked body is complete: {rest:?}");
}

#[tokio::test]
async fn reader_that_does_not_read_delays_no_other() {
    // W-5
    let node = Node::new(TopicsMode::Required);
    let address = listen(&node).await;
    let mut slow = ask(address, "accept: text/event-stream\r\n").await;
    let mut other = ask(address, "accept: text/event-stream\r\n").await;
    // More than socket buffers hold.
    let notes: Vec<_> = (0..400).map(|number| note(&format!("{number:<30000}")).build()).collect();
    for some in notes.chunks(50) {
        node.send(some).await;
    }
    for number in 1..=notes.len() as u64 {
        assert_eq!(line(&mut other, "id:").await, format!("id: {}", node.position(number)));
    }
    // The slow reader misses nothing.
    for number in 1..=notes.len() as u64 {
        assert_eq!(line(&mut slow, "id:").await, format!("id: {}", node.position(number)));
    }
}
