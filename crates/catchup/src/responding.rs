//! The side that is asked. It answers one message after the other, and nothing that the topic's set does not hold.

use kukuri_domain::{EventId, Timestamp, TopicId};
use kukuri_store::{Item, SharedPage, Span};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{comparing::Comparison, message::Message, report::End, session::Session, settings::MOST_IDS};

/// Where a session stands.
struct Following {
    topic: TopicId,
    since: Timestamp,
    /// The part that is compared, and what is here of it.
    part: Option<(Option<Item>, SharedPage)>,
    comparison: Option<Comparison>,
    /// Whether anything is taken in here.
    takes: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Session<'_, S> {
    pub(crate) async fn follow(&mut self) -> Result<(), End> {
        let mut following = self.welcome().await?;
        loop {
            let message = self.line.receive().await?;
            self.round()?;
            match message {
                Message::Part { span, message } => self.part(&mut following, span, &message).await?,
                Message::Compare { message } => {
                    let comparison = following.comparison.as_mut().ok_or(End::Misbehaved("nothing is compared"))?;
                    let message = comparison.answer(&message)?;
                    self.line.send(&Message::Compare { message }).await?;
                }
                Message::Want { ids, .. } => {
                    Self::check_count(&ids)?;
                    let set = self.set(&following.topic, following.since);
                    self.give(&set, &ids).await?;
                }
                Message::Offer { ids } => self.consider(&mut following, &ids).await?,
                Message::Bye { why } => {
                    self.raise(&following.topic, true).await?;
                    return match why.end() {
                        End::Finished if following.takes => Ok(()),
                        End::Finished => Err(End::NoHistory),
                        other => Err(other),
                    };
                }
                _ => return Err(End::Misbehaved("a message out of place")),
            }
        }
    }

    async fn welcome(&mut self) -> Result<Following, End> {
        let Message::Hello { topic, since } = self.line.receive().await? else {
            return Err(End::Misbehaved("it does not begin with a greeting"));
        };
        let topic = TopicId::trusted(&topic);
        let ours = self.node.shares(&self.peer, &topic).await.ok_or(End::NotShared)?;
        self.line.send(&Message::Welcome { since: ours }).await?;
        Ok(Following { topic, since: since.max(ours), part: None, comparison: None, takes: true })
    }

    /// Begins to compare a part, or says where to cut it. Parts only go on, so that a session ends.
    async fn part(&mut self, following: &mut Following, span: Span, message: &[u8]) -> Result<(), End> {
        let page = match following.part.take() {
            // The same part, cut as it was asked for: what is here of it is known.
            Some((from, page)) if from == span.from && page.next.is_some() && page.next == span.before => page,
            Some((before, _)) if span.from <= before => return Err(End::Misbehaved("a part was told already")),
            _ => {
                self.report.parts += 1;
                self.raise(&following.topic, false).await?;
                let set = self.set(&following.topic, following.since);
                self.node.store().shared(&set, span, self.settings.part()).await?
            }
        };
        let is_cut = span.before.is_none() || page.next != span.before;
        if let Some(before) = page.next.filter(|_| is_cut) {
            following.part = Some((span.from, page));
            return self.line.send(&Message::Cut { before }).await;
        }
        let mut comparison = Comparison::of(&page.items)?;
        let message = comparison.answer(message)?;
        following.comparison = Some(comparison);
        following.part = Some((span.from, SharedPage::default()));
        self.line.send(&Message::Compare { message }).await
    }

    /// Asks for what is lacking of an offer.
    async fn consider(&mut self, following: &mut Following, ids: &[EventId]) -> Result<(), End> {
        Self::check_count(ids)?;
        let wanted = if following.takes { self.unknown(ids).await? } else { Vec::new() };
        self.line.send(&Message::Want { ids: wanted.clone(), enough: !following.takes }).await?;
        match self.take(&following.topic, &wanted).await {
            Err(End::NoHistory) => {
                // The other may still take what it lacks. What is on its way is read and left.
                following.takes = false;
                self.pass_over().await
            }
            other => other,
        }
    }

    async fn pass_over(&mut self) -> Result<(), End> {
        loop {
            match self.line.receive().await? {
                Message::Items { .. } => self.round()?,
                Message::Given => return Ok(()),
                Message::Bye { why } => return Err(why.end()),
                _ => return Err(End::Misbehaved("items were asked for")),
            }
        }
    }

    fn check_count(ids: &[EventId]) -> Result<(), End> {
        if ids.len() > MOST_IDS { Err(End::Misbehaved("too many ids at a time")) } else { Ok(()) }
    }
}
