//! Access tokens: JWT with HS256, short-lived. A token proves a key and nothing else; account, consents and plan are looked
//! at on each call.
//!
//! Only one header is written or taken, and compared as text, so that no token can name another algorithm.

use data_encoding::BASE64URL_NOPAD;
use hmac::Mac;
use kukuri_domain::{PublicKey, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Refused, Result,
    database::{Database, sql},
    secret::{Purpose, Secrets},
};

/// Seconds that a token is valid.
pub const TOKEN_TTL: u64 = 900;
const AUDIENCE: &str = "kukuri-community-node:user-api";
/// Longer texts are no tokens of ours.
const MAX_TOKEN_LEN: usize = 1_024;

/// A new token.
#[derive(Clone, Debug)]
pub struct Token {
    /// What the client sends.
    pub text: String,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// What a valid token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// The person.
    pub sub: PublicKey,
    /// When it was made.
    pub iat: u64,
    /// When it expires.
    pub exp: u64,
    /// Its id.
    pub jti: String,
    aud: String,
    iss: String,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    typ: String,
    /// The version of the secret.
    kid: String,
}

impl Header {
    fn of(version: u32) -> Self {
        Self { alg: "HS256".to_owned(), typ: "JWT".to_owned(), kid: version.to_string() }
    }
}

/// Makes a token for a person.
pub fn issue(secrets: &Secrets, public_url: &str, person: &PublicKey, now: Timestamp) -> Result<Token> {
    let (version, secret) = secrets.newest(Purpose::Tokens)?;
    let expires_at = Timestamp(now.0 + TOKEN_TTL);
    let claims = Claims {
        sub: *person,
        iat: now.0,
        exp: expires_at.0,
        jti: Uuid::new_v4().to_string(),
        aud: AUDIENCE.to_owned(),
        iss: public_url.to_owned(),
    };
    let signed = format!("{}.{}", part(&Header::of(version)), part(&claims));
    let mac = secret.hmac(&[signed.as_bytes()]).finalize().into_bytes();
    Ok(Token { text: format!("{signed}.{}", BASE64URL_NOPAD.encode(&mac)), expires_at })
}

/// Checks a token. Whether it was ended, and whether the person is served, is for [`crate::people`] to say.
pub fn check(secrets: &Secrets, public_url: &str, text: &str, now: Timestamp) -> Result<Claims, Refused> {
    let failed = || Refused::AuthFailed;
    if text.len() > MAX_TOKEN_LEN {
        return Err(failed());
    }
    let (signed, mac) = text.rsplit_once('.').ok_or_else(failed)?;
    let (header, claims) = signed.split_once('.').ok_or_else(failed)?;
    let known = secrets.versions(Purpose::Tokens).find(|(version, _)| part(&Header::of(*version)) == header);
    let (_, secret) = known.ok_or_else(failed)?;
    let mac = BASE64URL_NOPAD.decode(mac.as_bytes()).map_err(|_| failed())?;
    // In constant time.
    secret.hmac(&[signed.as_bytes()]).verify_slice(&mac).map_err(|_| failed())?;
    let claims = BASE64URL_NOPAD.decode(claims.as_bytes()).map_err(|_| failed())?;
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| failed())?;
    let is_valid = claims.aud == AUDIENCE && claims.iss == public_url && claims.exp > now.0;
    if is_valid { Ok(claims) } else { Err(failed()) }
}

/// Ends a token before it expires. Those that have expired are forgotten.
pub async fn end(database: &Database, claims: &Claims, now: Timestamp) -> Result<()> {
    let mut transaction = database.begin().await?;
    transaction.execute(sql("DELETE FROM cn_user.ended_tokens WHERE expires_at <= $1").bind(now)).await?;
    let insert = sql(
        "INSERT INTO cn_user.ended_tokens (jti, expires_at, revision) VALUES ($1, $2, $3) ON CONFLICT (jti) DO NOTHING",
    );
    let revision = transaction.revision();
    transaction.execute(insert.bind(&claims.jti).bind(claims.exp).bind(revision)).await?;
    transaction.commit().await
}

fn part(content: &impl Serialize) -> String {
    // Texts and numbers are JSON.
    BASE64URL_NOPAD.encode(&serde_json::to_vec(content).unwrap_or_default())
}
