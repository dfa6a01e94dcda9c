//! A reader of server-sent events.

use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt;
use serde_json::Value;

pub(crate) struct Stream {
    body: BodyDataStream,
}

/// The lines between two empty ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Message {
    pub(crate) id: Option<u64>,
    pub(crate) data: Option<Value>,
    pub(crate) is_comment: bool,
}

impl Stream {
    pub(crate) fn new(body: Body) -> Self {
        Self { body: body.into_data_stream() }
    }

    /// The messages of the next chunk; `None`: the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Vec<Message>> {
        let piece = self.body.next().await?.unwrap();
        Some(messages(str::from_utf8(&piece).unwrap()))
    }
}

pub(crate) fn seq_of(position: &str) -> u64 {
    let (epoch, seq) = position.split_once('.').unwrap();
    assert_eq!(epoch.len(), 16, "{position}");
    seq.parse().unwrap()
}

pub(crate) fn messages(text: &str) -> Vec<Message> {
    assert!(text.ends_with("\n\n"), "whole messages: {text:?}");
    text.split_terminator("\n\n").map(message).collect()
}

fn message(block: &str) -> Message {
    let mut message = Message::default();
    for line in block.lines() {
        match line.split_once(':').unwrap() {
            ("", _) => message.is_comment = true,
            ("id", id) => message.id = Some(seq_of(id.trim())),
            ("data", data) => message.data = Some(serde_json::from_str(data).unwrap()),
            other => panic!("{other:?}"),
        }
    }
    message
}
