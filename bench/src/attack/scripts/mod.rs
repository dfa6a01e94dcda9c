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
    /// The finding of the security review that it shows.
    pub(crate) finding: &'static str,
    pub(crate) run: fn(Attacker) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Lists attacks: name, finding, function.
macro_rules! scripts {
    ($($name:literal $finding:literal $run:path;)+) => {
        const SCRIPTS: &[Script] = &[$(Script { name: $name, finding: $finding, run: |attacker| Box::pin($run(attacker)) }),+];
    };
}

scripts! {
    "topics" "H1" publishing::topics;
    "gossip" "H1" gossip::topics;
    "deletions" "H4" publishing::deletions;
    "keys" "H4" publishing::keys;
    "vanish" "M1" publishing::vanish;
    "count" "H3, M10" reading::count;
    "search" "H7" reading::search;
    "lag" "M9" reading::lag;
    "neg" "M7" reading::neg;
    "filters" "H5" live::filters;
    "snapshots" "H6" slow::snapshots;
    "answers" "M2" slow::answers;
    "streams" "M3" slow::streams;
    "loris-http" "slow-loris" slow::http_heads;
    "loris-ws" "slow-loris" slow::messages;
    "pages" "M5" pages::pages;
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
