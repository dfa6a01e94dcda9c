//! A session: the parts that initiator and responder share.

use std::time::Duration;

use kukuri_domain::{
    Timestamp, TopicId,
    sharing::{FloorHint, Window},
};
use kukuri_pacing::{MessageRateLimiter, Rate};
use kukuri_store::SharedSet;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep_until},
};

use crate::{
    frames::FrameStream,
    message::Message,
    node::{Node, Peer},
    report::{Report, SessionEnd},
    settings::Settings,
};

/// Catches up with a peer on a topic, over a stream that this node opened.
pub async fn initiate<S>(stream: S, peer: Peer, topic: &TopicId, node: &dyn Node, settings: &Settings) -> Report
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut session = Session::new(stream, peer, node, settings);
    let ended = session.run_initiator(topic).await;
    session.finish(ended).await
}

/// Answers a peer that catches up, over a stream that the peer opened.
pub async fn respond<S>(stream: S, peer: Peer, node: &dyn Node, settings: &Settings) -> Report
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut session = Session::new(stream, peer, node, settings);
    let ended = session.run_responder().await;
    session.finish(ended).await
}

pub(crate) struct Session<'n, S> {
    pub(crate) frames: FrameStream<S>,
    pub(crate) peer: Peer,
    pub(crate) node: &'n dyn Node,
    pub(crate) settings: Settings,
    limiter: MessageRateLimiter,
    /// Hints whose request may come with the next part, and whether they have waited for one.
    pub(crate) pending_hints: Vec<(FloorHint, bool)>,
    pub(crate) report: Report,
}

impl<'n, S: AsyncRead + AsyncWrite + Unpin + Send> Session<'n, S> {
    fn new(stream: S, peer: Peer, node: &'n dyn Node, settings: &Settings) -> Self {
        let rate = Rate { messages: settings.items_per_second, bytes: settings.bytes_per_second.into() };
        Self {
            frames: FrameStream::new(stream, settings),
            peer,
            node,
            settings: *settings,
            limiter: MessageRateLimiter::new(rate, Duration::ZERO, Instant::now().into_std()),
            pending_hints: Vec::new(),
            report: Report::default(),
        }
    }

    /// The topic's set as of now.
    pub(crate) fn shared_set(&self, topic: &TopicId, regular_since: Timestamp) -> SharedSet {
        SharedSet { topic: topic.clone(), window: Window { regular_since, now: self.node.now() } }
    }

    /// Counts a received message against the limit.
    pub(crate) fn count_message(&mut self) -> Result<(), SessionEnd> {
        self.report.messages += 1;
        if self.report.messages > self.settings.max_messages { Err(SessionEnd::LimitReached) } else { Ok(()) }
    }

    /// Counts items and their bytes against the rate limits, and waits until the earlier ones are paid for.
    pub(crate) async fn throttle(&mut self, items: usize, bytes: usize) {
        let now = Instant::now().into_std();
        let ready_at = self.limiter.ready_at(now);
        self.limiter.spend(items, bytes, now);
        if ready_at > now {
            sleep_until(ready_at.into()).await;
        }
    }

    async fn finish(mut self, ended: Result<(), SessionEnd>) -> Report {
        let end = ended.err().unwrap_or(SessionEnd::Finished);
        self.frames.close_with(&Message::Bye { code: end.code() }).await;
        let FrameStream { bytes_in, bytes_out, .. } = self.frames;
        Report { end, bytes_in, bytes_out, ..self.report }
    }
}
