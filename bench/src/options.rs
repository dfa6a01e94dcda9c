//! The command line of `cargo xtask bench`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{
    relay::{Build, Relay},
    store::writers,
};

/// Measures this relay, and others beside it: every figure of one run is of one machine, one corpus and one hour. Writes
/// target/bench/report.md and report.json. Server CPU is the user and system time of all processes of a
/// relay; clients share the machine.
///
/// Targets that are not met do not fail a run. Wrong answers of our own relay do.
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) hidden: Option<Hidden>,
    /// Parts to measure; all by default.
    #[arg(long, value_delimiter = ',', value_enum)]
    pub(crate) part: Vec<Part>,
    /// Another relay to measure: 'name=command {port} {dir}'. The directory is there and empty. Repeatable.
    #[arg(long = "relay", value_name = "NAME=COMMAND")]
    pub(crate) relays: Vec<Relay>,
    /// Of the other relays, only those whose names begin with one of these.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Without the relays that `cargo xtask bench` installs: ours, and those given by --relay.
    #[arg(long)]
    pub(crate) no_peers: bool,
    /// Our binary; the one beside this program by default. Given twice, as old=FILE and new=FILE, two builds are compared:
    /// both are measured in turns, and the report has the medians and the ratio of the second to the first.
    #[arg(long = "node", value_name = "[NAME=]FILE")]
    pub(crate) nodes: Vec<Build>,
    /// How often each build is measured when two are compared.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: u32,
    /// The seed of the corpus.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Events that are sent to measure ingest, and that stand in the store to be asked for.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) events: u64,
    /// Numbers of events between which growth is measured, ascending: 10k,100k,1M.
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "10k,100k,1M")]
    pub(crate) sizes: Vec<u64>,
    /// The most events that other relays are grown to.
    #[arg(long, value_parser = size, default_value = "100k")]
    pub(crate) peer_size: u64,
    /// Seconds after which a relay is given up that does not get on with a measurement.
    #[arg(long, default_value_t = 300)]
    pub(crate) timeout: u64,
    /// Where relays keep their data meanwhile; a temporary directory within.
    #[arg(long, default_value = "target/bench")]
    pub(crate) dir: PathBuf,
    /// Where the report is written.
    #[arg(long, default_value = "target/bench")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) load: Load,
    #[command(flatten)]
    pub(crate) stores: Stores,
}

/// How much relays are asked to do.
#[derive(Args)]
#[command(next_help_heading = "How much")]
pub(crate) struct Load {
    /// Requests of each shape, at most; a measurement also ends after ten seconds.
    #[arg(long, default_value_t = 12_000)]
    pub(crate) requests: usize,
    /// Live subscribers.
    #[arg(long, default_value_t = 200)]
    pub(crate) subscribers: usize,
    /// Events they are sent.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) live_events: usize,
    /// How many of those per second.
    #[arg(long, default_value_t = 200)]
    pub(crate) rate: u32,
    /// Idle connections.
    #[arg(long, default_value_t = 5_000)]
    pub(crate) connections: usize,
    /// Seconds that the mixed load lasts, once without and once with a slow reader.
    #[arg(long, default_value_t = 10)]
    pub(crate) mixed_seconds: u64,
    /// Events per second of the mixed load.
    #[arg(long, default_value_t = 500)]
    pub(crate) mixed_events: u32,
    /// Requests per second of the mixed load.
    #[arg(long, default_value_t = 400)]
    pub(crate) mixed_requests: u32,
}

/// The parts "store" and "search".
#[derive(Args)]
#[command(next_help_heading = "Store and search by themselves")]
pub(crate) struct Stores {
    /// Which store and index. Those on Postgres are measured beside the embedded ones.
    #[arg(long, value_enum, default_value_t = Kept::Embedded)]
    pub(crate) store: Kept,
    /// The empty database that they are made in. `cargo xtask bench` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    pub(crate) url: Option<String>,
    /// The most events in one transaction.
    #[arg(long, default_value_t = 4_096)]
    pub(crate) batch: u64,
    /// How often each query is run.
    #[arg(long, default_value_t = 2_000)]
    pub(crate) queries: usize,
    /// How many events are taken in one by one.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) singles: u64,
    /// How many events several processes write together.
    #[arg(long, default_value_t = 32_768)]
    pub(crate) shared: u64,
    /// Posts in one commit of the index.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) index_batch: u64,
    /// Posts a second that are published to see how soon they are found by a search.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) search_rate: u32,
    /// Seconds for which they are published.
    #[arg(long, default_value_t = 20)]
    pub(crate) search_seconds: u32,
}

/// Commands that this program runs itself with.
#[derive(Subcommand)]
pub(crate) enum Hidden {
    /// One of several processes that write to a database.
    #[command(hide = true)]
    StoreWriter(writers::Options),
}

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Events in: many in flight, and one at a time; whether OK means durable.
    Ingest,
    /// Stored events out, in six shapes and as a mix.
    Req,
    /// Bytes on the disk.
    Disk,
    /// Killed and started again.
    Restart,
    /// All at once, with and without a reader that does not read.
    Mixed,
    /// Live events out to many.
    Live,
    /// Memory and CPU time of connections that send nothing.
    Idle,
    /// Ingest and requests as the store grows.
    Growth,
    /// A store by itself, as it grows.
    Store,
    /// An index by itself, as it grows, and the time until a node finds an accepted event.
    Search,
}

impl Part {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Req => "req",
            Self::Disk => "disk",
            Self::Restart => "restart",
            Self::Mixed => "mixed",
            Self::Live => "live",
            Self::Idle => "idle",
            Self::Growth => "growth",
            Self::Store => "store",
            Self::Search => "search",
        }
    }
}

/// Where something is kept.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    /// In files of the node's own.
    #[value(alias = "lmdb")]
    Embedded,
    /// On a server, and beside it in files.
    Postgres,
}

impl Options {
    /// Whether a part is to be measured: those that were asked for, else those that are compared, else all.
    pub(crate) fn has(&self, part: Part) -> bool {
        match self.part.as_slice() {
            [] if self.compares_builds() => matches!(part, Part::Ingest | Part::Req | Part::Live),
            [] => true,
            some => some.contains(&part),
        }
    }

    /// Whether several builds of our own node are compared. Other relays are left out then.
    pub(crate) fn compares_builds(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The number of the first event of a part of the corpus that is kept for one purpose, after the events that relays are filled with.
    pub(crate) fn corpus_part(&self, part: u64) -> u64 {
        let mixed = u64::from(self.load.mixed_events) * self.load.mixed_seconds;
        // Of several events one is in the topic that is followed.
        let each = 6 * mixed.max(self.load.live_events as u64) + 5_000;
        self.events + part * each
    }

    /// How many events of the corpus may be needed.
    pub(crate) fn most_events(&self) -> u64 {
        let grows = [Part::Growth, Part::Store].iter().any(|part| self.has(*part));
        let largest = self.sizes.iter().copied().max().filter(|_| grows).unwrap_or_default();
        largest.max(self.corpus_part(5))
    }

    /// The database, if it is to be measured.
    pub(crate) fn database(&self) -> anyhow::Result<Option<&str>> {
        match (self.stores.store, &self.stores.url) {
            (Kept::Embedded, _) => Ok(None),
            (Kept::Postgres, Some(url)) => Ok(Some(url)),
            (Kept::Postgres, None) => anyhow::bail!("--url names the database"),
        }
    }
}

/// A number of events: 500, 10k, 1M.
fn size(text: &str) -> Result<u64, String> {
    let (digits, times) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text} is no number of events"))?;
    number.checked_mul(times).filter(|size| *size > 0).ok_or_else(|| format!("{text} is no number of events"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_counts_take_k_and_m_suffixes() {
        assert_eq!(["500", "10k", "1M"].map(|text| size(text).unwrap()), [500, 10_000, 1_000_000]);
        assert!(["", "k", "1.5M", "0", "-1", "99999999999999999999M"].iter().all(|text| size(text).is_err()));
    }

    #[test]
    fn all_parts_run_unless_some_are_chosen() {
        let all = Options::parse_from(["bench"]);
        assert!(Part::value_variants().iter().all(|part| all.has(*part)));
        let some = Options::parse_from(["bench", "--part", "req,live", "--relay", "a b=c {port}"]);
        assert!(some.has(Part::Live) && !some.has(Part::Store));
        assert_eq!(some.relays[0].name, "a b");
        let builds = Options::parse_from(["bench", "--node", "old=a", "--node", "new=b"]);
        assert!(builds.compares_builds() && builds.has(Part::Live) && !builds.has(Part::Growth));
    }
}
