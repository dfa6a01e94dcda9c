//! The side that answers: one message after the other, with nothing but items of the topic's set.

use kukuri_domain::{EventId, Timestamp, TopicId};
use kukuri_store::{Item, SharedPage, Span};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    comparison::Comparison, message::Message, report::SessionEnd, session::Session, settings::MAX_MESSAGE_IDS,
};

struct ResponderState {
    topic: TopicId,
    since: Timestamp,
    /// The start of the part under comparison, and its items here.
    part: Option<(Option<Item>, SharedPage)>,
    comparison: Option<Comparison>,
    /// Whether this node accepts items.
    accepts_items: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    pub(crate) async fn run_responder(&mut self) -> Result<(), SessionEnd> {
        let mut state = self.receive_hello().await?;
        loop {
            let message = self.frames.receive().await?;
            self.count_message()?;
            match message {
                Message::Part { span, message } => self.answer_part(&mut state, span, &message).await?,
                Message::Compare { message } => {
                    let comparison =
                        state.comparison.as_mut().ok_or(SessionEnd::Misbehaved("Compare without a part"))?;
                    let message = comparison.answer(&message)?;
                    self.frames.send(&Message::Compare { message }).await?;
                }
                Message::Want { ids, .. } => {
                    Self::check_count(&ids)?;
                    let set = self.shared_set(&state.topic, state.since);
                    self.send_items(&set, &ids).await?;
                }
                Message::Offer { ids } => self.answer_offer(&mut state, &ids).await?,
                Message::Bye { code } => {
                    self.apply_hints(&state.topic, true).await?;
                    return match SessionEnd::from_code(code) {
                        SessionEnd::Finished if state.accepts_items => Ok(()),
                        SessionEnd::Finished => Err(SessionEnd::NoHistory),
                        other => Err(other),
                    };
                }
                _ => return Err(SessionEnd::Misbehaved("an unexpected message")),
            }
        }
    }

    async fn receive_hello(&mut self) -> Result<ResponderState, SessionEnd> {
        let Message::Hello { topic, since } = self.frames.receive().await? else {
            return Err(SessionEnd::Misbehaved("the session does not begin with a Hello"));
        };
        let topic = TopicId::new_unchecked(&topic);
        let ours = self.node.shares(&self.peer, &topic).await.ok_or(SessionEnd::NotShared)?;
        self.frames.send(&Message::Welcome { since: ours }).await?;
        Ok(ResponderState { topic, since: since.max(ours), part: None, comparison: None, accepts_items: true })
    }

    /// Begins to compare a part, or answers where to cut it. Parts only move forward, so that a session ends.
    async fn answer_part(&mut self, state: &mut ResponderState, span: Span, message: &[u8]) -> Result<(), SessionEnd> {
        let page = match state.part.take() {
            // The part is cut as the peer asks; its items are loaded already.
            Some((from, page)) if from == span.from && page.next.is_some() && page.next == span.before => page,
            Some((before, _)) if span.from <= before => {
                return Err(SessionEnd::Misbehaved("a part that was compared before"));
            }
            _ => {
                self.report.parts += 1;
                self.apply_hints(&state.topic, false).await?;
                let set = self.shared_set(&state.topic, state.since);
                self.node.store().shared(&set, span, self.settings.part_items).await?
            }
        };
        let is_cut = span.before.is_none() || page.next != span.before;
        if let Some(before) = page.next.filter(|_| is_cut) {
            state.part = Some((span.from, page));
            return self.frames.send(&Message::Cut { before }).await;
        }
        let mut comparison = Comparison::of(&page.items)?;
        let message = comparison.answer(message)?;
        state.comparison = Some(comparison);
        state.part = Some((span.from, SharedPage::default()));
        self.frames.send(&Message::Compare { message }).await
    }

    /// Asks for the offered items that are missing here.
    async fn answer_offer(&mut self, state: &mut ResponderState, ids: &[EventId]) -> Result<(), SessionEnd> {
        Self::check_count(ids)?;
        let wanted = if state.accepts_items { self.select_unknown(ids).await? } else { Vec::new() };
        self.frames.send(&Message::Want { ids: wanted.clone(), stop_offers: !state.accepts_items }).await?;
        match self.receive_items(&state.topic, &wanted).await {
            Err(SessionEnd::NoHistory) => {
                // The peer may still accept items. Items on their way are read and dropped.
                state.accepts_items = false;
                while self.next_items().await?.is_some() {}
                Ok(())
            }
            other => other,
        }
    }

    fn check_count(ids: &[EventId]) -> Result<(), SessionEnd> {
        if ids.len() > MAX_MESSAGE_IDS { Err(SessionEnd::Misbehaved("too many ids in one message")) } else { Ok(()) }
    }
}
