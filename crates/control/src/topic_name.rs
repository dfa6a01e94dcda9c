//! Names of topics (S-8). An id is the hash of a name, so that nobody can read the name from it; a name is kept where somebody who may
//! has told it: an operator, or a member whose request was approved.

use kukuri_domain::{TopicId, topic::fold_name};

use crate::{
    Result,
    database::{Database, Row, Transaction, sql},
};

/// The most rows in one answer.
const MAX_ROWS: u64 = 1_000;

/// A topic with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedTopic {
    /// The topic.
    pub topic: TopicId,
    /// The name as it was written.
    pub name: String,
    /// The name as it is hashed (T-2).
    pub folded_name: String,
    /// People who subscribe to the topic.
    pub members: u64,
}

const COLUMNS: &str = "n.topic_id, n.name, n.folded_name, (SELECT count(*) FROM cn_user.topic_subscriptions s \
    WHERE s.topic_id = n.topic_id AND s.status = 'active')";

impl NamedTopic {
    fn of_row(row: &Row) -> Result<Self> {
        let topic = TopicId::new_unchecked(&row.get::<String>(0)?);
        Ok(Self { topic, name: row.get(1)?, folded_name: row.get(2)?, members: row.get(3)? })
    }
}

/// Keeps a name. The caller has checked that it hashes to the id. The way in which an operator writes it replaces another.
pub async fn keep(database: &Database, topic: &TopicId, name: &str) -> Result<()> {
    let insert = sql("INSERT INTO cn_user.topic_names (topic_id, name, folded_name) VALUES ($1, $2, $3) \
         ON CONFLICT (topic_id) DO UPDATE SET name = excluded.name");
    let insert = insert.bind(topic).bind(name.trim()).bind(fold_name(name));
    database.change(insert).await.map(drop)
}

/// Keeps the name of an approved request, unless one is known.
pub(crate) async fn keep_first(transaction: &mut Transaction, topic: &TopicId, name: &str) -> Result<()> {
    let insert = sql("INSERT INTO cn_user.topic_names (topic_id, name, folded_name) VALUES ($1, $2, $3) \
         ON CONFLICT (topic_id) DO NOTHING");
    transaction.execute(insert.bind(topic).bind(name.trim()).bind(fold_name(name))).await
}

/// A position in the list of names: folded name and topic of the last one read.
pub type NameCursor = (String, String);

/// Topics whose name contains a text, by name, after a position.
pub async fn list(
    database: &Database,
    containing: Option<&str>,
    after: Option<NameCursor>,
    limit: usize,
) -> Result<Vec<NamedTopic>> {
    let (name, topic) = after.unwrap_or_default();
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_user.topic_names n WHERE (n.folded_name, n.topic_id) > ($1, $2) \
         AND n.folded_name LIKE $3 ESCAPE '!' ORDER BY n.folded_name, n.topic_id LIMIT $4"
    ));
    let pattern = format!("%{}%", containing.map(pattern_of).unwrap_or_default());
    let select = select.bind(name).bind(topic).bind(pattern).bind(MAX_ROWS.min(limit as u64));
    database.read(select).await?.iter().map(NamedTopic::of_row).collect()
}

/// Topics whose name begins with a text, then those whose name contains it.
pub async fn suggest(database: &Database, text: &str, limit: usize) -> Result<Vec<NamedTopic>> {
    let select = sql(format!(
        "SELECT {COLUMNS} FROM cn_user.topic_names n WHERE n.folded_name LIKE $1 ESCAPE '!' \
         ORDER BY CASE WHEN n.folded_name LIKE $2 ESCAPE '!' THEN 0 ELSE 1 END, n.folded_name, n.topic_id LIMIT $3"
    ));
    let pattern = pattern_of(text);
    let select = select.bind(format!("%{pattern}%")).bind(format!("{pattern}%")).bind(MAX_ROWS.min(limit as u64));
    database.read(select).await?.iter().map(NamedTopic::of_row).collect()
}

/// The names of these topics, in their order.
pub async fn of_topics(database: &Database, topics: &[TopicId]) -> Result<Vec<Option<String>>> {
    let select = |topic| sql("SELECT name FROM cn_user.topic_names WHERE topic_id = $1").bind(topic);
    let found = database.read_together(topics.iter().map(select).collect()).await?;
    found.iter().map(|rows| rows.first().map(|row| row.get(0)).transpose()).collect()
}

/// A text as a part of a pattern: folded, its wildcards escaped.
fn pattern_of(text: &str) -> String {
    let mut pattern = String::new();
    for character in fold_name(text).chars() {
        if matches!(character, '!' | '%' | '_') {
            pattern.push('!');
        }
        pattern.push(character);
    }
    pattern
}
