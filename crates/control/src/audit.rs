//! The audit log (K-2): every change that an operator makes, written in the transaction of the change. Rows are never changed.
//!
//! Persons stand in it as pseudonyms. A table beside it resolves them, and loses its row when the account is deleted.

use kukuri_domain::{PublicKey, Timestamp};
use serde_json::{Map, Value as Json, json};

use crate::{
    Result,
    database::{Database, Row, Transaction, sql},
    secret::Secrets,
};

/// Through what a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The command line.
    Command,
    /// The console.
    Console,
    /// The admin API.
    Api,
    /// The relay management API (NIP-86).
    Nip86,
    /// The node itself.
    System,
}

/// What an actor may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looks.
    Viewer,
    /// Reviews and moderates.
    Moderator,
    /// Everything.
    Owner,
}

/// The actor of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// Its key. `None`: whoever has a shell on the node's machine, or the node.
    pub key: Option<PublicKey>,
    /// Its role.
    pub role: Role,
    /// Through what it acts.
    pub door: Door,
    /// The request, if it came by HTTP.
    pub request_id: Option<String>,
}

impl Actor {
    /// Somebody with a shell on the node's machine.
    pub const fn command() -> Self {
        Self { key: None, role: Role::Owner, door: Door::Command, request_id: None }
    }

    /// The node itself.
    pub const fn system() -> Self {
        Self { key: None, role: Role::Owner, door: Door::System, request_id: None }
    }

    /// How the actor is written: its pseudonym, or the door.
    pub(crate) async fn written(&self, transaction: &mut Transaction, secrets: &Secrets) -> Result<String> {
        match &self.key {
            Some(key) => Target::Person(*key).written(transaction, secrets).await,
            None => Ok(self.door.name().to_owned()),
        }
    }
}

impl Door {
    const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Console => "console",
            Self::Api => "api",
            Self::Nip86 => "nip86",
            Self::System => "system",
        }
    }
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Moderator => "moderator",
            Self::Owner => "owner",
        }
    }
}

/// What is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A person.
    Person(PublicKey),
    /// Something else, by its kind and name: `plan:free`.
    Thing(&'static str, String),
}

impl Target {
    async fn written(&self, transaction: &mut Transaction, secrets: &Secrets) -> Result<String> {
        match self {
            Self::Thing(kind, name) => Ok(format!("{kind}:{name}")),
            Self::Person(key) => {
                let pseudonym = secrets.pseudonym(key)?;
                let insert = sql(
                    "INSERT INTO cn_admin.persons (pseudonym, pubkey) VALUES ($1, $2) ON CONFLICT (pseudonym) DO NOTHING",
                );
                transaction.execute(insert.bind(&pseudonym).bind(key)).await?;
                Ok(format!("person:{pseudonym}"))
            }
        }
    }
}

/// What an audit row tells, besides actor and time.
#[derive(Clone, Debug)]
pub struct Entry {
    action: &'static str,
    target: Target,
    diff: Map<String, Json>,
    public_reason: Option<String>,
    private_note: Option<String>,
}

impl Entry {
    /// An action on a target.
    pub fn new(action: &'static str, target: Target) -> Self {
        Self { action, target, diff: Map::new(), public_reason: None, private_note: None }
    }

    /// A field before and after. No secrets, no contents, no keys of persons.
    pub fn field(mut self, name: &str, before: impl Into<Json>, after: impl Into<Json>) -> Self {
        let (before, after) = (before.into(), after.into());
        if before != after {
            self.diff.insert(name.to_owned(), json!([before, after]));
        }
        self
    }

    /// What the persons concerned are told.
    pub fn public_reason(mut self, reason: Option<&str>) -> Self {
        self.public_reason = reason.map(str::to_owned);
        self
    }
}

/// Writes a row.
pub async fn record(
    transaction: &mut Transaction,
    secrets: &Secrets,
    actor: &Actor,
    entry: Entry,
    now: Timestamp,
) -> Result<()> {
    let target = entry.target.written(transaction, secrets).await?;
    let name = actor.written(transaction, secrets).await?;
    // Transactions come one after the other, so no number is given twice.
    let insert = sql(
        "INSERT INTO cn_admin.audit_logs (audit_id, created_at, actor, role, door, action, target, diff_json, \
         public_reason, private_note, request_id) \
         VALUES ((SELECT coalesce(max(audit_id), 0) + 1 FROM cn_admin.audit_logs), $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    );
    let insert = insert.bind(now).bind(name).bind(actor.role.name()).bind(actor.door.name()).bind(entry.action);
    let insert = insert.bind(target).bind(Json::Object(entry.diff).to_string()).bind(entry.public_reason);
    transaction.execute(insert.bind(entry.private_note).bind(actor.request_id.as_deref())).await
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number.
    pub id: u64,
    /// When.
    pub created_at: Timestamp,
    /// The actor.
    pub actor: String,
    /// The action's name.
    pub action: String,
    /// What was changed.
    pub target: String,
    /// Its key, if it is a person who is known.
    pub person: Option<PublicKey>,
    /// Fields, each with its value before and after.
    pub diff: Json,
    /// What the persons concerned were told.
    pub public_reason: Option<String>,
}

impl AuditRow {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            created_at: row.get(1)?,
            actor: row.get(2)?,
            action: row.get(3)?,
            target: row.get(4)?,
            diff: serde_json::from_str(&row.get::<String>(5)?).unwrap_or_default(),
            public_reason: row.get(6)?,
            person: row.get(7)?,
        })
    }
}

/// The newest rows before one, or of all.
pub async fn list(database: &Database, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>> {
    let select =
        sql("SELECT a.audit_id, a.created_at, a.actor, a.action, a.target, a.diff_json, a.public_reason, p.pubkey \
         FROM cn_admin.audit_logs a LEFT JOIN cn_admin.persons p ON a.target = 'person:' || p.pseudonym \
         WHERE a.audit_id < $1 ORDER BY a.audit_id DESC LIMIT $2");
    let rows = database.read(select.bind(before.unwrap_or(u64::MAX)).bind(limit as u64)).await?;
    rows.iter().map(AuditRow::of_row).collect()
}
