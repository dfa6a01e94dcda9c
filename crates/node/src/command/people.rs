//! What the commands about people share: how a change is made, and how keys, times and names are read.

use anyhow::anyhow;
use kukuri_config::OffsetDateTime;
use kukuri_control::{Action, Control, audit::Actor};
use kukuri_domain::{PublicKey, Timestamp, nip19};

use crate::{config::parse_text, wiring};

/// Performs an action, for somebody with a shell on this machine. A running node knows of it within half a second.
pub(super) async fn perform<A: Action>(control: &Control, action: A) -> anyhow::Result<A::Done> {
    Ok(control.perform(&action, &Actor::command(), now()).await?)
}

pub(super) fn now() -> Timestamp {
    wiring::now().seconds()
}

/// Reads a key: hex or npub. The error does not repeat it: it may be a secret.
pub(super) fn public_key(text: &str) -> anyhow::Result<PublicKey> {
    nip19::parse_public_key(text).map_err(|error| anyhow!("KEY: {error}"))
}

/// Reads a time: RFC 3339 or Unix seconds.
pub(super) fn time(flag: &str, text: &str) -> anyhow::Result<Timestamp> {
    let time: OffsetDateTime = parse_text(text).map_err(|error| anyhow!("{flag} {text}: {error}"))?;
    Ok(Timestamp(time.unix_timestamp().try_into()?))
}

/// The value that has this name.
pub(super) fn named<T: Copy, const N: usize>(
    argument: &str,
    text: &str,
    all: [T; N],
    name: impl Fn(T) -> &'static str,
) -> anyhow::Result<T> {
    let found = all.into_iter().find(|one| name(*one) == text);
    found.ok_or_else(|| anyhow!("{argument} {text}: must be one of {}", all.map(name).join(", ")))
}

/// Whether a list is printed as JSON, one object per line.
#[derive(clap::Args)]
pub(crate) struct Lines {
    /// Prints JSON, one object per line.
    #[arg(long)]
    pub(super) json: bool,
}

/// JSON, one object per line.
pub(super) fn as_lines(objects: impl IntoIterator<Item = serde_json::Value>) -> String {
    objects.into_iter().map(|object| format!("{object}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_input_is_explained_in_one_line() {
        let error = |result: anyhow::Result<Timestamp>| result.unwrap_err().to_string();
        assert_eq!(
            error(time("--until", "tomorrow")),
            "--until tomorrow: must be a time with its offset, such as 2030-01-31T12:00:00Z, or Unix seconds"
        );
        assert_eq!(time("--until", "2030-01-31T12:00:00Z").unwrap(), time("--until", "1896091200").unwrap());
        let wrong = named("WINDOW", "week", ["day", "level"], |name| name).unwrap_err().to_string();
        assert_eq!(wrong, "WINDOW week: must be one of day, level");
        let secret = format!("nsec1{}", "q".repeat(58));
        let refused = public_key(&secret).unwrap_err().to_string();
        assert!(refused.contains("secret key") && !refused.contains(&secret), "{refused}");
    }
}
