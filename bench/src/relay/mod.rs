//! The relays that are measured, as their clients meet them: processes of their own, over loopback.
//!
//! - [`process`]: starting one, its CPU time, its memory.
//! - [`message`]: a relay's messages.
//! - [`trace`]: whether acknowledged events were durable, judged by system calls.

pub(crate) mod message;
pub(crate) mod process;
pub(crate) mod trace;

use std::{
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::Context;

use crate::options::Options;

/// The name of our relay, unless several builds of it are compared.
pub(crate) const OURS: &str = "kukuri";

/// A binary of our node, given as `NAME=FILE` or `FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) name: String,
    path: PathBuf,
}

impl FromStr for Build {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, path) = text.split_once('=').unwrap_or((OURS, text));
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

/// A relay: how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    pub(crate) name: String,
    /// Our own: wrong answers of it fail the run.
    pub(crate) is_ours: bool,
    /// The program and its arguments, with `{port}` and `{dir}` in them.
    command: Vec<String>,
}

impl FromStr for Relay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, command) = text.split_once('=').context("a relay is told as name=command {port} {dir}")?;
        let command = shlex::split(command).context("an unclosed quote in a command")?;
        anyhow::ensure!(!name.is_empty() && !command.is_empty(), "a relay has a name and a command");
        anyhow::ensure!(command.iter().any(|word| word.contains("{port}")), "nothing tells {name} its {{port}}");
        Ok(Self { name: name.trim().to_owned(), is_ours: false, command })
    }
}

impl Relay {
    /// Ours: the given builds, or the binary beside this program. Its rate limits are off: else they would be measured.
    pub(crate) fn ours(options: &Options) -> anyhow::Result<Vec<Self>> {
        let beside = Build { name: OURS.to_owned(), path: std::env::current_exe()?.with_file_name("kukuri-node") };
        let builds = if options.nodes.is_empty() { &[beside][..] } else { &options.nodes };
        let arguments =
            ["--listen", "127.0.0.1:{port}", "--topics-mode", "required", "--rate-limits", "off", "--data", "{dir}"];
        let relay = |build: &Build| {
            let path = build.path.to_str().context("a path that is text")?.to_owned();
            let command = std::iter::once(path).chain(arguments.map(str::to_owned)).collect();
            Ok(Self { name: build.name.clone(), is_ours: true, command })
        };
        builds.iter().map(relay).collect()
    }

    fn command(&self, port: u16, dir: &Path, before: &[String]) -> anyhow::Result<Command> {
        let dir = dir.to_str().context("a path that is text")?;
        let told = self.command.iter().map(|word| word.replace("{port}", &port.to_string()).replace("{dir}", dir));
        let mut words = before.iter().cloned().chain(told);
        let mut command = Command::new(words.next().context("a command")?);
        command.args(words);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("KUKURI_")) {
            command.env_remove(name);
        }
        command.env("KUKURI_LOG", "warn");
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relay_option_is_a_name_and_a_command() {
        let relay: Relay = "other 1.0=sh -c 'exec relay --at {port}' {dir}".parse().unwrap();
        let command = relay.command(7, Path::new("/data"), &[]).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert_eq!(
            (relay.name.as_str(), words),
            ("other 1.0", vec!["-c".into(), "exec relay --at 7".into(), "/data".into()])
        );
        assert!("other".parse::<Relay>().is_err(), "no command");
        assert!("other=relay".parse::<Relay>().is_err(), "no port");
    }
}
