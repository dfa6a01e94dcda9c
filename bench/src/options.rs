//! The command line of `cargo xtask bench`.

use std::{fmt, path::PathBuf};

use anyhow::Context;
use clap::{Parser, ValueEnum, value_parser};
use serde::Serialize;

use crate::relay::Relay;

/// The relays that `cargo xtask peer` installs.
const PEERS: [&str; 4] = ["nostr-rs-relay", "relay-builder", "khatru", "nostr-relay"];

/// Measures this relay, and others beside it: all figures of a run are of one machine and one corpus. Writes report.md and
/// report.json. Server CPU is the user and system time of all processes of a relay; clients share the machine.
///
/// Targets that are not met do not fail a run. Wrong answers of our own relay do.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench")]
pub(crate) struct Options {
    /// Parts to measure; all by default, and ingest, req and live if builds are compared.
    #[arg(long, value_delimiter = ',', value_enum)]
    part: Vec<Part>,
    /// Another relay to measure, in place of the installed peers: 'name=command {port} {dir}'. The directory exists and is
    /// empty. Repeatable.
    #[arg(long = "relay", value_name = "NAME=COMMAND")]
    pub(crate) relays: Vec<Relay>,
    /// Of the peers that are installed from registries, only these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PEERS)]
    only: Vec<String>,
    /// Without the peers that are installed from registries.
    #[arg(long)]
    no_peers: bool,
    /// Our binary; the one beside this program by default. Given several times, as old=FILE and new=FILE, the builds are
    /// compared: they are measured in turns, without peers, and the report has the ratios to the first.
    #[arg(long = "node", value_name = "[NAME=]FILE", value_parser = Relay::of_build)]
    pub(crate) nodes: Vec<Relay>,
    /// How often each relay is measured, in turns; the report has the medians. 5 if builds are compared, else 1.
    #[arg(long)]
    rounds: Option<u32>,
    /// The seed of the corpus.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Events that are sent to measure ingest, and that are stored when requests are measured. A tenth as many are sent to
    /// live subscribers.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) events: u64,
    /// Numbers of events at which growth, stores and indexes are measured, ascending. Other relays stop at 100,000.
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u64).range(1..), default_values_t = [10_000, 100_000, 1_000_000])]
    pub(crate) sizes: Vec<u64>,
    /// Live subscribers.
    #[arg(long, default_value_t = 200)]
    pub(crate) subscribers: usize,
    /// Idle connections.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Seconds after which a measurement of a relay is given up.
    #[arg(long, default_value_t = 300)]
    pub(crate) timeout: u64,
    /// Where the report is written, and relays keep their data in a temporary directory.
    #[arg(long, default_value = "target/bench")]
    pub(crate) dir: PathBuf,
    /// The store and the index of the parts "store" and "search". Those on Postgres are measured beside the embedded ones.
    #[arg(long, value_parser = ["embedded", "postgres"], default_value = "embedded")]
    store: String,
    /// The empty Postgres database for them. `cargo xtask bench` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    url: Option<String>,
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Part {
    /// Events in: many in flight, and one at a time; whether OK means durable.
    Ingest,
    /// Stored events out, in six shapes and as a mix; bytes on the disk; killed and started again.
    Req,
    /// Live events out to many.
    Live,
    /// Memory and CPU time of connections that send nothing.
    Idle,
    /// Ingest and requests as the store grows.
    Growth,
    /// Events into our relay on Postgres: by socket, by TCP, and by TCP with a delay. Needs `--store postgres`.
    Postgres,
    /// A store by itself, as it grows.
    Store,
    /// An index by itself, as it grows, and the time until a node finds an accepted event.
    Search,
    /// The cost of policies for members, of tokens and of accounts.
    People,
}

impl Part {
    /// Whether every relay is measured, not our own store and index alone.
    pub(crate) fn is_of_relays(self) -> bool {
        !matches!(self, Self::Postgres | Self::Store | Self::Search | Self::People)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!("{self:?}").to_lowercase())
    }
}

impl Options {
    /// The parts to measure, in the order of the report.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let is_chosen = |part: &Part| match self.part.as_slice() {
            [] if self.compares_builds() => matches!(part, Part::Ingest | Part::Req | Part::Live),
            [] => true,
            chosen => chosen.contains(part),
        };
        Part::value_variants().iter().copied().filter(is_chosen).collect()
    }

    fn compares_builds(&self) -> bool {
        self.nodes.len() > 1
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.compares_builds() { 5 } else { 1 })
    }

    /// The peers to install: all, unless other arguments exclude them.
    pub(crate) fn peers(&self) -> Vec<&'static str> {
        let has_relay_parts = self.parts().into_iter().any(Part::is_of_relays);
        if self.no_peers || self.compares_builds() || !self.relays.is_empty() || !has_relay_parts {
            return Vec::new();
        }
        let is_chosen = |name: &&str| self.only.is_empty() || self.only.iter().any(|only| only == name);
        PEERS.into_iter().filter(is_chosen).collect()
    }

    /// Events for live subscribers.
    pub(crate) fn live_events(&self) -> usize {
        self.events as usize / 10
    }

    /// How many events of the corpus may be needed.
    pub(crate) fn corpus_size(&self) -> u64 {
        let grows = self.parts().iter().any(|part| matches!(part, Part::Growth | Part::Store));
        let largest = self.sizes.iter().copied().max().filter(|_| grows).unwrap_or_default();
        // Of four events about one is in the topic of live subscribers.
        largest.max(2 * self.events + 1_000)
    }

    /// The database, if it is to be measured.
    pub(crate) fn database(&self) -> anyhow::Result<Option<&str>> {
        if self.store == "embedded" {
            return Ok(None);
        }
        self.url.as_deref().map(Some).context("--store postgres needs a database: --url")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Options {
        Options::try_parse_from(["bench"].into_iter().chain(arguments.split_whitespace())).unwrap()
    }

    #[test]
    fn all_parts_run_unless_some_are_chosen_or_builds_are_compared() {
        assert_eq!(parse("").parts(), Part::value_variants());
        assert_eq!(parse("--part live,req").parts(), [Part::Req, Part::Live]);
        let builds = parse("--node old=a --node new=b");
        assert_eq!(builds.parts(), [Part::Ingest, Part::Req, Part::Live]);
        assert_eq!((builds.rounds(), parse("").rounds(), parse("--rounds 3").rounds()), (5, 1, 3));
    }

    #[test]
    fn peers_take_part_unless_arguments_exclude_them() {
        for (arguments, expected) in [
            ("", &PEERS[..]),
            ("--part ingest,store --seed=2", &PEERS),
            ("--part=store --part live", &PEERS),
            ("--part store,search", &[]),
            ("--no-peers --seed 2", &[]),
            ("--only khatru --seed 2", &["khatru"]),
            ("--seed 2 --only=khatru,nostr-relay", &["khatru", "nostr-relay"]),
            ("--relay x={port}", &[]),
            ("--node a", &PEERS),
            ("--node old=a --node new=b", &[]),
        ] {
            assert_eq!(parse(arguments).peers(), expected, "{arguments}");
        }
    }

    #[test]
    fn unknown_peer_is_an_error_that_lists_the_known_ones() {
        let error = Options::try_parse_from(["bench", "--only", "khatru,strfry"]).err().unwrap().to_string();
        assert!(error.contains("strfry") && error.contains("nostr-rs-relay"), "{error}");
    }
}
