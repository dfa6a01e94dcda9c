//! Timeouts for iroh-gossip. One actor of it serves all topics and peers and waits for each of them: a peer that does not
//! read can stop it for good.

use std::{fmt, time::Duration};

use iroh_gossip::{Gossip, TopicId};
use kukuri_pacing::random_below;
use tokio::time::{sleep, timeout};

/// Longer than a peer that is gone can block the actor.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// One more than the command queue of a topic holds: the last probe is queued only after the actor has taken one.
const PROBES: usize = 65;

/// Why an endpoint is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplaceReason {
    /// iroh-gossip has not answered this call in time.
    Wedged(&'static str),
    /// The actor of iroh-gossip has ended.
    Ended,
    /// The operator has changed the peers that may connect.
    Reconfigured,
}

impl fmt::Display for ReplaceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wedged(call) => write!(f, "wedged: no answer to {call}"),
            Self::Ended => f.write_str("iroh-gossip has ended"),
            Self::Reconfigured => f.write_str("reconfigured"),
        }
    }
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
pub(crate) async fn watch_gossip(gossip: &Gossip) -> ReplaceReason {
    // Random, so that no peer joins it.
    let topic = TopicId::from_bytes(std::array::from_fn(|_| random_below(256) as u8));
    let (sender, _receiver) = match call_timeout("subscribe", gossip.subscribe(topic, Vec::new())).await {
        Ok(Ok(subscribed)) => subscribed.split(),
        Ok(Err(_)) => return ReplaceReason::Ended,
        Err(reason) => return reason,
    };
    loop {
        let probes = async {
            for _ in 0..PROBES {
                sender.join_peers(Vec::new()).await?;
            }
            Ok::<(), iroh_gossip::api::ApiError>(())
        };
        match call_timeout("a probe", probes).await {
            Ok(Ok(())) => sleep(PROBE_INTERVAL).await,
            Ok(Err(_)) => return ReplaceReason::Ended,
            Err(reason) => return reason,
        }
    }
}
