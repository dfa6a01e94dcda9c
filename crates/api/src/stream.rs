//! The changes of a topic as server-sent events.
//!
//! Nothing is read ahead: the next batch is read when the connection has taken the one before. A slow reader holds one
//! batch in memory, and no other reader waits for it. The listener cuts off a client that reads nothing at all (U-4).

use std::{convert::Infallible, fmt::Write, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use kukuri_control::request::Service;
use kukuri_domain::{TopicId, Viewer};
use kukuri_store::{Epoch, Seq};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{Instrument, Span};

use crate::{
    ApiState,
    changes::{self, ChangeBatch, StreamRead},
    error::Error,
    gate::StreamPermit,
    position::Position,
    reader::Reader,
};

/// The longest silence on a stream, so that each end notices that the other is gone. A heartbeat also polls (O-4).
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// The shortest time between two reads: changes in between are read together.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(50);
/// A stream ends then; a browser resumes it by itself, and passes the gate again (U-4).
const MAX_STREAM_AGE: Duration = Duration::from_secs(3600);
/// How often a silent stream asks whether its reader may still read.
const RIGHT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// In place of a sequence that is not known: the store is asked.
const UNKNOWN_HEAD: Seq = Seq(u64::MAX);
const CHANGES_PER_BATCH: usize = 100;

struct ChangeStream {
    api: Arc<ApiState>,
    topic: TopicId,
    reader: Arc<Reader>,
    viewer: Viewer,
    next: Position,
    /// The last `id` sent: the reader would resume there.
    last_sent: Position,
    outbox_head: watch::Receiver<Seq>,
    epochs: watch::Receiver<Epoch>,
    /// Read before the answer begins, so that an error can still be an answer.
    first: Option<ChangeBatch>,
    read_at: Instant,
    heartbeat_at: Instant,
    ends_at: Instant,
    permit: StreamPermit,
}

pub(crate) async fn begin(
    api: Arc<ApiState>,
    topic: TopicId,
    reader: Reader,
    after: Position,
    permit: StreamPermit,
) -> Result<Response, Error> {
    let (outbox_head, epochs) = (api.store.watch_outbox(), api.store.watch_epoch());
    let now = Instant::now();
    let reading = StreamRead { head: UNKNOWN_HEAD, turn: &permit.turn };
    let viewer = reader.viewer();
    let first = changes::read(&api, &topic, &viewer, after, CHANGES_PER_BATCH, Some(reading)).await?;
    let stream = ChangeStream {
        api,
        topic,
        reader: Arc::new(reader),
        viewer,
        next: after,
        last_sent: after,
        outbox_head,
        epochs,
        first: Some(first),
        read_at: now,
        heartbeat_at: now,
        ends_at: now + MAX_STREAM_AGE,
        permit,
    };
    // Log lines of the stream name its route and request id, too.
    let span = Span::current();
    let frames = futures_util::stream::unfold(stream, move |mut stream| {
        let frames = async move { stream.next_frames().await.map(|frames| (Ok::<_, Infallible>(frames), stream)) };
        frames.instrument(span.clone())
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // A reverse proxy must not buffer the stream.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

/// The right to read a stream, which its reader may lose: by a ban, the end of a subscription, policies that are new (S-5). The stream
/// ends then; connecting again gets the reason.
struct ReadingRight {
    api: Arc<ApiState>,
    topic: TopicId,
    reader: Arc<Reader>,
}

impl ReadingRight {
    fn is_held(&self) -> bool {
        self.reader.check(&self.api, std::slice::from_ref(&self.topic), Service::Relay).is_ok()
    }

    async fn lost(&self) {
        while self.is_held() {
            sleep(RIGHT_CHECK_INTERVAL).await;
        }
    }
}

impl ChangeStream {
    /// `None` ends the stream.
    async fn next_frames(&mut self) -> Option<Bytes> {
        let (mut stopping, ends_at) = (self.api.stopping.clone(), self.ends_at);
        let right =
            ReadingRight { api: Arc::clone(&self.api), topic: self.topic.clone(), reader: Arc::clone(&self.reader) };
        let frames = tokio::select! {
            biased;
            // An error means that the sender is gone: the node stops.
            _ = stopping.wait_for(|is_stopping| *is_stopping) => None,
            () = right.lost() => None,
            frames = timeout_at(ends_at, self.wait_for_frames()) => frames.ok().flatten(),
        };
        // Lost while the changes were read.
        frames.filter(|_| right.is_held())
    }

    async fn wait_for_frames(&mut self) -> Option<Bytes> {
        loop {
            let batch = self.read().await?;
            self.next = batch.next;
            if !batch.changes.is_empty() {
                return self.frames(&batch);
            }
            if Instant::now() >= self.heartbeat_at {
                return Some(self.finish(":\n\n".to_owned()));
            }
            if !batch.is_end {
                continue;
            }
            tokio::select! {
                changed = self.outbox_head.changed() => changed.ok()?,
                () = sleep_until(self.heartbeat_at) => {}
            }
        }
    }

    /// The next batch. An error ends the stream: the reader connects again, and the answer says why.
    async fn read(&mut self) -> Option<ChangeBatch> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        sleep_until(self.read_at + MIN_READ_INTERVAL).await;
        self.read_at = Instant::now();
        let known_head = *self.outbox_head.borrow_and_update();
        // A wake-up may be lost: each heartbeat asks the store itself (O-4).
        let head = if self.read_at >= self.heartbeat_at { UNKNOWN_HEAD } else { known_head };
        let reading = StreamRead { head, turn: &self.permit.turn };
        let batch =
            changes::read(&self.api, &self.topic, &self.viewer, self.next, CHANGES_PER_BATCH, Some(reading)).await.ok();
        // The store went back: resuming gets 410 (Y-5).
        batch.filter(|_| *self.epochs.borrow() == self.next.epoch)
    }

    fn frames(&mut self, batch: &ChangeBatch) -> Option<Bytes> {
        let mut text = String::new();
        for change in &batch.changes {
            let json = serde_json::to_string(change).ok()?;
            write!(text, "id: {}\ndata: {json}\n\n", change.seq).ok()?;
            self.last_sent = change.seq;
        }
        Some(self.finish(text))
    }

    /// An id without data moves the reader past rows of other topics.
    fn finish(&mut self, mut text: String) -> Bytes {
        if self.next != self.last_sent {
            text.push_str(&format!("id: {}\n\n", self.next));
            self.last_sent = self.next;
        }
        self.heartbeat_at = Instant::now() + HEARTBEAT_INTERVAL;
        text.into()
    }
}
