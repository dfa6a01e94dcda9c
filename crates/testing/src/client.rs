//! A Nostr client that sends and receives JSON. It panics on an answer that the test does not expect.

use kukuri_domain::Event;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    connection::{Connection, ConnectionError},
    events::{as_json, draft},
    waiting::TIMEOUT,
};

/// A connected client that has received its AUTH challenge.
pub struct Client {
    /// The WebSocket connection.
    pub connection: Connection,
    /// The challenge to authenticate with (NIP-42).
    pub challenge: String,
}

/// How a connection ended.
#[derive(Debug)]
pub struct Ended {
    /// Messages received before the closing frame.
    pub before: Vec<Value>,
    /// The code of the closing frame.
    pub code: u16,
    /// The reason in the closing frame.
    pub reason: String,
}

/// An event that can be published: of `kukuri_domain`, or of another library.
pub trait SignedEvent {
    /// The event as JSON.
    fn event_json(&self) -> String;
}

impl SignedEvent for Event {
    fn event_json(&self) -> String {
        String::from_utf8(self.to_json().to_vec()).unwrap()
    }
}

impl<E: SignedEvent> SignedEvent for &E {
    fn event_json(&self) -> String {
        (**self).event_json()
    }
}

#[cfg(feature = "nostr-sdk")]
impl SignedEvent for nostr_sdk::Event {
    fn event_json(&self) -> String {
        nostr_sdk::JsonUtil::as_json(self)
    }
}

impl Client {
    /// Connects to `ws://ADDRESS:PORT` and waits for the challenge.
    pub async fn connect(url: &str) -> Self {
        Self::connect_as(url, &[]).await.unwrap_or_else(|(status, reason)| panic!("{status}: {reason}"))
    }

    /// Like [`Client::connect`], with further HTTP headers. Fails with the status and the body of a refusal.
    pub async fn connect_as(url: &str, headers: &[(&str, &str)]) -> Result<Self, (u16, String)> {
        let address = url.strip_prefix("ws://").and_then(|address| address.parse().ok()).expect("ws://ADDRESS:PORT");
        let connection = match timeout(TIMEOUT, Connection::open_with(address, headers)).await.expect("an answer") {
            Ok(connection) => connection,
            Err(ConnectionError::NotUpgraded { status, body }) => return Err((status, body)),
            Err(other) => panic!("{other}"),
        };
        let mut client = Self { connection, challenge: String::new() };
        let hello = client.hear().await;
        assert_eq!(hello[0], "AUTH");
        client.challenge = hello[1].as_str().unwrap().to_owned();
        Ok(client)
    }

    /// Sends a message.
    pub async fn say(&mut self, message: Value) {
        self.say_text(message.to_string()).await;
    }

    /// Sends a text that need not be JSON.
    pub async fn say_text(&mut self, text: impl AsRef<str>) {
        self.connection.send_text(text.as_ref()).await.unwrap();
    }

    /// Receives the next message.
    pub async fn hear(&mut self) -> Value {
        let text = timeout(TIMEOUT, self.connection.receive()).await.expect("an answer").unwrap();
        serde_json::from_slice(text).unwrap()
    }

    /// Sends a message and returns the next one.
    pub async fn tell(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.hear().await
    }

    /// Receives until the relay closes the connection.
    pub async fn ended(&mut self) -> Ended {
        let mut before = Vec::new();
        loop {
            match timeout(TIMEOUT, self.connection.receive()).await.expect("an end") {
                Ok(text) => before.push(serde_json::from_slice(text).unwrap()),
                Err(ConnectionError::Closed { code, reason, .. }) => return Ended { before, code, reason },
                Err(other) => panic!("{other} after {before:?}"),
            }
        }
    }

    /// Sends an event and returns its OK: whether it is accepted, and the text. Other messages are skipped.
    pub async fn publish(&mut self, event: &impl SignedEvent) -> (bool, String) {
        let json = event.event_json();
        self.say_text(format!(r#"["EVENT",{json}]"#)).await;
        let event: Value = serde_json::from_str(&json).unwrap();
        loop {
            let heard = self.hear().await;
            if heard[0] == "OK" && heard[1] == event["id"] {
                return (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned());
            }
        }
    }

    /// Publishes an event that must be accepted.
    pub async fn accepted(&mut self, event: &Event) {
        assert_eq!(self.publish(event).await, (true, String::new()), "{}", as_json(event));
    }

    /// Subscribes and returns the ids of the stored events.
    pub async fn request(&mut self, id: &str, filters: &[Value]) -> Vec<String> {
        let (ids, end) = self.ask(id, filters).await;
        assert_eq!(end[0], "EOSE", "{end}");
        ids
    }

    /// Subscribes and returns the ids of the stored events and the message that ends them.
    pub async fn ask(&mut self, id: &str, filters: &[Value]) -> (Vec<String>, Value) {
        let mut message = vec![json!("REQ"), json!(id)];
        message.extend_from_slice(filters);
        self.say(Value::from(message)).await;
        let mut ids = Vec::new();
        loop {
            let heard = self.hear().await;
            match heard[0].as_str().unwrap() {
                "EVENT" if heard[1] == id => ids.push(heard[2]["id"].as_str().unwrap().to_owned()),
                "EOSE" | "CLOSED" if heard[1] == id => return (ids, heard),
                other => panic!("{other}: {heard}"),
            }
        }
    }

    /// Authenticates as an author at a relay of this URL. Returns the answer.
    pub async fn authenticate(&mut self, author: u8, url: &str) -> (bool, String) {
        let event = draft(author, 22242).tag(["relay", url]).tag(["challenge", &self.challenge]).sign();
        self.answer_challenge(&event).await
    }

    /// Sends an AUTH event. Returns the answer.
    pub async fn answer_challenge(&mut self, event: &Event) -> (bool, String) {
        let heard = self.tell(json!(["AUTH", as_json(event)])).await;
        assert_eq!((&heard[0], &heard[1]), (&json!("OK"), &json!(event.id)), "{heard}");
        (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned())
    }
}
