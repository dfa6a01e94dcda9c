//! A client's message: which rate it counts against, before it is parsed, and what serves it (W-4).

use std::time::Duration;

use kukuri_engine::ReadRefused;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Session, SessionEnd, unreadable};
use crate::{
    head::{CountedAs, Head},
    message::{ClientMessage, common_event_form, reply},
    metrics::Verb,
};

/// A client that sends more unreadable messages within [`UNREADABLE_WINDOW`] is closed.
const MAX_UNREADABLE: u32 = 60;
const UNREADABLE_WINDOW: Duration = Duration::from_secs(60);

/// The unreadable messages of one connection within a window of time.
pub(super) struct UnreadableCount {
    since: Instant,
    count: u32,
}

impl UnreadableCount {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// Counts one more. Returns whether there are too many.
    fn add(&mut self, now: Instant) -> bool {
        if now.duration_since(self.since) >= UNREADABLE_WINDOW {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count > MAX_UNREADABLE
    }
}

impl Session {
    pub(super) async fn dispatch(&mut self, text: &str) -> Result<(), SessionEnd> {
        // Nearly all messages are events of the common form: their JSON is parsed once.
        if let Some(json) = common_event_form(text) {
            return self.dispatch_event(json, text).await;
        }
        let head = Head::of(text);
        match head.counted_as() {
            CountedAs::Event(json) => return self.dispatch_event(json, text).await,
            CountedAs::Authentication => {
                if let Err(refused) = self.relay.engine.count_authentication(&self.client, text.len()) {
                    self.relay.metrics.messages.of(Verb::Auth).increment(1);
                    return self.refuse_authentication(head.only_part().unwrap_or_default(), &refused).await;
                }
            }
            CountedAs::Nothing => {}
            CountedAs::Request => {
                if let Err(refused) = self.relay.engine.count_request(&self.client, text.len()) {
                    return self.refuse_unparsed(&head, refused.into()).await;
                }
            }
        }
        self.serve_message(ClientMessage::parse(text)).await
    }

    async fn dispatch_event(&mut self, json: &str, text: &str) -> Result<(), SessionEnd> {
        if self.publish_unparsed(json, text).await? {
            self.relay.metrics.messages.of(Verb::Event).increment(1);
            return Ok(());
        }
        self.serve_message(ClientMessage::parse(text)).await
    }

    /// Refuses a request that was not parsed, in the form for its first word.
    async fn refuse_unparsed(&mut self, head: &Head<'_>, refused: ReadRefused) -> Result<(), SessionEnd> {
        self.relay.metrics.messages.of(head.verb()).increment(1);
        match (head.verb(), head.subscription()) {
            (Verb::Req, Some(id)) => {
                self.subscriptions.end(&id);
                self.refuse_request(&id, &refused.into()).await
            }
            (Verb::Count, Some(id)) => self.refuse_request(&id, &refused.into()).await,
            (Verb::Neg, Some(id)) => self.end_reconciliation(&id, &refused.into()).await,
            _ => self.answer_unreadable(&refused.to_string()).await,
        }
    }

    async fn serve_message(&mut self, parsed: Result<ClientMessage<'_>, String>) -> Result<(), SessionEnd> {
        let verb = parsed.as_ref().map_or(Verb::Unreadable, ClientMessage::verb);
        self.relay.metrics.messages.of(verb).increment(1);
        match parsed {
            Ok(ClientMessage::Event(json)) => self.publish_event(json).await,
            Ok(ClientMessage::Auth(json)) => self.authenticate(json).await,
            Ok(ClientMessage::Req(id, filters)) => self.serve_req(id, filters).await,
            Ok(ClientMessage::Count(id, filters)) => self.serve_count(&id, filters).await,
            Ok(ClientMessage::Close(id)) => {
                self.subscriptions.end(&id);
                Ok(())
            }
            Ok(ClientMessage::NegOpen(id, opening)) => self.open_reconciliation(id, opening).await,
            Ok(ClientMessage::NegMessage(id, message)) => self.continue_reconciliation(&id, message).await,
            Ok(ClientMessage::NegClose(id)) => {
                self.reconciliations.remove(&id);
                Ok(())
            }
            Err(notice) => self.answer_unreadable(&notice).await,
        }
    }

    /// Answers by NOTICE, and closes a client that sends nothing better.
    async fn answer_unreadable(&mut self, notice: &str) -> Result<(), SessionEnd> {
        self.send(reply::notice(notice)).await?;
        if self.unreadable.add(Instant::now()) {
            return Err(unreadable(CloseCode::Policy, "too many messages that can't be read"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_messages_count_within_a_window() {
        // W-4
        let start = Instant::now();
        let mut count = UnreadableCount { since: start, count: 0 };
        assert!((0..MAX_UNREADABLE).all(|_| !count.add(start)));
        assert!(count.add(start));
        assert!(!count.add(start + UNREADABLE_WINDOW), "a new window");
    }
}
