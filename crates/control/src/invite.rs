//! Invite codes. The database knows their hashes only.

use kukuri_domain::{Timestamp, hex};

use crate::{
    Refused, Result,
    database::{Database, Row, Transaction, sql},
    secret,
};

/// Random bytes of a code.
const CODE_LEN: usize = 16;
/// The most uses of one code.
pub const MAX_USES: u32 = 10_000;
/// The code's hash begins with these digits in lists and commands.
const ID_DIGITS: usize = 12;

/// An invite, without its code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    /// The beginning of the code's hash, which names the invite.
    pub id: String,
    /// How often it may be used.
    pub max_uses: u32,
    /// How often it was used.
    pub used_count: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it expires. `None`: never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

const COLUMNS: &str = "code_hash, max_uses, used_count, created_at, expires_at, revoked_at";

impl Invite {
    fn of_row(row: &Row) -> Result<Self> {
        let hash: String = row.get(0)?;
        Ok(Self {
            id: hash.chars().take(ID_DIGITS).collect(),
            max_uses: row.get(1)?,
            used_count: row.get(2)?,
            created_at: row.get(3)?,
            expires_at: row.get(4)?,
            revoked_at: row.get(5)?,
        })
    }
}

/// Makes an invite. Returns its code, which is shown once, and its id.
pub async fn create(
    transaction: &mut Transaction,
    max_uses: u32,
    expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(String, Invite), Refused> {
    if !(1..=MAX_USES).contains(&max_uses) {
        return Err(Refused::invalid("uses", format!("must be 1 to {MAX_USES}")));
    }
    if expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(Refused::invalid("days", "the invite would have expired already"));
    }
    let code = hex::encode(&secret::random::<CODE_LEN>()?);
    let insert = sql(format!(
        "INSERT INTO cn_user.invite_codes (code_hash, max_uses, used_count, created_at, expires_at) \
         VALUES ($1, $2, 0, $3, $4) RETURNING {COLUMNS}"
    ));
    let row = transaction.fetch_first(insert.bind(hash(&code)).bind(max_uses).bind(now).bind(expires_at)).await?;
    let row = row.ok_or(Refused::UnknownInvite)?;
    Ok((code, Invite::of_row(&row)?))
}

/// Uses an invite once, in the transaction that makes the account.
pub(crate) async fn redeem(transaction: &mut Transaction, code: &str, now: Timestamp) -> Result<(), Refused> {
    let hash = hash(code);
    let update = sql("UPDATE cn_user.invite_codes SET used_count = used_count + 1 \
         WHERE code_hash = $1 AND used_count < max_uses AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) \
         RETURNING 1");
    if transaction.fetch_first(update.bind(&hash).bind(now)).await?.is_some() {
        return Ok(());
    }
    let select = sql(format!("SELECT {COLUMNS} FROM cn_user.invite_codes WHERE code_hash = $1")).bind(&hash);
    let invite = transaction.fetch_first(select).await?.ok_or(Refused::InviteInvalid)?;
    let invite = Invite::of_row(&invite)?;
    Err(match invite {
        Invite { revoked_at: Some(_), .. } => Refused::InviteRevoked,
        Invite { used_count, max_uses, .. } if used_count >= max_uses => Refused::InviteExhausted,
        _ => Refused::InviteExpired,
    })
}

/// All invites, the newest first.
pub async fn list(database: &Database) -> Result<Vec<Invite>> {
    let select = sql(format!("SELECT {COLUMNS} FROM cn_user.invite_codes ORDER BY created_at DESC, code_hash"));
    database.read(select).await?.iter().map(Invite::of_row).collect()
}

/// Revokes an invite, named by its id, its whole hash or its code. Returns it as it was.
pub async fn revoke(transaction: &mut Transaction, name: &str, now: Timestamp) -> Result<Invite, Refused> {
    let is_id = name.len() >= ID_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit());
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_user.invite_codes WHERE code_hash = $1 OR ($2 = 1 AND substr(code_hash, 1, $3) = $4)"
    ));
    let length = name.len() as u64;
    let rows = transaction.fetch(select.bind(hash(name)).bind(is_id).bind(length).bind(name)).await?;
    let [row] = rows.as_slice() else { return Err(Refused::UnknownInvite) };
    let invite = Invite::of_row(row)?;
    if invite.revoked_at.is_some() {
        return Err(Refused::InvalidState("the invite is revoked already".to_owned()));
    }
    let update = sql("UPDATE cn_user.invite_codes SET revoked_at = $2 WHERE code_hash = $1");
    transaction.execute(update.bind(row.get::<String>(0)?).bind(now)).await?;
    Ok(invite)
}

fn hash(code: &str) -> String {
    blake3::hash(code.trim().as_bytes()).to_hex().to_string()
}
