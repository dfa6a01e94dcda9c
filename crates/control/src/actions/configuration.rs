//! The configuration: keys that are set while the node runs (K-7).

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    setting,
};

/// Sets keys of the configuration, or removes them, so that the layers below and above count. The caller knows the keys, and has
/// checked the values.
#[derive(Clone, Debug)]
pub struct Configure {
    /// The action's name in the audit log: `auth.require`.
    pub action: &'static str,
    /// Keys, each with its value as TOML; `None` removes it.
    pub values: Vec<(String, Option<String>)>,
}

impl Action for Configure {
    type Done = ();

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<(), Refused> {
        let section = self.values.first().map(|(key, _)| key.split('.').next().unwrap_or(key)).unwrap_or_default();
        let mut entry = Entry::new(self.action, Target::Thing("configuration", section.to_owned()));
        for (key, value) in &self.values {
            let before = setting::set_key(transaction, key, value.as_deref(), acting.now).await?;
            entry = entry.field(key, before, value.clone());
        }
        record(transaction, acting, entry).await
    }
}
