//! Whether gossip still moves. One actor serves all topics and peers, and waits for each of them: a peer that does not read
//! can stop it for good.

use std::time::Duration;

use iroh_gossip::{Gossip, TopicId};
use tokio::time::{sleep, timeout};

/// Longer than a peer that is gone can hold the actor up.
const PATIENCE: Duration = Duration::from_secs(5);
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// One more than a topic's commands that may wait: the last one gets in only when the actor has taken one.
const PROBES: usize = 65;

/// Gossip does not move, or has to be replaced for another reason: why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wedged(pub(crate) &'static str);

/// Waits for the library, but not for ever. Twice, because this process may have been asleep itself.
pub(crate) async fn patiently<T>(why: &'static str, call: impl Future<Output = T>) -> Result<T, Wedged> {
    tokio::pin!(call);
    for _ in 0..2 {
        if let Ok(done) = timeout(PATIENCE, &mut call).await {
            return Ok(done);
        }
    }
    Err(Wedged(why))
}

/// Asks for nothing, over and over, on a topic of its own. Ends when there is no answer.
pub(crate) async fn watch(gossip: &Gossip) -> Wedged {
    // Nobody else knows it.
    let topic = TopicId::from_bytes(std::array::from_fn(|_| crate::rejoining::random(256) as u8));
    let (sender, _receiver) = match patiently("no answer to subscribe", gossip.subscribe(topic, Vec::new())).await {
        Ok(Ok(joined)) => joined.split(),
        Ok(Err(_)) => return Wedged("it ended"),
        Err(wedged) => return wedged,
    };
    loop {
        let probe = async {
            for _ in 0..PROBES {
                sender.join_peers(Vec::new()).await?;
            }
            Ok::<(), iroh_gossip::api::ApiError>(())
        };
        match patiently("no answer to a probe", probe).await {
            Ok(Ok(())) => sleep(PROBE_EVERY).await,
            Ok(Err(_)) => return Wedged("it ended"),
            Err(wedged) => return wedged,
        }
    }
}
