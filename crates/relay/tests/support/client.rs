//! A client that says and hears JSON.

use futures_util::{SinkExt, StreamExt};
use kukuri_domain::Event;
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue},
};

use super::{PATIENCE, as_json, draft};

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    pub(crate) challenge: String,
}

/// How a connection ended: what was said before, the code and the reason of its end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) before: Vec<Value>,
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::connect_as(url, &[]).await.unwrap_or_else(|(status, reason)| panic!("{status}: {reason}"))
    }

    /// With these headers. If it is not let in: the status and what is said.
    pub(crate) async fn connect_as(url: &str, headers: &[(&'static str, &str)]) -> Result<Self, (u16, String)> {
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let socket = match tokio_tungstenite::connect_async(request).await {
            Ok((socket, _)) => socket,
            Err(Error::Http(answer)) => {
                let body = answer.body().as_ref().map(|body| String::from_utf8_lossy(body).into_owned());
                return Err((answer.status().as_u16(), body.unwrap_or_default()));
            }
            Err(other) => panic!("{other}"),
        };
        let mut client = Self { socket, challenge: String::new() };
        let hello = client.hear().await;
        assert_eq!(hello[0], "AUTH");
        client.challenge = hello[1].as_str().unwrap().to_owned();
        Ok(client)
    }

    pub(crate) async fn say(&mut self, message: Value) {
        self.say_text(message.to_string()).await;
    }

    pub(crate) async fn say_text(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// The next message, as JSON.
    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            let next = timeout(PATIENCE, self.socket.next()).await.expect("an answer");
            match next.expect("an open connection").unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Says something and returns the next message.
    pub(crate) async fn tell(&mut self, message: Value) -> Value {
        self.say(message).await;
        self.hear().await
    }

    /// Listens until the relay closes the connection.
    pub(crate) async fn ended(&mut self) -> Ended {
        let mut before = Vec::new();
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("an end") {
                Some(Ok(Message::Text(text))) => before.push(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    let frame = frame.expect("a reason");
                    return Ended { before, code: frame.code.into(), reason: frame.reason.to_string() };
                }
                Some(Ok(_)) => {}
                other => panic!("cut off without a word: {other:?} after {before:?}"),
            }
        }
    }

    /// Sends an event and returns its answer; other messages are passed over.
    pub(crate) async fn publish(&mut self, event: &Event) -> (bool, String) {
        self.say(json!(["EVENT", as_json(event)])).await;
        loop {
            let heard = self.hear().await;
            if heard[0] == "OK" && heard[1] == event.id.to_string() {
                return (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned());
            }
        }
    }

    /// Sends an event that is to be accepted.
    pub(crate) async fn accepted(&mut self, event: &Event) {
        assert_eq!(self.publish(event).await, (true, String::new()), "{}", as_json(event));
    }

    /// Subscribes and returns the ids of the stored events.
    pub(crate) async fn request(&mut self, id: &str, filters: &[Value]) -> Vec<String> {
        let (ids, end) = self.ask(id, filters).await;
        assert_eq!(end[0], "EOSE", "{end}");
        ids
    }

    /// Subscribes and returns the ids of the stored events and the message that ends them.
    pub(crate) async fn ask(&mut self, id: &str, filters: &[Value]) -> (Vec<String>, Value) {
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

    pub(crate) async fn authenticate(&mut self, author: u8, url: &str) -> (bool, String) {
        let event = draft(author, 22242).tag(["relay", url]).tag(["challenge", &self.challenge.clone()]).sign();
        self.answer_challenge(&event).await
    }

    pub(crate) async fn answer_challenge(&mut self, event: &Event) -> (bool, String) {
        let heard = self.tell(json!(["AUTH", as_json(event)])).await;
        assert_eq!((&heard[0], &heard[1]), (&json!("OK"), &json!(event.id)), "{heard}");
        (heard[2].as_bool().unwrap(), heard[3].as_str().unwrap().to_owned())
    }
}
