//! The side that opened the stream: it goes through the set, asks for what it lacks, offers what the other lacks.

use kukuri_domain::{EventId, TopicId};
use kukuri_store::{Item, SharedSet, Span};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    comparing::{Comparison, Difference},
    message::Message,
    report::End,
    session::Session,
    settings::MOST_ITEMS,
};

/// Messages about one part: each says more than the one before, so that a few are enough for any.
const MOST_ROUNDS: u32 = 64;

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    pub(crate) async fn lead(&mut self, topic: &TopicId) -> Result<(), End> {
        let ours = self.node.shares(&self.peer, topic).await.ok_or(End::NotShared)?;
        self.line.send(&Message::Hello { topic: topic.as_str().to_owned(), since: ours }).await?;
        let since = match self.line.receive().await? {
            Message::Welcome { since } => since.max(ours),
            Message::Bye { why } => return Err(why.end()),
            _ => return Err(End::Misbehaved("no welcome")),
        };
        let (mut from, mut takes_offers) = (None, true);
        loop {
            let set = self.set(topic, since);
            let (difference, before) = self.compare(&set, from).await?;
            self.report.parts += 1;
            self.fetch(topic, &difference.ours).await?;
            self.raise(topic, before.is_none()).await?;
            if takes_offers {
                takes_offers = self.offer(&set, &difference.theirs).await?;
            }
            match before {
                Some(before) => from = Some(before),
                None => return Ok(()),
            }
        }
    }

    /// What each side lacks of the part from here on, and where it ends.
    async fn compare(&mut self, set: &SharedSet, from: Option<Item>) -> Result<(Difference, Option<Item>), End> {
        let page = self.node.store().shared(set, Span { from, before: None }, self.settings.part()).await?;
        let (mut items, mut span) = (page.items, Span { from, before: page.next });
        let mut comparison = Comparison::of(&items)?;
        let message = comparison.begin()?;
        self.line.send(&Message::Part { span, message }).await?;
        let mut is_cut = false;
        for _ in 0..MOST_ROUNDS {
            let answer = self.line.receive().await?;
            self.round()?;
            match answer {
                Message::Compare { message } => match comparison.go_on(&message, MOST_ITEMS)? {
                    Some(message) => self.line.send(&Message::Compare { message }).await?,
                    None => return Ok((comparison.difference(), span.before)),
                },
                Message::Cut { before } if !is_cut && span.contains(&before) && Some(before) != from => {
                    is_cut = true;
                    span.before = Some(before);
                    items.retain(|item| span.contains(item));
                    comparison = Comparison::of(&items)?;
                    let message = comparison.begin()?;
                    self.line.send(&Message::Part { span, message }).await?;
                }
                Message::Bye { why } => return Err(why.end()),
                _ => return Err(End::Misbehaved("a comparison is going on")),
            }
        }
        Err(End::Misbehaved("a comparison has no end"))
    }

    async fn fetch(&mut self, topic: &TopicId, ids: &[EventId]) -> Result<(), End> {
        for some in ids.chunks(self.settings.batch()) {
            let wanted = self.unknown(some).await?;
            if !wanted.is_empty() {
                self.line.send(&Message::Want { ids: wanted.clone(), enough: false }).await?;
                self.take(topic, &wanted).await?;
            }
        }
        Ok(())
    }

    /// Returns whether more may be offered.
    async fn offer(&mut self, set: &SharedSet, ids: &[EventId]) -> Result<bool, End> {
        for some in ids.chunks(self.settings.batch()) {
            self.line.send(&Message::Offer { ids: some.to_vec() }).await?;
            let answer = self.line.receive().await?;
            self.round()?;
            match answer {
                Message::Want { ids, enough } => {
                    if ids.iter().any(|id| !some.contains(id)) || ids.len() > some.len() {
                        return Err(End::Misbehaved("it wants what was not offered"));
                    }
                    self.give(set, &ids).await?;
                    if enough {
                        return Ok(false);
                    }
                }
                Message::Bye { why } => return Err(why.end()),
                _ => return Err(End::Misbehaved("an offer was not answered")),
            }
        }
        Ok(true)
    }
}
