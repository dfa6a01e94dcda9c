//! A client that says and hears JSON, and the events it publishes.

use futures_util::{SinkExt, StreamExt};
use nostr_sdk::{Event, EventBuilder, Keys, Kind, Tag};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite::Message};

use super::{Node, PATIENCE, TOPIC};

pub(crate) struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub(crate) async fn connect(node: &Node) -> Self {
        Self::connect_to(&node.url()).await
    }

    pub(crate) async fn connect_to(url: &str) -> Self {
        let (socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let mut client = Self { socket };
        assert_eq!(client.hear().await[0], "AUTH");
        client
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.socket.send(Message::text(message.to_string())).await.unwrap();
    }

    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.socket.next());
            match next.await.expect("an answer").expect("an open connection").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends an event and returns its answer.
    pub(crate) async fn publish(&mut self, event: &Event) -> (bool, String) {
        self.say(json!(["EVENT", event])).await;
        loop {
            let heard = self.hear().await;
            if heard[0] == "OK" && heard[1] == event.id.to_hex() {
                return (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned());
            }
        }
    }

    /// The ids of stored events.
    pub(crate) async fn request(&mut self, filter: Value) -> Vec<String> {
        self.say(json!(["REQ", "r", filter])).await;
        let mut ids = Vec::new();
        loop {
            let heard = self.hear().await;
            match heard[0].as_str() {
                Some("EVENT") => ids.push(heard[2]["id"].as_str().unwrap().to_owned()),
                Some("EOSE") => return ids,
                _ => panic!("{heard}"),
            }
        }
    }
}

/// A note in the topic.
pub(crate) fn note(keys: &Keys, content: &str) -> Event {
    EventBuilder::text_note(content).tag(topic()).sign_with_keys(keys).unwrap()
}

/// A request to delete an event, in the topic.
pub(crate) fn deletion(keys: &Keys, target: &Event) -> Event {
    let named = Tag::event(target.id);
    EventBuilder::new(Kind::EventDeletion, "").tags([topic(), named]).sign_with_keys(keys).unwrap()
}

pub(crate) fn topic() -> Tag {
    Tag::hashtag(TOPIC)
}
