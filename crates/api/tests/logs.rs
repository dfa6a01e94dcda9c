//! Logs name the route and the request id, never the query string (U-5). A program of its own: log callsites are shared by
//! all threads of a process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop where it is surprised")]

#[allow(dead_code, unused_imports, reason = "shared with the other tests")]
#[path = "it/support/mod.rs"]
mod support;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use axum::http::Request;
use kukuri_domain::topic::TopicsMode;
use kukuri_store::conformance::build::TOPIC;
use support::Node;

#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_name_route_and_request_id_but_neither_query_nor_path() {
    // U-5
    let log = LogBuffer::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let node = Node::new(TopicsMode::Required);
    node.lose_store();
    let request = Request::get(format!("/v1/topics/{TOPIC}/changes?limit=77")).header("x-request-id", "abc-1");
    let answer = node.ask(request).await;
    assert_eq!(answer.status, 503);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for expected in ["/v1/topics/{topic}/changes", "abc-1", "the server is away", "status=503"] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains(TOPIC) && !log.contains("limit"), "{log}");
    assert!(!answer.text.contains("the server is away"));
}
