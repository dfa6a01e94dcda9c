//! `auth`: whether clients have to authenticate, and the transition to it (W-7, A-7).

use anyhow::bail;
use clap::Subcommand;
use kukuri_config::{Layer, OffsetDateTime, Setting, TextSetting};
use kukuri_control::{Control, actions::Configure};
use kukuri_domain::Timestamp;
use serde_json::json;

use super::{
    Output,
    people::{now, perform, time},
    table::{fields, moment},
};
use crate::{
    config::{self, AuthMode, Flags, Loaded, Settings, settings::Auth},
    output, wiring,
};

const MODE: &str = "auth.mode";
const ENFORCE_AT: &str = "auth.enforce_at";
const GRACE: &str = "auth.grace_seconds";

/// Keys with their new values; `None` removes one.
type NewValues = Vec<(&'static str, Option<kukuri_config::TomlValue>)>;

#[derive(Subcommand)]
pub(crate) enum AuthCommand {
    /// Prints whether clients have to authenticate, since when, and how long connections from before may stay.
    Status(Output),
    /// Requires clients to authenticate. Clients that are connected then are told so, and have a grace.
    Require {
        /// When it takes effect, such as 2030-01-31T12:00:00Z [default: at once].
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// How long connected clients may go on without authenticating [default: auth.grace_seconds].
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u64>,
    },
    /// Lets clients read and write without authenticating.
    Off,
}

pub(crate) async fn run(flags: &Flags, settings: &Settings, command: AuthCommand) -> anyhow::Result<()> {
    let control = wiring::control::for_command(settings).await?;
    let loaded = config::load(flags, &control.people().configuration())?;
    match command {
        AuthCommand::Status(options) if options.json => output::print(&format!("{}\n", as_value(&loaded))),
        AuthCommand::Status(_) => output::print(&shown(&loaded)),
        AuthCommand::Require { at, grace } => {
            let at = at.map(|at| time("--at", &at)).transpose()?;
            let values = required(&loaded.settings.auth, at, grace)?;
            configure(flags, &control, "auth.require", &loaded, values).await
        }
        AuthCommand::Off => {
            // A higher layer that sets another key than the mode does not block the command.
            let set = control.people().configuration();
            let others = [ENFORCE_AT, GRACE].into_iter().filter(|key| set.contains_key(*key));
            let values = std::iter::once(MODE).chain(others).map(|key| (key, None)).collect();
            configure(flags, &control, "auth.off", &loaded, values).await
        }
    }
}

/// The keys to set, so that authentication is required.
fn required(auth: &Auth, at: Option<Timestamp>, grace: Option<u64>) -> anyhow::Result<NewValues> {
    let now = now();
    if at.is_some_and(|at| at < now) {
        bail!("--at: the time is in the past; leave it out to require authentication at once");
    }
    let mut values = NewValues::new();
    if at.is_some() || matches!(Phase::of(auth, now), Phase::Off | Phase::Scheduled) {
        // A client that connected in this second was connected before.
        let enforce_at = at.map_or(now.0 + 1, |at| at.0);
        values.push((MODE, AuthMode::Required.to_toml()));
        values.push((ENFORCE_AT, OffsetDateTime::from_number(enforce_at).to_toml()));
    }
    values.extend(grace.map(|grace| (GRACE, grace.to_toml())));
    if values.is_empty() {
        bail!("clients have to authenticate already; `kukuri-node auth status` says since when");
    }
    Ok(values)
}

/// Sets keys of the console's layer (K-7). Refuses where a higher layer would hide the change.
async fn configure(
    flags: &Flags,
    control: &Control,
    action: &'static str,
    loaded: &Loaded,
    values: NewValues,
) -> anyhow::Result<()> {
    for (key, value) in &values {
        let layer = loaded.layer(key);
        if *layer > Layer::Console && (value.is_some() || *key == MODE) {
            bail!("{key} is set in {}; change it there", layer.location(key));
        }
    }
    let mut console = control.people().configuration();
    for (key, value) in &values {
        match value {
            Some(value) => drop(console.insert((*key).to_owned(), value.to_string())),
            None => drop(console.remove(*key)),
        }
    }
    let loaded = config::load(flags, &console)?;
    let text = |value: kukuri_config::TomlValue| value.to_string();
    let values = values.into_iter().map(|(key, value)| (key.to_owned(), value.map(text))).collect();
    perform(control, Configure { action, values }).await?;
    output::print(&shown(&loaded))
}

/// How far the transition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Off,
    Scheduled,
    Grace,
    Required,
}

impl Phase {
    fn of(auth: &Auth, now: Timestamp) -> Self {
        let Some(enforce_at) = enforce_at(auth) else {
            // Without a time it takes effect when the node starts, or is configured so.
            return if auth.mode == AuthMode::Off { Self::Off } else { Self::Required };
        };
        if now < enforce_at {
            Self::Scheduled
        } else if now < deadline(auth, enforce_at) {
            Self::Grace
        } else {
            Self::Required
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Scheduled => "scheduled",
            Self::Grace => "grace",
            Self::Required => "required",
        }
    }

    const fn described(self) -> &'static str {
        match self {
            Self::Off => "clients read and write without authenticating",
            Self::Scheduled => "clients will have to authenticate",
            Self::Grace => "new clients have to authenticate; those that were connected before have a grace",
            Self::Required => "clients have to authenticate",
        }
    }
}

fn enforce_at(auth: &Auth) -> Option<Timestamp> {
    let time = auth.enforce_at.filter(|_| auth.mode == AuthMode::Required)?;
    Some(Timestamp(time.unix_timestamp().unsigned_abs()))
}

fn deadline(auth: &Auth, enforce_at: Timestamp) -> Timestamp {
    Timestamp(enforce_at.0 + auth.grace_seconds)
}

fn shown(loaded: &Loaded) -> String {
    let auth = &loaded.settings.auth;
    let phase = Phase::of(auth, now());
    let from = |key: &str| loaded.layer(key).location(key);
    let mut lines = vec![("authentication", format!("{}: {}", phase.name(), phase.described()))];
    lines.push(("mode set in", from(MODE)));
    if let Some(enforce_at) = enforce_at(auth) {
        lines.push(("in effect from", moment(enforce_at)));
        lines.push(("connections from before stay until", moment(deadline(auth, enforce_at))));
    }
    fields(&lines)
}

fn as_value(loaded: &Loaded) -> serde_json::Value {
    let auth = &loaded.settings.auth;
    let enforce_at = enforce_at(auth);
    let from = |key: &str| loaded.layer(key).location(key);
    json!({
        "phase": Phase::of(auth, now()).name(),
        "enforce_at": enforce_at.map(|time| time.0),
        "grace_seconds": auth.grace_seconds,
        "disconnect_at": enforce_at.map(|time| deadline(auth, time).0),
        "set_in": { "mode": from(MODE), "enforce_at": from(ENFORCE_AT), "grace_seconds": from(GRACE) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other() {
        // W-7
        let auth = |mode, enforce_at: Option<u64>| Auth {
            mode,
            enforce_at: enforce_at.and_then(OffsetDateTime::from_number),
            grace_seconds: 60,
            ..Auth::default()
        };
        for (mode, enforce_at, now, phase) in [
            (AuthMode::Off, None, 1_000, Phase::Off),
            (AuthMode::Off, Some(10), 1_000, Phase::Off),
            (AuthMode::Required, None, 1_000, Phase::Required),
            (AuthMode::Required, Some(1_001), 1_000, Phase::Scheduled),
            (AuthMode::Required, Some(1_000), 1_000, Phase::Grace),
            (AuthMode::Required, Some(941), 1_000, Phase::Grace),
            (AuthMode::Required, Some(940), 1_000, Phase::Required),
        ] {
            assert_eq!(Phase::of(&auth(mode, enforce_at), Timestamp(now)), phase, "{mode:?} {enforce_at:?}");
        }
    }
}
