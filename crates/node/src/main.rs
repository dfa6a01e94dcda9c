//! `kukuri-node`: a community node. With no arguments it starts a relay on an embedded store in `./data`.
//!
//! # Layout
//!
//! - [`serve`]: starting and stopping the relay. [`options`]: what can be set.

mod options;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use options::{Cli, Command};

fn main() -> ExitCode {
    let Cli { command, serve } = Cli::parse();
    let options = match command {
        None => serve,
        Some(Command::Serve(options)) => options,
    };
    match serve::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line that says what is wrong; nobody wants to read a stack trace.
            eprintln!("kukuri-node: {error:#}");
            ExitCode::FAILURE
        }
    }
}
