//! The attacks, one file per part of the node that they aim at.

mod gossip;
mod live;
mod pages;
mod publishing;
mod reading;
mod slow;

use std::pin::Pin;

use anyhow::bail;

use super::attacker::Attacker;

/// An attack. Every attacker runs it until it is told to stop.
pub(crate) struct Script {
    pub(crate) name: &'static str,
    /// What the attackers do, in a few words.
    pub(crate) about: &'static str,
    pub(crate) run: fn(Attacker) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Lists attacks: name, what the attackers do, function.
macro_rules! scripts {
    ($($name:literal $about:literal $run:path;)+) => {
        const SCRIPTS: &[Script] = &[$(Script { name: $name, about: $about, run: |attacker| Box::pin($run(attacker)) }),+];
    };
}

scripts! {
    "topics" "deletion requests that name 49 unknown topics" publishing::topics;
    "gossip" "the same, over an open gossip peer" gossip::topics;
    "deletions" "deletion requests with 1,450 targets" publishing::deletions;
    "keys" "addressable events, each with a new key" publishing::keys;
    "vanish" "vanish requests older than all versions of their author" publishing::vanish;
    "count" "COUNT with 20 filters over everything" reading::count;
    "search" "as many searches per REQ as allowed, every hit turned down" reading::search;
    "lag" "long posts, searched for before they are indexed" reading::lag;
    "neg" "NEG-OPEN over everything, with nothing and with 7,000 ids" reading::neg;
    "filters" "as many live filters as allowed, of unused kinds" live::filters;
    "snapshots" "snapshot pages that are not read" slow::snapshots;
    "answers" "answers read at 3.5 kB/s" slow::answers;
    "live" "live events read at 20 kB/s" slow::live_events;
    "streams" "streams of changes that are not read" slow::streams;
    "loris-http" "HTTP heads sent byte by byte" slow::http_heads;
    "loris-ws" "WebSocket messages sent byte by byte" slow::messages;
    "pages" "/metrics and / without end" pages::pages;
}

/// The attacks with these names; all without any.
pub(crate) fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Script>> {
    if let Some(unknown) = names.iter().find(|name| SCRIPTS.iter().all(|script| script.name != **name)) {
        let known: Vec<_> = SCRIPTS.iter().map(|script| script.name).collect();
        bail!("there is no attack {unknown:?}; there are {}", known.join(", "));
    }
    let is_chosen = |script: &&Script| names.is_empty() || names.iter().any(|name| name == script.name);
    Ok(SCRIPTS.iter().filter(is_chosen).collect())
}
