//! What must hold beyond each value by itself: bounds, and the order of values that belong together.

use kukuri_domain::retention::RetentionError;

use super::{
    ConfigError, IndexPlace, Loaded, StorePlace,
    section::Section,
    value::{Setting, bare},
};

pub(crate) fn check(loaded: &Loaded) -> Result<(), ConfigError> {
    let settings = &loaded.settings;
    if let Some((key, allowed)) = settings.out_of_bounds() {
        return Err(wrong(loaded, key, format!("must be {allowed}")));
    }
    if settings.topics.network.is_empty() {
        return Err(wrong(loaded, "topics.network", "must not be empty".to_owned()));
    }
    let capacity = &settings.capacity;
    ascending(loaded, [("capacity.live_only", capacity.live_only), ("capacity.shedding", capacity.shedding)])?;
    ascending(loaded, [("capacity.shedding", capacity.shedding), ("capacity.purging", capacity.purging)])?;
    ascending(loaded, [("capacity.purge_to", capacity.purge_to), ("capacity.purging", capacity.purging)])?;
    ascending(loaded, [("capacity.leave_below", capacity.leave_below), ("capacity.live_only", capacity.live_only)])?;
    let disk = &settings.disk;
    ascending(loaded, [("disk.full", disk.full), ("disk.shedding", disk.shedding)])?;
    ascending(loaded, [("disk.shedding", disk.shedding), ("disk.live_only", disk.live_only)])?;
    let backlog = &settings.backlog;
    ascending(loaded, [("backlog.live_only", backlog.live_only), ("backlog.shedding", backlog.shedding)])?;
    ascending(loaded, [("backlog.shedding", backlog.shedding), ("backlog.cutting", backlog.cutting)])?;
    match (settings.search.index, settings.store_place()) {
        (Some(IndexPlace::Embedded), StorePlace::Postgres(_)) => {
            return Err(wrong(loaded, "search.index", "must be postgres or off with a store on Postgres".to_owned()));
        }
        (Some(IndexPlace::Postgres), StorePlace::Lmdb(_)) => {
            return Err(wrong(loaded, "search.index", "must be embedded or off with an embedded store".to_owned()));
        }
        _ => {}
    }
    retention(loaded)
}

/// The first must be less than the second. Whichever was set further from the defaults is blamed.
fn ascending<T: Setting + PartialOrd>(loaded: &Loaded, [low, high]: [(&str, T); 2]) -> Result<(), ConfigError> {
    if low.1 < high.1 {
        return Ok(());
    }
    let text = |value: &T| value.show().map(|value| bare(&value)).unwrap_or_default();
    if loaded.source(high.0) > loaded.source(low.0) {
        return Err(wrong(loaded, high.0, format!("must be more than {} ({})", low.0, text(&low.1))));
    }
    Err(wrong(loaded, low.0, format!("must be less than {} ({})", high.0, text(&high.1))))
}

fn retention(loaded: &Loaded) -> Result<(), ConfigError> {
    let Err(error) = loaded.settings.retention().validate([]) else { return Ok(()) };
    let memory = match error {
        RetentionError::DedupeTooShort => "retention.dedupe",
        RetentionError::RequestsTooShort => "retention.requests",
    };
    // Blamed is what was set; if the memory was not, then a time for events was.
    let events = ["retention.regular", "retention.current", "retention.replaced"];
    let blamed = events.into_iter().fold(
        memory,
        |blamed, key| {
            if loaded.source(key) > loaded.source(blamed) { key } else { blamed }
        },
    );
    let why = error.to_string();
    let why = why.strip_prefix(blamed).map(|rest| rest.trim_start().to_owned()).unwrap_or(why);
    Err(wrong(loaded, blamed, why))
}

fn wrong(loaded: &Loaded, key: &str, why: String) -> ConfigError {
    let values = loaded.settings.values();
    let value = values.into_iter().find(|(name, _)| *name == key).and_then(|(_, value)| value);
    let value = value.map(|value| value.to_string()).unwrap_or_default();
    ConfigError::of_key(loaded.source(key), key, value, why)
}
