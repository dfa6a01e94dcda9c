//! Rules that involve several keys.

use kukuri_domain::retention::RetentionError;

use super::{ConfigError, IndexPlace, Loaded, StorePlace};

/// A list of nodes is answered as a whole (U-4).
const MAX_KNOWN_NODES: usize = 500;

pub(crate) fn check(loaded: Loaded) -> Result<Loaded, ConfigError> {
    let settings = &loaded.settings;
    if settings.topics.network.is_empty() {
        return Err(loaded.reject("topics.network", "must not be empty"));
    }
    let capacity = &settings.capacity;
    let live_only = ("capacity.live_only", capacity.live_only);
    let purging = ("capacity.purging", capacity.purging);
    loaded.require_ascending(&[live_only, ("capacity.shedding", capacity.shedding), purging])?;
    loaded.require_ascending(&[("capacity.purge_to", capacity.purge_to), purging])?;
    loaded.require_ascending(&[("capacity.leave_below", capacity.leave_below), live_only])?;
    let disk = &settings.disk;
    loaded.require_ascending(&[
        ("disk.full", disk.full),
        ("disk.shedding", disk.shedding),
        ("disk.live_only", disk.live_only),
    ])?;
    let backlog = &settings.backlog;
    loaded.require_ascending(&[
        ("backlog.live_only", backlog.live_only),
        ("backlog.shedding", backlog.shedding),
        ("backlog.cutting", backlog.cutting),
    ])?;
    let clock = &settings.clock;
    loaded.require_ascending(&[("clock.max_jump", clock.max_jump), ("clock.confirm_after", clock.confirm_after)])?;
    match (settings.search.index, settings.store_place()) {
        (Some(IndexPlace::Embedded), StorePlace::Postgres(_)) => {
            return Err(loaded.reject("search.index", "must be postgres or off with a store on Postgres"));
        }
        (Some(IndexPlace::Postgres), StorePlace::Lmdb(_)) => {
            return Err(loaded.reject("search.index", "must be embedded or off with an embedded store"));
        }
        _ => {}
    }
    if settings.bootstrap.known.len() > MAX_KNOWN_NODES {
        return Err(loaded.reject("bootstrap.known", format!("must have at most {MAX_KNOWN_NODES} keys")));
    }
    check_retention(&loaded)?;
    Ok(loaded)
}

fn check_retention(loaded: &Loaded) -> Result<(), ConfigError> {
    let Err(error) = loaded.settings.retention().validate([]) else { return Ok(()) };
    let too_short = match error {
        RetentionError::DedupeTooShort => "retention.dedupe",
        RetentionError::RequestsTooShort => "retention.requests",
    };
    // The error names the key from the highest layer, which the operator set last.
    let for_events = ["retention.regular", "retention.current", "retention.replaced"];
    let is_higher = |key: &str, than: &str| loaded.layer(key) > loaded.layer(than);
    let named = for_events.into_iter().fold(too_short, |named, key| if is_higher(key, named) { key } else { named });
    let why = error.to_string();
    let why = why.strip_prefix(named).map(|rest| rest.trim_start().to_owned()).unwrap_or(why);
    Err(loaded.reject(named, why))
}
