//! Exports (N-1): a person asks, a job writes an archive into the database in parts, and the person downloads it once within a day. Any
//! node on the database can do either.

use std::sync::Arc;

use async_trait::async_trait;
use kukuri_domain::{PublicKey, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::{PersonEvents, archive::Archive};
use crate::{
    Control, Refused, Result, account,
    account::AccountStatus,
    database::{Database, Row, sql},
    job::{
        self, Claim, JobError, JobStatus, NewJob,
        worker::{Clock, Handler},
    },
    secret::{self, Secrets},
};

/// Jobs that write an archive.
pub const KIND: &str = "personal-data.export";
/// Jobs that remove an archive when it has expired.
pub const REMOVE_KIND: &str = "personal-data.remove-export";
/// Exports that a person may ask for in 24 hours.
pub const MAX_A_DAY: u64 = 3;
/// Seconds for which an archive can be downloaded.
pub const DOWNLOAD_TTL: u64 = 24 * 3_600;
/// Bytes of one part of an archive, of which a download holds one in memory.
pub const PART_LEN: usize = 256 << 10;
const DAY: u64 = 24 * 3_600;
/// When a person may look again whether an export has ended.
const RUNNING_RETRY: u64 = 60;
/// Parts that one transaction removes.
const REMOVED_AT_A_TIME: u64 = 32;

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its id.
    pub id: String,
    /// The state of its job.
    pub status: JobStatus,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// Until when it can be downloaded. `None`: it is not complete.
    pub download_expires_at: Option<Timestamp>,
    /// When it was downloaded.
    pub downloaded_at: Option<Timestamp>,
    /// Bytes of the archive.
    pub bytes: Option<u64>,
}

const COLUMNS: &str = "e.export_request_id, j.status, e.created_at, e.download_expires_at, e.downloaded_at, e.bytes, e.download_token_hash";
const TABLES: &str = "cn_user.personal_data_export_requests e JOIN cn_admin.jobs j ON j.job_id = e.job_id";

impl Export {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            status: JobStatus::read(&row.get::<String>(1)?)?,
            created_at: row.get(2)?,
            download_expires_at: row.get(3)?,
            downloaded_at: row.get(4)?,
            bytes: row.get(5)?,
        })
    }
}

/// Asks for an export. Returns it with the token for its download, which is told once.
pub async fn create(
    database: &Database,
    secrets: &Secrets,
    person: &PublicKey,
    now: Timestamp,
) -> Result<(Export, String), Refused> {
    let mut transaction = database.begin().await?;
    let account = account::find_in(&mut transaction, person).await?.ok_or(Refused::UnknownAccount)?;
    if account.status == AccountStatus::Deleting {
        return Err(Refused::AccountDeleted);
    }
    let running = sql(format!(
        "SELECT 1 FROM {TABLES} WHERE e.requester_pubkey = $1 AND j.status IN ('queued', 'running') LIMIT 1"
    ));
    if transaction.fetch_first(running.bind(person)).await?.is_some() {
        return Err(Refused::TooManyExports { is_running: true, retry_after: RUNNING_RETRY });
    }
    let of_today = sql("SELECT created_at FROM cn_user.personal_data_export_requests \
         WHERE requester_pubkey = $1 AND created_at > $2 ORDER BY created_at DESC LIMIT $3");
    let of_today = of_today.bind(person).bind(now.0.saturating_sub(DAY)).bind(MAX_A_DAY);
    let of_today = transaction.fetch(of_today).await?;
    if let Some(first) = of_today.get(MAX_A_DAY as usize - 1) {
        let retry_after = (first.get::<u64>(0)? + DAY).saturating_sub(now.0);
        return Err(Refused::TooManyExports { is_running: false, retry_after });
    }
    let (token, hash) = secret::one_time_token()?;
    let id = Uuid::new_v4().to_string();
    let job = NewJob {
        kind: KIND,
        subject: Some(secrets.pseudonym(person)?),
        parameters: json!({ "export_request_id": id, "pubkey": person }),
        run_at: now,
    };
    let job = job::enqueue(&mut transaction, job, now).await?;
    let insert = sql("INSERT INTO cn_user.personal_data_export_requests \
         (export_request_id, requester_pubkey, job_id, download_token_hash, created_at) VALUES ($1, $2, $3, $4, $5)");
    transaction.execute(insert.bind(&id).bind(person).bind(job).bind(hash).bind(now)).await?;
    transaction.commit().await?;
    let status = JobStatus::Queued;
    let export = Export { id, status, created_at: now, download_expires_at: None, downloaded_at: None, bytes: None };
    Ok((export, token))
}

/// A person's export.
pub async fn find(database: &Database, person: &PublicKey, id: &str) -> Result<Option<Export>> {
    let select =
        sql(format!("SELECT {COLUMNS} FROM {TABLES} WHERE e.export_request_id = $1 AND e.requester_pubkey = $2"));
    let row = database.read_first(select.bind(id).bind(person)).await?;
    row.as_ref().map(Export::of_row).transpose()
}

/// A position in a list of exports: time and id of the last one read.
pub type ExportCursor = (Timestamp, String);

/// A page of a person's exports, the oldest first.
pub async fn list(
    database: &Database,
    person: &PublicKey,
    after: Option<ExportCursor>,
    limit: usize,
) -> Result<Vec<Export>> {
    let (since, last) = after.unwrap_or_default();
    let select = sql(format!(
        "SELECT {COLUMNS} FROM {TABLES} WHERE e.requester_pubkey = $1 AND (e.created_at, e.export_request_id) > ($2, $3) \
         ORDER BY e.created_at, e.export_request_id LIMIT $4"
    ));
    let rows = database.read(select.bind(person).bind(since).bind(last).bind(limit as u64)).await?;
    rows.iter().map(Export::of_row).collect()
}

/// Begins the one download of an export, with its token. Returns the bytes of the archive.
pub async fn begin_download(database: &Database, id: &str, token: &str, now: Timestamp) -> Result<u64, Refused> {
    let hash = secret::hash_of_token(token);
    let update =
        sql("UPDATE cn_user.personal_data_export_requests SET downloaded_at = $3 WHERE export_request_id = $1 \
         AND download_token_hash = $2 AND downloaded_at IS NULL AND download_expires_at > $3 RETURNING bytes");
    if let Some(row) = database.change(update.bind(id).bind(&hash).bind(now)).await?.first() {
        return Ok(row.get(0)?);
    }
    let select =
        sql(format!("SELECT {COLUMNS} FROM {TABLES} WHERE e.export_request_id = $1 AND e.download_token_hash = $2"));
    let row = database.read_first(select.bind(id).bind(&hash)).await?.ok_or(Refused::UnknownExport)?;
    let export = Export::of_row(&row)?;
    match export.download_expires_at {
        Some(_) => Err(Refused::DownloadExpired),
        None => Err(Refused::InvalidState(format!("the export is {}, not completed", export.status))),
    }
}

/// A part of an archive. `None`: there are no more.
pub async fn read_part(database: &Database, id: &str, part: u64) -> Result<Option<Vec<u8>>> {
    let select =
        sql("SELECT content FROM cn_user.personal_data_export_parts WHERE export_request_id = $1 AND part = $2");
    database.read_first(select.bind(id).bind(part)).await?.map(|row| row.get(0)).transpose()
}

/// Removes an archive, after it was downloaded.
pub async fn remove_parts(database: &Database, id: &str) -> Result<()> {
    loop {
        let mut transaction = database.begin().await?;
        let is_done = remove_some_parts(&mut transaction, id).await?;
        transaction.commit().await?;
        if is_done {
            return Ok(());
        }
    }
}

/// One bounded step of removing an archive. Returns whether nothing is left.
async fn remove_some_parts(transaction: &mut crate::Transaction, id: &str) -> Result<bool> {
    let delete = sql("DELETE FROM cn_user.personal_data_export_parts WHERE export_request_id = $1 AND part IN \
         (SELECT part FROM cn_user.personal_data_export_parts WHERE export_request_id = $1 ORDER BY part LIMIT $2) RETURNING part");
    let removed = transaction.fetch(delete.bind(id).bind(REMOVED_AT_A_TIME)).await?;
    Ok((removed.len() as u64) < REMOVED_AT_A_TIME)
}

/// Writes archives.
pub struct ExportHandler {
    /// The control plane.
    pub control: Arc<Control>,
    /// The events.
    pub events: Arc<dyn PersonEvents>,
}

#[async_trait]
impl Handler for ExportHandler {
    async fn run(&self, claim: &Claim, clock: &Clock) -> Result<(), JobError> {
        let database = self.control.database();
        let key = claim.job.parameter("pubkey").ok().and_then(|key| PublicKey::from_hex(key).ok());
        // The account was deleted since, and an operator has the job tried again.
        let Some(person) = key else { return Ok(()) };
        let id = claim.job.parameter("export_request_id")?;
        // An attempt that broke off has left parts.
        remove(claim, database, id).await?;
        let mut parts = PartWriter { claim, database, id, next: 0, bytes: 0 };
        let mut archive = Archive::new(&self.control, &*self.events, person);
        while let Some(bytes) = archive.next_bytes(PART_LEN).await? {
            parts.write(bytes).await?;
        }
        let (bytes, now) = (parts.bytes, clock());
        let expires_at = Timestamp(now.0 + DOWNLOAD_TTL);
        let mut transaction = claim.begin(database).await?;
        let update = sql("UPDATE cn_user.personal_data_export_requests SET download_expires_at = $2, bytes = $3 \
             WHERE export_request_id = $1");
        transaction.execute(update.bind(id).bind(expires_at).bind(bytes)).await?;
        let removal = NewJob {
            kind: REMOVE_KIND,
            // Not about the person: it goes on when the account is deleted.
            subject: None,
            parameters: json!({ "export_request_id": id }),
            run_at: expires_at,
        };
        job::enqueue(&mut transaction, removal, now).await?;
        claim.complete_in(&mut transaction, now).await?;
        Ok(transaction.commit().await?)
    }
}

/// Removes the parts of an export, as long as the claim holds.
async fn remove(claim: &Claim, database: &Database, id: &str) -> Result<(), JobError> {
    loop {
        let mut transaction = claim.begin(database).await?;
        let is_done = remove_some_parts(&mut transaction, id).await?;
        transaction.commit().await?;
        if is_done {
            return Ok(());
        }
    }
}

/// Writes the bytes of an archive as its parts.
struct PartWriter<'j> {
    claim: &'j Claim,
    database: &'j Database,
    id: &'j str,
    next: u64,
    bytes: u64,
}

impl PartWriter<'_> {
    async fn write(&mut self, content: Vec<u8>) -> Result<(), JobError> {
        let length = content.len() as u64;
        let mut transaction = self.claim.begin(self.database).await?;
        let insert = sql(
            "INSERT INTO cn_user.personal_data_export_parts (export_request_id, part, content) VALUES ($1, $2, $3)",
        );
        transaction.execute(insert.bind(self.id).bind(self.next).bind(content)).await?;
        transaction.commit().await?;
        self.next += 1;
        self.bytes += length;
        Ok(())
    }
}

/// Removes archives that have expired.
pub struct RemoveExportHandler {
    /// The control plane.
    pub control: Arc<Control>,
}

#[async_trait]
impl Handler for RemoveExportHandler {
    async fn run(&self, claim: &Claim, _: &Clock) -> Result<(), JobError> {
        remove(claim, self.control.database(), claim.job.parameter("export_request_id")?).await
    }
}
