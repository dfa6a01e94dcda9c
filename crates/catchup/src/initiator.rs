//! The side that opened the stream: compares the set part by part, asks for missing items, offers those the peer lacks.

use kukuri_domain::{EventId, TopicId};
use kukuri_store::{Item, SharedSet, Span};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    comparison::{Comparison, Difference},
    message::Message,
    report::SessionEnd,
    session::Session,
    settings::MAX_PART_ITEMS,
};

/// Messages about one part. Each narrows the difference, so that a few suffice.
const MAX_COMPARE_MESSAGES: u32 = 64;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    pub(crate) async fn run_initiator(&mut self, topic: &TopicId) -> Result<(), SessionEnd> {
        let ours = self.node.shares(&self.peer, topic).await.ok_or(SessionEnd::NotShared)?;
        self.frames.send(&Message::Hello { topic: topic.as_str().to_owned(), since: ours }).await?;
        let Message::Welcome { since } = self.frames.receive_answer().await? else {
            return Err(SessionEnd::Misbehaved("Hello was not answered by Welcome"));
        };
        let since = since.max(ours);
        let (mut from, mut accepts_offers) = (None, true);
        loop {
            let set = self.shared_set(topic, since);
            let (difference, before) = self.compare_part(&set, from).await?;
            self.report.parts += 1;
            self.fetch_missing(topic, &difference.lacking_here).await?;
            self.apply_hints(topic, before.is_none()).await?;
            if accepts_offers {
                accepts_offers = self.offer(&set, &difference.lacking_there).await?;
            }
            match before {
                Some(before) => from = Some(before),
                None => return Ok(()),
            }
        }
    }

    /// Compares the part that begins at `from`. Returns the difference, and where the next part begins.
    async fn compare_part(
        &mut self,
        set: &SharedSet,
        from: Option<Item>,
    ) -> Result<(Difference, Option<Item>), SessionEnd> {
        let page = self.node.store().shared(set, Span { from, before: None }, self.settings.part_items).await?;
        let (mut items, mut span) = (page.items, Span { from, before: page.next });
        let mut comparison = Comparison::of(&items)?;
        let message = comparison.first_message()?;
        self.frames.send(&Message::Part { span, message }).await?;
        let mut is_cut = false;
        for _ in 0..MAX_COMPARE_MESSAGES {
            let answer = self.frames.receive_answer().await?;
            self.count_message()?;
            match answer {
                Message::Compare { message } => match comparison.next_message(&message, MAX_PART_ITEMS)? {
                    Some(message) => self.frames.send(&Message::Compare { message }).await?,
                    None => return Ok((comparison.difference(), span.before)),
                },
                Message::Cut { before } if !is_cut && span.contains(&before) && Some(before) != from => {
                    is_cut = true;
                    span.before = Some(before);
                    items.retain(|item| span.contains(item));
                    comparison = Comparison::of(&items)?;
                    let message = comparison.first_message()?;
                    self.frames.send(&Message::Part { span, message }).await?;
                }
                _ => return Err(SessionEnd::Misbehaved("a message that is no answer to a comparison")),
            }
        }
        Err(SessionEnd::Misbehaved("a comparison does not end"))
    }

    async fn fetch_missing(&mut self, topic: &TopicId, ids: &[EventId]) -> Result<(), SessionEnd> {
        for some in ids.chunks(self.settings.batch_len()) {
            let wanted = self.select_unknown(some).await?;
            if !wanted.is_empty() {
                self.frames.send(&Message::Want { ids: wanted.clone(), stop_offers: false }).await?;
                self.receive_items(topic, &wanted).await?;
            }
        }
        Ok(())
    }

    /// Offers items that the peer lacks. Returns whether the peer accepts further offers.
    async fn offer(&mut self, set: &SharedSet, ids: &[EventId]) -> Result<bool, SessionEnd> {
        for some in ids.chunks(self.settings.batch_len()) {
            self.frames.send(&Message::Offer { ids: some.to_vec() }).await?;
            let answer = self.frames.receive_answer().await?;
            self.count_message()?;
            let Message::Want { ids, stop_offers } = answer else {
                return Err(SessionEnd::Misbehaved("Offer was not answered by Want"));
            };
            if ids.iter().any(|id| !some.contains(id)) || ids.len() > some.len() {
                return Err(SessionEnd::Misbehaved("the peer wants an item that was not offered"));
            }
            self.send_items(set, &ids).await?;
            if stop_offers {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
