//! Search: filling an index, asking it, and how soon a post is found that was just accepted.
//!
//! - [`posts`]: texts and words. [`filling`]: an index by itself, at growing sizes. [`fresh`]: the real binary.

mod filling;
mod fresh;
mod posts;

use kukuri_search::SearchIndex;
use kukuri_search_postgres::{PostgresIndex, PostgresIndexOptions};
use kukuri_search_tantivy::TantivyIndex;

use crate::parts::Bench;

pub(crate) async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    if bench.options.stores.search_rate > 0 {
        fresh::measure(bench).await?;
    }
    let mut indexes: Vec<(&'static str, Box<dyn SearchIndex>)> =
        vec![("embedded", Box::new(TantivyIndex::open(bench.dir.join("index"))?))];
    if let Some(url) = bench.options.database()? {
        indexes.push(("postgres", Box::new(PostgresIndex::connect(url, PostgresIndexOptions::default()).await?)));
    }
    for (name, index) in &indexes {
        filling::measure(bench, name, &**index).await?;
    }
    Ok(())
}
