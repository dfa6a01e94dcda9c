//! `kukuri-node`: a community node. With no arguments it starts a relay on an embedded store in `./data`.
//!
//! # Layout
//!
//! - [`serve`]: starting and stopping the relay.
//! - [`config`]: what can be set. [`options`]: the command line. [`output`]: what commands answer.

mod config;
mod options;
mod output;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use options::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line that says what is wrong; nobody wants to read a stack trace.
            eprintln!("kukuri-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<()> {
    let mut flags = cli.place.flags();
    cli.serve.add_to(&mut flags);
    match cli.command {
        None => serve::run(config::load(&flags)?),
        Some(Command::Serve(serve)) => {
            serve.add_to(&mut flags);
            serve::run(config::load(&flags)?)
        }
        Some(Command::Config(options)) if options.defaults => Ok(output::print(&config::print::example())?),
        Some(Command::Config(options)) => {
            options.serve.add_to(&mut flags);
            Ok(output::print(&config::print::effective(&config::load(&flags)?))?)
        }
    }
}
