//! What both sides of a session have.

use std::collections::HashSet;

use kukuri_domain::{
    EventId, Timestamp, TopicId,
    sharing::{FloorHint, Window},
};
use kukuri_store::SharedSet;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    line::Line,
    message::{Message, Why},
    node::{Node, Peer},
    pace::Pace,
    report::{End, Report},
    settings::Settings,
};

/// Catches up with a peer on a topic, over a stream that was opened here.
pub async fn initiate<S>(stream: S, peer: Peer, topic: &TopicId, node: &dyn Node, settings: &Settings) -> Report
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut session = Session::new(stream, peer, node, settings);
    let ended = session.lead(topic).await;
    session.close(ended).await
}

/// Answers a peer that catches up, over a stream that it opened.
pub async fn respond<S>(stream: S, peer: Peer, node: &dyn Node, settings: &Settings) -> Report
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut session = Session::new(stream, peer, node, settings);
    let ended = session.follow().await;
    session.close(ended).await
}

/// A session under way.
pub(crate) struct Session<'n, S> {
    pub(crate) line: Line<S>,
    pub(crate) peer: Peer,
    pub(crate) node: &'n dyn Node,
    pub(crate) settings: Settings,
    pub(crate) items: Pace,
    pub(crate) bytes: Pace,
    /// Hints that wait for their request: it may come with the next part.
    pub(crate) hints: Vec<FloorHint>,
    /// Those that have waited once.
    pub(crate) waited: HashSet<EventId>,
    pub(crate) report: Report,
}

impl<'n, S: AsyncRead + AsyncWrite + Unpin + Send> Session<'n, S> {
    fn new(stream: S, peer: Peer, node: &'n dyn Node, settings: &Settings) -> Self {
        Self {
            line: Line::new(stream, settings),
            peer,
            node,
            settings: *settings,
            items: Pace::new(settings.items_per_second),
            bytes: Pace::new(settings.bytes_per_second),
            hints: Vec::new(),
            waited: HashSet::new(),
            report: Report::default(),
        }
    }

    /// The topic's set, as it is compared now.
    pub(crate) fn set(&self, topic: &TopicId, regular_since: Timestamp) -> SharedSet {
        SharedSet { topic: topic.clone(), window: Window { regular_since, now: self.node.now() } }
    }

    /// Counts a message that is answered.
    pub(crate) fn round(&mut self) -> Result<(), End> {
        self.report.rounds += 1;
        if self.report.rounds > self.settings.rounds { Err(End::Over) } else { Ok(()) }
    }

    async fn close(mut self, ended: Result<(), End>) -> Report {
        let end = ended.err().unwrap_or(End::Finished);
        self.line.close(&Message::Bye { why: Why::of(&end) }).await;
        let Line { bytes_in, bytes_out, .. } = self.line;
        Report { end, bytes_in, bytes_out, ..self.report }
    }
}
