//! Free space on the disk of the data directory, and what the node still takes in when it is short (P-6).

use std::{
    path::Path,
    sync::atomic::{AtomicU8, Ordering},
};

use kukuri_domain::capacity::Stage;

use crate::config::Disk;

/// The level that was measured last.
#[derive(Default)]
pub(crate) struct DiskWatch(AtomicU8);

impl DiskWatch {
    pub(crate) fn level(&self) -> DiskLevel {
        DiskLevel::from_number(self.0.load(Ordering::Relaxed))
    }

    /// Measures the free space. The level holds until the next measurement.
    pub(crate) fn measure(&self, disk: Option<&Disk>) {
        let level = match disk.map(|disk| (disk, free_bytes(disk))) {
            None => DiskLevel::Open,
            Some((disk, Ok(free))) => DiskLevel::of(disk, free),
            Some((_, Err(error))) => {
                tracing::warn!(%error, "can't measure the free disk space; the last level holds");
                return;
            }
        };
        let before = DiskLevel::from_number(self.0.swap(level as u8, Ordering::Relaxed));
        let (from, to) = (before.as_str(), level.as_str());
        if level > before {
            tracing::warn!(
                from,
                to,
                "free disk space is short: fewer events are accepted; free some space or lower [capacity]"
            );
        } else if level < before {
            tracing::info!(from, to, "free disk space has grown: more events are accepted");
        }
    }
}

/// How short of free space the disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskLevel {
    /// There is enough.
    #[default]
    Open,
    /// No history is taken in.
    LiveOnly,
    /// Topics of the lowest priority refuse.
    Shedding,
    /// Only deletion and vanish events (kinds 5, 62) of authors with another event here are taken in.
    Full,
}

impl DiskLevel {
    const ALL: [Self; 4] = [Self::Open, Self::LiveOnly, Self::Shedding, Self::Full];

    /// The word for it in `/healthz`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::LiveOnly => "live_only",
            Self::Shedding => "shedding",
            Self::Full => "full",
        }
    }

    fn of(disk: &Disk, free: u64) -> Self {
        let limits = [disk.live_only, disk.shedding, disk.full];
        Self::from_number(limits.iter().filter(|limit| free < **limit).count() as u8)
    }

    fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The capacity stage it amounts to. A full disk purges nothing: the store's file would not shrink.
    pub fn stage(self) -> Stage {
        match self {
            Self::Open => Stage::Open,
            Self::LiveOnly => Stage::LiveOnly,
            Self::Shedding | Self::Full => Stage::Shedding,
        }
    }
}

/// The size of the file system that holds this path, which need not exist yet. `None`: not known.
pub fn file_system_bytes(path: &Path) -> Option<u64> {
    // A relative path is in the working directory.
    let mut places = path.ancestors().map(|place| if place.as_os_str().is_empty() { Path::new(".") } else { place });
    let stat = places.find_map(|place| rustix::fs::statvfs(place).ok())?;
    Some(stat.f_blocks.saturating_mul(stat.f_frsize))
}

pub(crate) fn free_bytes(disk: &Disk) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(&disk.path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_level_begins_below_its_threshold() {
        // P-6
        let disk = Disk { path: ".".into(), live_only: 30, shedding: 20, full: 10 };
        for (free, level) in [
            (30, DiskLevel::Open),
            (29, DiskLevel::LiveOnly),
            (20, DiskLevel::LiveOnly),
            (19, DiskLevel::Shedding),
            (9, DiskLevel::Full),
            (0, DiskLevel::Full),
        ] {
            assert_eq!(DiskLevel::of(&disk, free), level, "{free}");
        }
        let free = free_bytes(&disk).unwrap();
        assert!(free > 0);
        assert!(file_system_bytes(Path::new("not/here/yet")).is_some_and(|size| size >= free));
    }
}
