//! What can be set: by a flag, or by an environment variable of the same name.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use kukuri_domain::topic::TopicsMode;

/// A community node: a topic-scoped Nostr relay.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// What it can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the node (the default).
    Serve(Serve),
}

/// How the node runs.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where it listens.
    #[arg(long, env = "KUKURI_LISTEN", default_value = "127.0.0.1:7777", value_name = "ADDR")]
    pub(crate) listen: SocketAddr,
    /// The URL clients know it by; ws:// and the listening address by default.
    #[arg(long, env = "KUKURI_PUBLIC_URL", value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// Where it keeps its data; made if it is not there.
    #[arg(long, env = "KUKURI_DATA", default_value = "data", value_name = "DIR")]
    pub(crate) data: PathBuf,
    /// Whether events and filters must name topics.
    #[arg(long, env = "KUKURI_TOPICS_MODE", default_value = "required", value_name = "MODE")]
    pub(crate) topics_mode: Mode,
}

/// Whether events and filters must name topics.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// They must.
    Required,
    /// What names none belongs to kukuri:global; any Nostr client works.
    Global,
}

impl From<Mode> for TopicsMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Required => Self::Required,
            Mode::Global => Self::Global,
        }
    }
}
