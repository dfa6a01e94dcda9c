//! Secrets of the node, each with versions, and the pseudonyms made with one of them.
//!
//! A person who must not be named (in the audit log, or after the account was deleted) stands there as a pseudonym: the version
//! of the secret and an HMAC of the key with it. A new version severs what is written later from what was written before.

use std::{collections::BTreeMap, fmt};

use hmac::{Hmac, KeyInit, Mac};
use kukuri_domain::{PublicKey, Timestamp};
use sha2::Sha256;

use crate::{
    Error, Result,
    database::{Database, Transaction, sql},
};

/// Bytes of a secret.
const SECRET_LEN: usize = 32;

/// What a secret is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Signs access tokens.
    Tokens,
    /// Makes pseudonyms of persons.
    Persons,
    /// The keys of services are derived from it.
    Services,
}

impl Purpose {
    pub(crate) const ALL: [Self; 3] = [Self::Tokens, Self::Persons, Self::Services];

    const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Persons => "persons",
            Self::Services => "services",
        }
    }
}

/// A secret. It is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_LEN]);

impl Secret {
    /// The bytes.
    pub fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }

    /// An HMAC-SHA256, to be finished or compared.
    pub(crate) fn hmac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        hmac_with(&self.0, parts)
    }

    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(bytes)
    }
}

/// An HMAC-SHA256 with this key, to be finished or compared.
pub(crate) fn hmac_with(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    #[allow(clippy::expect_used, reason = "HMAC takes keys of any length")]
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    parts.iter().for_each(|part| hmac.update(part));
    hmac
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret")
    }
}

/// All versions of all secrets.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    tokens: BTreeMap<u32, Secret>,
    persons: BTreeMap<u32, Secret>,
    services: BTreeMap<u32, Secret>,
}

impl Secrets {
    /// Reads the secrets; makes those that are missing.
    pub async fn load_or_create(database: &Database, now: Timestamp) -> Result<Self> {
        let secrets = Self::load(database).await?;
        if Purpose::ALL.into_iter().all(|purpose| secrets.newest(purpose).is_ok()) {
            return Ok(secrets);
        }
        let mut transaction = database.begin().await?;
        for purpose in Purpose::ALL {
            let insert = sql("INSERT INTO cn_admin.secrets (name, version, value, created_at) VALUES ($1, 1, $2, $3) \
                 ON CONFLICT (name, version) DO NOTHING");
            transaction.execute(insert.bind(purpose.name()).bind(new_secret()?).bind(now)).await?;
        }
        transaction.commit().await?;
        Self::load(database).await
    }

    /// Reads the secrets.
    pub async fn load(database: &Database) -> Result<Self> {
        let mut secrets = Self::default();
        for row in database.read(sql("SELECT name, version, value FROM cn_admin.secrets")).await? {
            let (name, version, value): (String, u32, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let value = value.try_into().map_err(|_| Error::Damaged(format!("the secret `{name}` is not 32 bytes")))?;
            let Some(purpose) = Purpose::ALL.into_iter().find(|purpose| purpose.name() == name) else { continue };
            secrets.of_mut(purpose).insert(version, Secret(value));
        }
        Ok(secrets)
    }

    fn of_mut(&mut self, purpose: Purpose) -> &mut BTreeMap<u32, Secret> {
        match purpose {
            Purpose::Tokens => &mut self.tokens,
            Purpose::Persons => &mut self.persons,
            Purpose::Services => &mut self.services,
        }
    }

    /// All versions of a secret, the newest first.
    pub fn versions(&self, purpose: Purpose) -> impl Iterator<Item = (u32, &Secret)> {
        let versions = match purpose {
            Purpose::Tokens => &self.tokens,
            Purpose::Persons => &self.persons,
            Purpose::Services => &self.services,
        };
        versions.iter().rev().map(|(version, secret)| (*version, secret))
    }

    /// The version of a secret that is used now.
    pub fn newest(&self, purpose: Purpose) -> Result<(u32, &Secret)> {
        let newest = self.versions(purpose).next();
        newest.ok_or_else(|| Error::Damaged(format!("the secret `{}` is missing", purpose.name())))
    }

    /// The pseudonym of a person that is written now.
    pub fn pseudonym(&self, person: &PublicKey) -> Result<String> {
        let (version, secret) = self.newest(Purpose::Persons)?;
        Ok(pseudonym(version, secret, person))
    }

    /// All pseudonyms under which a person may have been written.
    pub fn pseudonyms(&self, person: &PublicKey) -> Vec<String> {
        self.versions(Purpose::Persons).map(|(version, secret)| pseudonym(version, secret, person)).collect()
    }
}

fn pseudonym(version: u32, secret: &Secret, person: &PublicKey) -> String {
    let hmac = secret.hmac(&[person.as_bytes()]).finalize().into_bytes();
    format!("{version}:{}", kukuri_domain::hex::encode(&hmac))
}

/// Makes a new version of a secret, which is used from then on.
pub async fn rotate(transaction: &mut Transaction, purpose: Purpose, now: Timestamp) -> Result<u32> {
    let newest = sql("SELECT max(version) FROM cn_admin.secrets WHERE name = $1").bind(purpose.name());
    let newest = transaction.fetch_first(newest).await?.map_or(Ok(None), |row| row.get::<Option<u32>>(0))?;
    let version = newest.unwrap_or_default() + 1;
    let insert = sql("INSERT INTO cn_admin.secrets (name, version, value, created_at) VALUES ($1, $2, $3, $4)");
    transaction.execute(insert.bind(purpose.name()).bind(version).bind(new_secret()?).bind(now)).await?;
    Ok(version)
}

/// Removes the versions of a secret before one: what was made with them is not valid any more.
pub(crate) async fn remove_before(transaction: &mut Transaction, purpose: Purpose, version: u32) -> Result<()> {
    let delete = sql("DELETE FROM cn_admin.secrets WHERE name = $1 AND version < $2");
    transaction.execute(delete.bind(purpose.name()).bind(version)).await
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::Database(format!("the system has no random bytes: {error}")))?;
    Ok(bytes)
}

/// A random token that is shown once, and its hash for the database.
pub(crate) fn one_time_token() -> Result<(String, String)> {
    let token = kukuri_domain::hex::encode(&random::<SECRET_LEN>()?);
    let hash = hash_of_token(&token);
    Ok((token, hash))
}

/// The hash of a one-time token, as the database knows it.
pub(crate) fn hash_of_token(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

fn new_secret() -> Result<Vec<u8>> {
    Ok(random::<SECRET_LEN>()?.to_vec())
}
