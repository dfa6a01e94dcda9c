//! Timeouts for iroh-gossip. One actor of it serves all topics and peers and waits for each of them: a peer that does not
//! read can stop it for good.

use std::{convert::Infallible, time::Duration};

use iroh_gossip::{Gossip, TopicId};
use kukuri_pacing::random_below;
use tokio::time::{sleep, timeout};

/// Longer than a peer that is gone can block the actor.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// One more than the command queue of a topic holds: the last probe is queued only after the actor has taken one.
const PROBES: usize = 65;

/// Why an endpoint is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReplaceReason {
    #[error("wedged: no answer to {0}")]
    Wedged(&'static str),
    #[error("iroh-gossip has ended")]
    Ended,
    /// The operator has changed the peers that may connect.
    #[error("reconfigured")]
    Reconfigured,
}

/// Waits for a call into iroh-gossip, with a timeout. Waits twice: this process may have been suspended meanwhile.
pub(crate) async fn call_timeout<T>(name: &'static str, call: impl Future<Output = T>) -> Result<T, ReplaceReason> {
    tokio::pin!(call);
    for _ in 0..2 {
        if let Ok(done) = timeout(CALL_TIMEOUT, &mut call).await {
            return Ok(done);
        }
    }
    Err(ReplaceReason::Wedged(name))
}

/// Probes iroh-gossip with commands that do nothing, on a topic of its own. Returns when there is no answer.
pub(crate) async fn watch_gossip(gossip: &Gossip) -> Result<Infallible, ReplaceReason> {
    // Random, so that no peer joins it.
    let topic = TopicId::from_bytes(std::array::from_fn(|_| random_below(256) as u8));
    let subscribed = call_timeout("subscribe", gossip.subscribe(topic, Vec::new())).await?;
    let (sender, _receiver) = subscribed.map_err(|_| ReplaceReason::Ended)?.split();
    loop {
        let probes = async {
            for _ in 0..PROBES {
                sender.join_peers(Vec::new()).await?;
            }
            Ok::<(), iroh_gossip::api::ApiError>(())
        };
        call_timeout("a probe", probes).await?.map_err(|_| ReplaceReason::Ended)?;
        sleep(PROBE_INTERVAL).await;
    }
}
