//! The command line of `cargo xtask attack`.

use std::{path::PathBuf, time::Duration};

use clap::{Parser, value_parser};

use super::{outcome::Bounds, prepared::Sizes};

/// Attacks a node from several addresses, each within the limits of its default configuration, while a well-behaved client
/// publishes, asks and checks its health. Prints how that client is served before and during each attack, and how the
/// node is afterwards. Fails if a figure is out of bounds.
#[derive(Parser)]
#[command(bin_name = "cargo xtask attack")]
pub(crate) struct Options {
    /// The attacks; all by default.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Seconds of each attack.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Addresses that attack, from 127.0.0.2 on.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u8).range(1..=200))]
    pub(crate) addresses: u8,
    /// Six seconds each, on fewer stored events, with generous bounds: for CI.
    #[arg(long)]
    pub(crate) short: bool,
    /// The node's binary; the one beside this program by default.
    #[arg(long, value_name = "FILE")]
    pub(crate) node: Option<PathBuf>,
    /// Where the table is written, and nodes keep their data meanwhile.
    #[arg(long, default_value = "target/attack")]
    pub(crate) dir: PathBuf,
    /// The store of the node.
    #[arg(long, value_parser = ["embedded", "postgres"], default_value = "embedded")]
    pub(crate) store: String,
    /// The Postgres server for it. `cargo xtask attack --store postgres` brings one.
    #[arg(long, env = "KUKURI_TEST_POSTGRES", hide_env_values = true)]
    pub(crate) url: Option<String>,
}

impl Options {
    /// How long the well-behaved client is served before an attack.
    pub(crate) fn baseline(&self) -> Duration {
        Duration::from_secs(if self.short { 3 } else { 15 })
    }

    pub(crate) fn attack_time(&self) -> Duration {
        Duration::from_secs(if self.short { 6 } else { self.seconds })
    }

    /// The stored events that each attack starts from.
    pub(crate) fn sizes(&self) -> Sizes {
        if self.short {
            Sizes { posts: 4_000, large_posts: 100, versions: 4_000 }
        } else {
            Sizes { posts: 20_000, large_posts: 300, versions: 20_000 }
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        if self.short { Bounds::GENEROUS } else { Bounds::STRICT }
    }
}
