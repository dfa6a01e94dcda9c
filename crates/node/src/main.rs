//! `kukuri-node`: a community node. With no arguments it starts a relay on an embedded store in `./data`.
//!
//! # Layout
//!
//! - [`serve`]: starts, reloads and stops the node. [`key`]: the node's secret keys. [`wiring`]: starts the parts.
//! - [`command`]: the other commands, one file each. [`admin_socket`]: requests of commands to a running node.
//! - [`config`]: the configuration keys. [`options`]: the command line. [`output`]: standard output and error lines.

mod admin_socket;
mod command;
mod config;
mod key;
mod options;
mod output;
mod serve;
mod wiring;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use options::{Cli, Command};
use tikv_jemallocator::Jemalloc;

/// A request allocates much that is freed soon after: with it requests cost a quarter less than with glibc's allocator, and memory
/// goes back to the system when a burst is over (docs/performance.md).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line for operators, without a stack trace.
            eprintln!("kukuri-node: {}", output::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let mut flags = cli.paths.flags();
    cli.serve.add_to(&mut flags);
    let command = match cli.command {
        None => return serve::run(flags),
        Some(Command::Serve(serve)) => {
            serve.add_to(&mut flags);
            return serve::run(flags);
        }
        Some(Command::Config(options)) if options.defaults => {
            return output::print(&config::print::example::<config::Settings>());
        }
        Some(Command::Config(options)) => {
            options.serve.add_to(&mut flags);
            return block_on(command::config::run(&flags));
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "kukuri-node", &mut script);
            return output::print(&String::from_utf8_lossy(&script));
        }
        Some(command) => command,
    };
    let settings = &config::load(&flags, &Default::default())?.settings;
    match command {
        Command::Topic(command) => block_on(command::topic::run(settings, command)),
        Command::Account(command) => block_on(command::account::run(settings, command)),
        Command::Auth(command) => block_on(command::auth::run(&flags, settings, command)),
        Command::Admission(command) => block_on(command::admission::run(settings, command)),
        Command::Invite(command) => block_on(command::invite::run(settings, command)),
        Command::Request(command) => block_on(command::request::run(settings, command)),
        Command::Plan(command) => block_on(command::plan::run(settings, command)),
        Command::Usage(command) => block_on(command::usage::run(settings, command)),
        Command::Policy(command) => block_on(command::policy::run(settings, command)),
        Command::Job(command) => block_on(command::job::run(settings, command)),
        Command::Import(options) => block_on(command::import::run(settings, options)),
        Command::Export(options) => block_on(command::export::run(settings, options)),
        Command::Stats(options) => block_on(command::stats::run(settings, options)),
        Command::Outbox(command) => block_on(command::outbox::run(settings, command)),
        Command::Service(command) => block_on(command::service::run(settings, command)),
        Command::Index(command) => block_on(command::service::run_index(settings, command)),
        Command::Gossip(command) => block_on(command::gossip::run(settings, command)),
        Command::Retention(command) => block_on(command::retention::run(settings, command)),
        Command::Clock(command) => block_on(command::clock::run(settings, &command)),
        Command::Explain(options) => block_on(command::explain::run(settings, options)),
        Command::Backup(options) => block_on(command::backup::backup(settings, options)),
        Command::Restore(options) => block_on(command::backup::restore(settings, options)),
        Command::Check => block_on(command::check::run(settings)),
        Command::Salvage => command::salvage::run(settings),
        Command::Compact => command::backup::compact(settings),
        Command::Copy(options) => block_on(command::copy::run(settings, options)),
        Command::Migrate => block_on(command::migrate::run(settings)),
        Command::Key(command) => block_on(command::key::run(settings, command)),
        Command::Serve(_) | Command::Config(_) | Command::Completions { .. } => Ok(()),
    }
}

/// Runs a command on a single-threaded runtime, plus tokio's threads for blocking calls.
fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
