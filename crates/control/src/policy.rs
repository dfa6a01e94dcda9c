//! Policies of the node: terms, privacy, house rules (L-1). A version has texts in several languages, is a draft until it is published,
//! and never changes afterwards. Current is the version that took effect last.

use std::fmt;

use kukuri_domain::Timestamp;

use crate::{
    Error, Refused, Result,
    database::{Database, Row, Transaction, sql},
    setting,
};

/// The longest text, in bytes.
pub const MAX_CONTENT_LEN: usize = 200_000;
const MAX_VERSION_LEN: usize = 32;

/// What a policy is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyType {
    /// Terms of use.
    Terms,
    /// What is stored of people, and what for.
    Privacy,
    /// Numbered house rules, which decisions cite. They need no consent.
    Rules,
}

impl PolicyType {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Terms, Self::Privacy, Self::Rules];

    /// Its name, stable.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Terms => "terms",
            Self::Privacy => "privacy",
            Self::Rules => "rules",
        }
    }

    /// The type of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether people have to accept it.
    pub const fn needs_consent(self) -> bool {
        !matches!(self, Self::Rules)
    }
}

impl fmt::Display for PolicyType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A version of a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyVersion {
    /// The type.
    pub policy_type: PolicyType,
    /// The version.
    pub version: String,
}

/// A text of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    /// Whose text it is.
    pub of: PolicyVersion,
    /// The language: `ja`, `en`, `en-GB`.
    pub locale: String,
    /// The title.
    pub title: String,
    /// BLAKE3 of the content, in hex.
    pub content_hash: String,
    /// When the version was published. `None`: it is a draft.
    pub published_at: Option<Timestamp>,
    /// When it takes effect.
    pub effective_at: Option<Timestamp>,
}

/// The versions that concern people now: those in effect, and those that will be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// In effect now, one for each type.
    pub current: Vec<PolicyVersion>,
    /// Published, and in effect later, with the time.
    pub coming: Vec<(PolicyVersion, Timestamp)>,
}

const TEXT_COLUMNS: &str =
    "t.policy_type, t.version, t.locale, t.title, t.content_hash, p.published_at, p.effective_at";
const TEXTS: &str = "cn_admin.policy_texts t JOIN cn_admin.policies p \
    ON p.policy_type = t.policy_type AND p.version = t.version";

impl PolicyText {
    fn of_row(row: &Row) -> Result<Self> {
        Ok(Self {
            of: version_of(row)?,
            locale: row.get(2)?,
            title: row.get(3)?,
            content_hash: row.get(4)?,
            published_at: row.get(5)?,
            effective_at: row.get(6)?,
        })
    }
}

fn version_of(row: &Row) -> Result<PolicyVersion> {
    let name: String = row.get(0)?;
    let policy_type = PolicyType::of_name(&name).ok_or_else(|| Error::Damaged(format!("a policy is `{name}`")))?;
    Ok(PolicyVersion { policy_type, version: row.get(1)? })
}

impl PolicyVersion {
    /// A version, if it is written as one.
    pub fn new(policy_type: PolicyType, version: &str) -> Result<Self, Refused> {
        let is_digit = |character: char| character.is_ascii_alphanumeric() || ".-_".contains(character);
        if !(1..=MAX_VERSION_LEN).contains(&version.len()) || !version.chars().all(is_digit) {
            let reason = format!("must have 1 to {MAX_VERSION_LEN} letters, digits, dots or hyphens");
            return Err(Refused::invalid("version", reason));
        }
        Ok(Self { policy_type, version: version.to_owned() })
    }

    pub(crate) fn unknown(&self) -> Refused {
        Refused::UnknownPolicy { policy_type: self.policy_type.to_string(), version: self.version.clone() }
    }
}

/// Writes a text of a draft, or replaces it. Returns whether it is new.
pub async fn draft(
    transaction: &mut Transaction,
    of: &PolicyVersion,
    locale: &str,
    content: &str,
    now: Timestamp,
) -> Result<PolicyText, Refused> {
    let is_locale = (2..=16).contains(&locale.len())
        && locale.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && locale.bytes().take(2).all(|byte| byte.is_ascii_lowercase());
    if !is_locale {
        return Err(Refused::invalid("locale", "must be a language such as ja, en or en-GB"));
    }
    if content.trim().is_empty() || content.len() > MAX_CONTENT_LEN || content.contains('\0') {
        return Err(Refused::invalid("content", format!("must have 1 to {MAX_CONTENT_LEN} bytes of text")));
    }
    let (policy_type, version) = (of.policy_type.name(), of.version.as_str());
    let insert = sql("INSERT INTO cn_admin.policies (policy_type, version, created_at) VALUES ($1, $2, $3) \
         ON CONFLICT (policy_type, version) DO NOTHING");
    transaction.execute(insert.bind(policy_type).bind(version).bind(now)).await?;
    let select = sql("SELECT published_at FROM cn_admin.policies WHERE policy_type = $1 AND version = $2");
    let row = transaction.fetch_first(select.bind(policy_type).bind(version)).await?.ok_or_else(|| of.unknown())?;
    if row.get::<Option<Timestamp>>(0)?.is_some() {
        return Err(Refused::PolicyPublished { policy_type: policy_type.to_owned(), version: version.to_owned() });
    }
    let title = title(content).unwrap_or(policy_type).to_owned();
    let content_hash = blake3::hash(content.as_bytes()).to_hex().to_string();
    let upsert = sql(
        "INSERT INTO cn_admin.policy_texts (policy_type, version, locale, title, content_md, content_hash, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (policy_type, version, locale) DO UPDATE SET \
         title = excluded.title, content_md = excluded.content_md, content_hash = excluded.content_hash, \
         updated_at = excluded.updated_at",
    );
    let upsert = upsert.bind(policy_type).bind(version).bind(locale).bind(&title).bind(content);
    transaction.execute(upsert.bind(&content_hash).bind(now)).await?;
    let (of, locale) = (of.clone(), locale.to_owned());
    Ok(PolicyText { of, locale, title, content_hash, published_at: None, effective_at: None })
}

/// The first heading of a Markdown text.
fn title(content: &str) -> Option<&str> {
    let heading = content.lines().find_map(|line| line.strip_prefix("# "))?.trim();
    Some(heading).filter(|heading| !heading.is_empty())
}

/// Publishes a draft, to take effect at a time that is not past.
pub async fn publish(
    transaction: &mut Transaction,
    of: &PolicyVersion,
    effective_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Timestamp, Refused> {
    let effective_at = effective_at.unwrap_or(now);
    if effective_at < now {
        return Err(Refused::invalid("effective", "a policy can't take effect in the past"));
    }
    let (policy_type, version) = (of.policy_type.name(), of.version.as_str());
    let update = sql("UPDATE cn_admin.policies SET published_at = $3, effective_at = $4 \
         WHERE policy_type = $1 AND version = $2 AND published_at IS NULL RETURNING 1");
    let update = update.bind(policy_type).bind(version).bind(now).bind(effective_at);
    if transaction.fetch_first(update).await?.is_none() {
        let select = sql("SELECT 1 FROM cn_admin.policies WHERE policy_type = $1 AND version = $2");
        let known = transaction.fetch_first(select.bind(policy_type).bind(version)).await?;
        let (policy_type, version) = (policy_type.to_owned(), version.to_owned());
        return Err(if known.is_some() { Refused::PolicyPublished { policy_type, version } } else { of.unknown() });
    }
    setting::touch_shared(transaction).await?;
    Ok(effective_at)
}

/// All texts, without their contents, the newest version of each type first.
pub async fn list(database: &Database) -> Result<Vec<PolicyText>> {
    let select = format!(
        "SELECT {TEXT_COLUMNS} FROM {TEXTS} ORDER BY t.policy_type, p.created_at DESC, t.version DESC, t.locale"
    );
    database.read(sql(select)).await?.iter().map(PolicyText::of_row).collect()
}

/// A text and its content. Without a locale, or with one that the version does not have: the closest.
pub async fn read(
    database: &Database,
    of: &PolicyVersion,
    locale: Option<&str>,
) -> Result<Option<(PolicyText, String)>> {
    let select = format!(
        "SELECT {TEXT_COLUMNS}, t.content_md FROM {TEXTS} WHERE t.policy_type = $1 AND t.version = $2 ORDER BY t.locale"
    );
    let rows = database.read(sql(select).bind(of.policy_type.name()).bind(of.version.as_str())).await?;
    let texts = rows.iter().map(|row| Ok((PolicyText::of_row(row)?, row.get(7)?)));
    let texts: Vec<(PolicyText, String)> = texts.collect::<Result<_>>()?;
    let wanted = locale.unwrap_or("ja");
    let language = wanted.split('-').next().unwrap_or(wanted);
    let is_same = |locale: &str| locale == wanted;
    let is_close = |locale: &str| locale.split('-').next() == Some(language);
    let position = |fits: &dyn Fn(&str) -> bool| texts.iter().position(|(text, _)| fits(&text.locale));
    let found = position(&is_same).or_else(|| position(&is_close)).or((!texts.is_empty()).then_some(0));
    Ok(found.and_then(|found| texts.into_iter().nth(found)))
}

/// The versions that are in effect, and those that will be.
pub async fn published(database: &Database, now: Timestamp) -> Result<Published> {
    Ok(split(all_published(database).await?, now))
}

/// All published versions with the time of their effect, in that order.
pub(crate) async fn all_published(database: &Database) -> Result<Vec<(PolicyVersion, Timestamp)>> {
    let select =
        sql("SELECT policy_type, version, effective_at FROM cn_admin.policies WHERE published_at IS NOT NULL \
         ORDER BY effective_at, published_at, version");
    database.read(select).await?.iter().map(|row| Ok((version_of(row)?, row.get(2)?))).collect()
}

/// Which of all published versions are in effect, and which will be: of each type the last one in effect.
pub(crate) fn split(all: impl IntoIterator<Item = (PolicyVersion, Timestamp)>, now: Timestamp) -> Published {
    let mut published = Published::default();
    for (version, effective_at) in all {
        if effective_at > now {
            published.coming.push((version, effective_at));
        } else {
            published.current.retain(|current| current.policy_type != version.policy_type);
            published.current.push(version);
        }
    }
    published
}

/// The texts of the versions that are in effect, in all languages.
pub async fn current_texts(database: &Database, now: Timestamp) -> Result<Vec<PolicyText>> {
    let current = published(database, now).await?.current;
    let texts = list(database).await?;
    Ok(texts.into_iter().filter(|text| current.contains(&text.of)).collect())
}
