//! The relays that are measured, as their clients meet them: processes of their own, over loopback.
//!
//! - [`process`]: starting one, its CPU time, its memory. [`shell`]: how a command is told.
//! - [`client`]: a WebSocket client of little cost. [`frames`]: as which messages travel. [`message`]: what relays say.
//! - [`trace`]: whether what was acknowledged was durable, told from system calls.

pub(crate) mod client;
pub(crate) mod frames;
pub(crate) mod message;
pub(crate) mod process;
mod shell;
pub(crate) mod trace;

use std::{
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
};

use anyhow::Context;

/// What ours is called.
pub(crate) const OURS: &str = "kukuri";

/// A relay: how it is started.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    pub(crate) name: String,
    /// The program and its arguments, with `{port}` and `{dir}` in them.
    command: Vec<String>,
}

impl FromStr for Relay {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (name, command) = text.split_once('=').context("a relay is told as name=command {port} {dir}")?;
        let command = shell::split(command)?;
        anyhow::ensure!(!name.is_empty() && !command.is_empty(), "a relay has a name and a command");
        anyhow::ensure!(command.iter().any(|word| word.contains("{port}")), "nothing tells {name} its {{port}}");
        Ok(Self { name: name.trim().to_owned(), command })
    }
}

impl Relay {
    /// Ours: the given binary, or the one that was built beside this program. It must not limit how fast clients may
    /// send, which would be measured instead.
    pub(crate) fn ours(binary: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match binary {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("kukuri-node"),
        };
        let path = path.to_str().context("a path that is text")?.to_owned();
        let arguments =
            ["--listen", "127.0.0.1:{port}", "--topics-mode", "required", "--rate-limits", "off", "--data", "{dir}"];
        let command = std::iter::once(path).chain(arguments.map(str::to_owned)).collect();
        Ok(Self { name: OURS.to_owned(), command })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.name == OURS
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
    fn a_relay_is_told_by_a_name_and_a_command() {
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
