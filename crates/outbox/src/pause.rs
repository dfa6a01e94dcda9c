//! The pause flag of a consumer, in the store: it survives restarts and holds for every process on the store.
//!
//! A store keeps offsets by name, so the flag is the offset of a reserved name. Its time is when the pause began; 0: resumed.

use kukuri_domain::Millis;
use kukuri_store::{ConsumerOffset, Result, Seq, Store};

const SUFFIX: &str = "/paused";

/// Sets the flag, or with `None` clears it. A consumer that runs in another process sees it within a third of its lease.
pub async fn set_paused(store: &dyn Store, consumer: &str, since: Option<Millis>) -> Result<()> {
    store.set_offset(&format!("{consumer}{SUFFIX}"), Seq(0), since.unwrap_or(Millis(0))).await
}

/// When the pause of a consumer began; `None`: it is not paused.
pub fn paused_since(offsets: &[ConsumerOffset], consumer: &str) -> Option<Millis> {
    let is_flag = |offset: &&ConsumerOffset| offset.consumer.strip_suffix(SUFFIX) == Some(consumer);
    offsets.iter().find(is_flag).map(|flag| flag.updated_at).filter(|since| *since > Millis(0))
}

/// Whether a stored offset is a pause flag, not the offset of a consumer.
pub fn is_pause_flag(offset: &ConsumerOffset) -> bool {
    offset.consumer.ends_with(SUFFIX)
}
