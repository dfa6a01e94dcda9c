//! The changes of a topic as server-sent events, for as long as somebody reads.
//!
//! Nothing is read ahead: the next part is read when the one before has gone to the socket. So a slow reader holds one
//! part, and nobody waits for it.

use std::{convert::Infallible, fmt::Write, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use kukuri_domain::TopicId;
use kukuri_store::Seq;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use crate::{
    Served, answer,
    changes::{self, Part, Source},
    error::Problem,
};

/// A line at least so often: so both ends learn that the other is gone. The outbox is looked at then, too (O-4).
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The outbox is not read again sooner: what comes meanwhile is read together.
const GATHER: Duration = Duration::from_millis(50);
/// A head that nobody has heard of: the store is asked.
const UNKNOWN: Seq = Seq(u64::MAX);
/// Changes that are read at a time.
const PART: usize = 100;

struct Following {
    api: Arc<Served>,
    topic: TopicId,
    next: Seq,
    /// What the reader would resume from.
    told: Seq,
    heads: watch::Receiver<Seq>,
    /// Read before the answer began, so that what is wrong could be said.
    first: Option<Part>,
    read_at: Instant,
    beat_at: Instant,
    _place: OwnedSemaphorePermit,
}

/// Begins a stream.
pub(crate) async fn begin(api: Arc<Served>, topic: TopicId, after: Seq) -> Result<Response, Problem> {
    let place = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| Problem::TooManyStreams)?;
    let heads = api.store.watch_outbox();
    let read_at = Instant::now();
    let source = Source::Shared(&api.tail, UNKNOWN);
    let first = Some(changes::read(&*api.store, source, &topic, after, PART, api.now()).await?);
    let following =
        Following { api, topic, next: after, told: after, heads, first, read_at, beat_at: read_at, _place: place };
    let frames = futures_util::stream::unfold(following, |mut following| async move {
        let frames = following.next_frames().await?;
        Some((Ok::<_, Infallible>(frames), following))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // A proxy that gathers answers would keep them back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

impl Following {
    /// The next piece of the stream; `None` ends it.
    async fn next_frames(&mut self) -> Option<Bytes> {
        let mut stopping = self.api.stopping.clone();
        tokio::select! {
            biased;
            // Whether it is said, or nobody is left to say it.
            _ = stopping.wait_for(|is_stopping| *is_stopping) => None,
            frames = self.wait_for_frames() => frames,
        }
    }

    async fn wait_for_frames(&mut self) -> Option<Bytes> {
        loop {
            let part = self.read().await?;
            self.next = part.next;
            if !part.changes.is_empty() {
                return self.frames(&part);
            }
            if !part.is_end {
                continue;
            }
            if Instant::now() >= self.beat_at {
                return Some(self.heartbeat());
            }
            tokio::select! {
                changed = self.heads.changed() => changed.ok()?,
                () = sleep_until(self.beat_at) => {}
            }
        }
    }

    /// The next part. If there is none, as after too long a rest, the reader comes again and is told why.
    async fn read(&mut self) -> Option<Part> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        sleep_until(self.read_at + GATHER).await;
        self.read_at = Instant::now();
        // A wake-up may be lost: with each heartbeat the store itself is asked (O-4).
        let heard_of = *self.heads.borrow_and_update();
        let head = if self.read_at >= self.beat_at { UNKNOWN } else { heard_of };
        let source = Source::Shared(&self.api.tail, head);
        changes::read(&*self.api.store, source, &self.topic, self.next, PART, self.api.now()).await.ok()
    }

    fn frames(&mut self, part: &Part) -> Option<Bytes> {
        let mut text = String::new();
        for change in &part.changes {
            let json = answer::text(&change.body().ok()?).ok()?;
            write!(text, "id: {}\ndata: {json}\n\n", change.seq()).ok()?;
            self.told = change.seq();
        }
        self.tell_place(&mut text);
        self.beat_at = Instant::now() + HEARTBEAT;
        Some(text.into())
    }

    fn heartbeat(&mut self) -> Bytes {
        let mut text = ":\n\n".to_owned();
        self.tell_place(&mut text);
        self.beat_at = Instant::now() + HEARTBEAT;
        text.into()
    }

    /// An id without data moves a reader past rows of other topics.
    fn tell_place(&mut self, text: &mut String) {
        if self.next > self.told {
            // Writing to a string does not fail.
            let _ = write!(text, "id: {}\n\n", self.next);
            self.told = self.next;
        }
    }
}
