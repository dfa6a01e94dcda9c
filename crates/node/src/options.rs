//! The command line. Flags that set keys stay text here; `config` reads them as a layer, so that errors read the same.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    command::{
        Output, account, admission, auth, backup, clock, copy, explain, export, gossip, import, invite, job, key,
        outbox, plan, policy, request, retention, service, topic, usage,
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
    pub(crate) paths: Paths,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

/// A command.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs the node (the default).
    Serve(Serve),
    /// Prints the effective configuration, and where each value comes from.
    Config(Config),
    /// Lists and sets the topics that the node accepts.
    #[command(subcommand)]
    Topic(topic::Topic),
    /// People who have signed in here, and bans.
    #[command(subcommand)]
    Account(account::AccountCommand),
    /// Who gets an account: every key, keys with an invite code, or listed keys.
    #[command(subcommand)]
    Admission(admission::AdmissionCommand),
    /// Whether clients have to authenticate, and the transition to it.
    #[command(subcommand)]
    Auth(auth::AuthCommand),
    /// Invite codes.
    #[command(subcommand)]
    Invite(invite::InviteCommand),
    /// Topics that people ask for.
    #[command(subcommand)]
    Request(request::RequestCommand),
    /// Plans: what people may use.
    #[command(subcommand)]
    Plan(plan::PlanCommand),
    /// What people have used.
    #[command(subcommand)]
    Usage(usage::UsageCommand),
    /// Terms, privacy policy and house rules.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Work in the background, such as exports and deletions of personal data.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Imports events from a file with one JSON object per line.
    Import(import::Import),
    /// Exports events, one JSON object per line.
    Export(export::Export),
    /// Prints figures of the store.
    Stats(Output),
    /// Prints the log of changes (outbox) and how far its consumers are.
    #[command(subcommand)]
    Outbox(outbox::Outbox),
    /// The services that follow the outbox, such as the search index.
    #[command(subcommand)]
    Service(service::ServiceCommand),
    /// The search index: short for `service … index-v1`.
    #[command(subcommand)]
    Index(service::IndexCommand),
    /// Peers: other nodes with which events are exchanged.
    #[command(subcommand)]
    Gossip(gossip::Gossip),
    /// Purges events whose retention has passed.
    #[command(subcommand)]
    Retention(retention::Retention),
    /// The clock: whether purges wait because it may be wrong.
    #[command(subcommand)]
    Clock(clock::ClockCommand),
    /// Explains why an event is, or is not, visible.
    Explain(explain::Explain),
    /// Writes a consistent backup, while the node runs.
    Backup(backup::Backup),
    /// Restores a backup where there is no store yet.
    Restore(backup::Restore),
    /// Compares the parts of the store with each other: indexes, counters, outbox. Changes nothing.
    Check,
    /// Opens a store whose write-ahead log is damaged: stores the intact events and keeps a copy of the log. The node
    /// must be stopped.
    Salvage,
    /// Rewrites the store's file without free pages. The node must be stopped.
    Compact,
    /// Copies a store into an empty one, of the same kind or the other.
    Copy(copy::Copy),
    /// Creates or migrates the tables of a store on Postgres. A node does so when it starts unless postgres.migrate is
    /// off.
    Migrate,
    /// The node's own key.
    #[command(subcommand)]
    Key(key::Key),
    /// Prints a script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Flags of every command, listed in the help after the command's own.
#[derive(Args)]
pub(crate) struct Paths {
    /// The configuration file [default: kukuri.toml, if it exists].
    #[arg(long, global = true, display_order = 101, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the node keeps its data [default: data].
    #[arg(long, global = true, display_order = 102, value_name = "DIR")]
    data: Option<String>,
    /// Where events are stored: lmdb:DIR, or postgres://USER@HOST/DB [default: store in the data directory].
    #[arg(long, global = true, display_order = 103, value_name = "URL")]
    store: Option<String>,
}

/// Flags for running the node.
#[derive(Args)]
pub(crate) struct Serve {
    /// The address to listen on [default: 127.0.0.1:7777].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The URL that clients connect to [default: ws:// and the listening address].
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Whether events and filters must name topics: required or global [default: required].
    #[arg(long, value_name = "MODE")]
    topics_mode: Option<String>,
    /// Whether rate limits apply: on or off [default: on].
    #[arg(long, value_name = "ON|OFF")]
    rate_limits: Option<String>,
}

/// Flags of `config`.
#[derive(Args)]
pub(crate) struct Config {
    /// Prints an example file instead, with every key, its default and what it does.
    #[arg(long)]
    pub(crate) defaults: bool,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

impl Paths {
    /// Returns the configuration keys that these flags set.
    pub(crate) fn flags(self) -> Flags {
        Flags { config: self.config, values: given([("data", self.data), ("store", self.store)]) }
    }
}

impl Serve {
    /// Adds the configuration keys that these flags set.
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
