//! Catch-up with peers (G-7): what gossip has lost, or was said while we were away, is reconciled topic by topic: when a
//! neighbour comes, and every now and then with one of those there are.
//!
//! - `plan`: when a topic is next, and with whom. `node`: the relay, as a session sees it.

mod node;
mod plan;

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use kukuri_catchup::{Settings, initiate, respond};
use kukuri_domain::TopicId;
use kukuri_relay::Relay;
use tokio::time::sleep;

pub(crate) use node::RelayNode;
pub(crate) use plan::Plan;

use crate::{
    bridge::Shared,
    figures::Figures,
    peer::PeerId,
    places::Places,
    protocol::{PeerStream, Protocol},
    settings::CatchUp,
    swarm::{Around, Swarm},
};

const ALPN: &[u8] = b"kukuri/catchup/1";
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Sessions that are begun here at a time.
const AT_ONCE: usize = 4;
/// Sessions of peers that are answered at a time.
const MOST_ANSWERED: usize = 16;

/// What sessions of both directions share.
pub(crate) struct CatchingUp {
    node: RelayNode,
    settings: Settings,
    figures: Arc<Figures>,
    answering: Arc<Places>,
}

impl CatchingUp {
    pub(crate) fn new(relay: Arc<Relay>, swarm: Arc<Swarm>, figures: Arc<Figures>, set: &CatchUp) -> Self {
        let settings = Settings {
            items_per_second: set.events_per_second,
            bytes_per_second: u32::try_from(set.bytes_per_second).unwrap_or(u32::MAX),
            ..Settings::default()
        };
        Self { node: RelayNode::new(relay, swarm), settings, figures, answering: Places::new(MOST_ANSWERED) }
    }
}

impl fmt::Debug for CatchingUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchingUp").finish_non_exhaustive()
    }
}

#[async_trait]
impl Protocol for CatchingUp {
    fn alpn(&self) -> &'static [u8] {
        ALPN
    }

    async fn serve(&self, peer: PeerId, stream: PeerStream) -> io::Result<()> {
        // Who is not answered tries again, or asks somebody else.
        let Some(_place) = self.answering.take(peer) else { return Ok(()) };
        let report = respond(stream, *peer.as_bytes(), &self.node, &self.settings).await;
        self.figures.caught_up(&report);
        tracing::debug!(?report, "a peer has caught up");
        Ok(())
    }
}

/// Catches up with peers, for as long as the bridge runs.
pub(crate) async fn catch_up(shared: Arc<Shared>) {
    let places = Places::new(AT_ONCE);
    let mut first = 0;
    loop {
        sleep(LOOK_EVERY).await;
        let all = shared.swarm.all();
        // Those that found no place come first next time.
        let count = all.len().max(1);
        for step in 0..all.len() {
            let joined = &all[(first + step) % count];
            if !joined.around.plan().is_due(Instant::now()) {
                continue;
            }
            if places.are_full() {
                first = (first + step) % count;
                break;
            }
            let Some(peer) = joined.around.begin_catch_up(|peer| places.has_one_for(peer)) else { continue };
            let place = places.take(peer);
            // Not all that belongs to the topic: it would be left only when the session ends.
            let (topic, around) = (joined.topic.clone(), Arc::clone(&joined.around));
            let shared = Arc::clone(&shared);
            shared.clone().spawn(async move {
                one(&shared, &topic, &around, peer).await;
                drop(place);
            });
        }
    }
}

/// One session, and when the next is due.
async fn one(shared: &Shared, topic: &TopicId, around: &Around, peer: PeerId) {
    let every = shared.settings.catch_up.every;
    let catching_up = &shared.catching_up;
    let stream = match shared.open(peer, ALPN).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "a peer can't be asked what it has");
            return around.plan().failed(every);
        }
    };
    let began = Instant::now();
    let report = initiate(stream, *peer.as_bytes(), topic, &catching_up.node, &catching_up.settings).await;
    catching_up.figures.caught_up(&report);
    if report.events_in + report.hints_in > 0 {
        tracing::info!(events = report.events_in, floors = report.hints_in, end = %report.end, "caught up with a peer");
    } else {
        tracing::debug!(?report, "caught up with a peer");
    }
    around.plan().ended(&report, began.elapsed(), every);
}
