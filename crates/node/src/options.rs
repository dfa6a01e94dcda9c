//! The command line: what the node can do, and what a flag sets. Flags are text here; `config` reads them like every
//! other source, so that an error is told in one way.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    command::{
        backup::{Backup, Restore},
        copy::Copy,
        explain::Explain,
        export::Export,
        gossip::Gossip,
        import::Import,
        index::Index,
        key::Key,
        outbox::Outbox,
        retention::Retention,
        stats::Stats,
        topic::Topic,
    },
    config::Flags,
};

const AFTER_HELP: &str = "\
Without a command it runs the node. Each flag is also a key of the configuration file and a KUKURI_… variable;
`kukuri-node config --defaults` explains everything that can be set.";

/// A community node: a topic-scoped Nostr relay.
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// What it can do.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the node (the default).
    Serve(Serve),
    /// Prints the configuration as it takes effect, and where each value comes from.
    Config(Config),
    /// Which topics the node takes in, and how.
    #[command(subcommand)]
    Topic(Topic),
    /// Takes in events from a file of one JSON object a line.
    Import(Import),
    /// Writes events as one JSON object a line.
    Export(Export),
    /// Prints figures of the store.
    Stats(Stats),
    /// Prints what became visible and what went, and how far those have come who follow it.
    #[command(subcommand)]
    Outbox(Outbox),
    /// The index for search.
    #[command(subcommand)]
    Index(Index),
    /// Other nodes that events are carried to and from.
    #[command(subcommand)]
    Gossip(Gossip),
    /// Purges what has stayed long enough.
    #[command(subcommand)]
    Retention(Retention),
    /// Says why an event is, or is not, visible.
    Explain(Explain),
    /// Copies everything as it is at one moment, while the node runs.
    Backup(Backup),
    /// Puts a backup in the place of a store that is not there.
    Restore(Restore),
    /// Compares the parts of the store with each other: indexes, counters, outbox. Changes nothing.
    Check,
    /// Writes the store's file anew, as small as it can be. The node must be stopped.
    Compact,
    /// Copies everything a store holds into an empty one, of the same kind or the other.
    Copy(Copy),
    /// Makes the tables of a store on Postgres, or brings them up to date. A node that starts does so by itself unless
    /// postgres.migrate is off.
    Migrate,
    /// The node's own key.
    #[command(subcommand)]
    Key(Key),
    /// Prints a script that completes commands in a shell.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
}

/// Where things are: the same for every command, listed after what is its own.
#[derive(Args)]
pub(crate) struct Place {
    /// The configuration file [default: kukuri.toml, if it is there].
    #[arg(long, global = true, display_order = 101, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the node keeps its data [default: data].
    #[arg(long, global = true, display_order = 102, value_name = "DIR")]
    data: Option<String>,
    /// Where events are stored: lmdb:DIR, or postgres://USER@HOST/DB [default: store in the data directory].
    #[arg(long, global = true, display_order = 103, value_name = "URL")]
    store: Option<String>,
}

/// How the node runs.
#[derive(Args)]
pub(crate) struct Serve {
    /// Where it listens [default: 127.0.0.1:7777].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The URL clients know it by [default: ws:// and the listening address].
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Whether events and filters must name topics: required or global [default: required].
    #[arg(long, value_name = "MODE")]
    topics_mode: Option<String>,
    /// Whether rate limits hold: on or off [default: on].
    #[arg(long, value_name = "ON|OFF")]
    rate_limits: Option<String>,
}

/// What is printed of the configuration.
#[derive(Args)]
pub(crate) struct Config {
    /// Prints an example file instead, with every key, its default and what it does.
    #[arg(long)]
    pub(crate) defaults: bool,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

impl Place {
    /// What these flags set.
    pub(crate) fn flags(self) -> Flags {
        Flags { config: self.config, values: given([("data", self.data), ("store", self.store)]) }
    }
}

impl Serve {
    /// Adds what these flags set.
    pub(crate) fn add_to(self, flags: &mut Flags) {
        flags.values.extend(given([
            ("listen", self.listen),
            ("public_url", self.public_url),
            ("topics.mode", self.topics_mode),
            ("rate_limits", self.rate_limits),
        ]));
    }
}

fn given<const N: usize>(values: [(&'static str, Option<String>); N]) -> Vec<(&'static str, String)> {
    values.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
