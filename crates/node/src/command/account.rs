//! `account`: people who have signed in here, and bans.

use clap::Subcommand;
use kukuri_control::{
    Control, Refused,
    account::{self, Account, AccountStatus},
    actions::{Ban, LiftBan, SetAccountStatus},
    request::{self, RequestStatus},
    subscription,
};
use kukuri_domain::{PublicKey, Timestamp, nip19::npub};
use serde_json::json;

use super::{
    people::{Lines, as_lines, now, perform, public_key, time},
    request::service_names,
    table::{fields, moment, one_line, table},
};
use crate::{config::Settings, output, wiring};

const PAGE: usize = 1_000;

/// Commands about accounts. KEY is a public key: 64 hex digits or npub.
#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Lists the accounts, in the order in which they came.
    List(Lines),
    /// Prints what is known of a person: account, plan, ban, topics.
    Show {
        /// The person: 64 hex digits or npub.
        key: String,
    },
    /// Disables an account: it is not served until it is enabled again.
    Disable {
        /// The person: 64 hex digits or npub.
        key: String,
        /// Why, for the person.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Enables a disabled account.
    Enable {
        /// The person: 64 hex digits or npub.
        key: String,
    },
    /// Bans a key, with or without an account.
    Ban {
        /// The person: 64 hex digits or npub.
        key: String,
        /// Why, for the person.
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// When the ban ends, such as 2030-01-31T12:00:00Z [default: never].
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// Lifts the ban of a key.
    Unban {
        /// The person: 64 hex digits or npub.
        key: String,
    },
}

pub(crate) async fn run(settings: &Settings, command: AccountCommand) -> anyhow::Result<()> {
    let open = || wiring::control::for_command(settings);
    match command {
        AccountCommand::List(lines) => list(&*open().await?, &lines).await,
        AccountCommand::Show { key } => {
            let key = public_key(&key)?;
            show(&*open().await?, &key).await
        }
        AccountCommand::Disable { key, reason } => {
            let pubkey = public_key(&key)?;
            let action = SetAccountStatus { pubkey, status: AccountStatus::Disabled, reason };
            perform(&*open().await?, action).await?;
            output::print(&format!("the account of {} is disabled\n", npub(&pubkey)))
        }
        AccountCommand::Enable { key } => {
            let pubkey = public_key(&key)?;
            let action = SetAccountStatus { pubkey, status: AccountStatus::Active, reason: None };
            perform(&*open().await?, action).await?;
            output::print(&format!("the account of {} is enabled\n", npub(&pubkey)))
        }
        AccountCommand::Ban { key, reason, until } => {
            let pubkey = public_key(&key)?;
            let until = until.map(|until| time("--until", &until)).transpose()?;
            perform(&*open().await?, Ban { pubkey, reason, until }).await?;
            output::print(&format!("{} is banned {}\n", npub(&pubkey), end_of_ban(until)))
        }
        AccountCommand::Unban { key } => {
            let pubkey = public_key(&key)?;
            perform(&*open().await?, LiftBan { pubkey }).await?;
            output::print(&format!("{} is no longer banned\n", npub(&pubkey)))
        }
    }
}

fn end_of_ban(until: Option<Timestamp>) -> String {
    until.map_or_else(|| "for ever".to_owned(), |until| format!("until {}", moment(until)))
}

async fn list(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let accounts = all(control).await?;
    if lines.json {
        return output::print(&as_lines(accounts.iter().map(as_value)));
    }
    let rows = accounts.iter().map(|account| {
        [
            account.pubkey.to_string(),
            account.status.name().to_owned(),
            moment(account.created_at),
            account.reason.as_deref().map(one_line).unwrap_or_default(),
        ]
    });
    output::print(&table(["key", "status", "signed in first", "reason"], rows))
}

async fn all(control: &Control) -> anyhow::Result<Vec<Account>> {
    let (mut accounts, mut after) = (Vec::new(), None);
    loop {
        let page = account::list(control.database(), after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(accounts) };
        after = Some((last.created_at, last.pubkey));
        accounts.extend(page);
    }
}

fn as_value(account: &Account) -> serde_json::Value {
    json!({
        "pubkey": account.pubkey,
        "npub": npub(&account.pubkey),
        "status": account.status.name(),
        "reason": account.reason,
        "created_at": account.created_at.0,
        "updated_at": account.updated_at.0,
    })
}

async fn show(control: &Control, key: &PublicKey) -> anyhow::Result<()> {
    let account = account::find(control.database(), key).await?;
    let ban = ban_of(control, key)?;
    if account.is_none() && ban.is_none() {
        return Err(Refused::UnknownAccount.into());
    }
    let is_served = ban.is_none() && account.as_ref().is_some_and(|account| account.status == AccountStatus::Active);
    let status = account.as_ref().map_or_else(|| "no account".to_owned(), described);
    let mut lines = vec![("npub", npub(key)), ("hex", key.to_string()), ("status", status)];
    lines.push(("ban", ban.unwrap_or_else(|| "none".to_owned())));
    if let Some(account) = account {
        lines.push(("since", moment(account.created_at)));
        lines.push(("plan", control.people().plan(key).map(|plan| plan.id).unwrap_or_default()));
        let topics = subscription::list(control.database(), key).await?;
        for topic in topics.iter().filter(|topic| topic.ended_at.is_none()) {
            let services = service_names(&topic.services).join(", ");
            let since = moment(topic.started_at);
            let paused = if is_served { "" } else { "; paused" };
            lines.push(("topic", format!("{} ({services}), since {since}{paused}", topic.topic)));
        }
        let pending = request::list(control.database(), Some(key), Some(RequestStatus::Pending), None, PAGE).await?;
        lines.extend(pending.iter().map(|request| ("request", format!("{} for {}", request.id, request.topic))));
    }
    output::print(&fields(&lines))
}

fn described(account: &Account) -> String {
    match &account.reason {
        Some(reason) => format!("{}: {}", account.status.name(), one_line(reason)),
        None => account.status.name().to_owned(),
    }
}

/// The ban of a key, also if it outlived the account.
fn ban_of(control: &Control, key: &PublicKey) -> anyhow::Result<Option<String>> {
    let (people, now) = (control.people(), now());
    let pseudonyms = control.secrets().pseudonyms(key);
    match people.check_ban(key, now).and_then(|()| people.check_nameless_bans(&pseudonyms, now)) {
        Ok(()) => Ok(None),
        Err(Refused::Banned { reason, until }) => {
            Ok(Some(format!("banned {}: {}", end_of_ban(until), one_line(&reason))))
        }
        Err(refused) => Err(refused.into()),
    }
}
