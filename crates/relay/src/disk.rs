//! The disk: how much is free on it, and what follows for what is taken in (P-6).

use kukuri_domain::capacity::Stage;

use crate::config::Disk;

/// How short of free space the disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DiskLevel {
    /// There is enough.
    #[default]
    Open,
    /// No history is taken in.
    LiveOnly,
    /// Topics of the lowest priority refuse.
    Shedding,
    /// Nothing but requests is taken in.
    Full,
}

impl DiskLevel {
    const ALL: [Self; 4] = [Self::Open, Self::LiveOnly, Self::Shedding, Self::Full];

    /// What follows from so many free bytes.
    pub(crate) fn of(disk: &Disk, free: u64) -> Self {
        if free < disk.full {
            Self::Full
        } else if free < disk.shedding {
            Self::Shedding
        } else if free < disk.live_only {
            Self::LiveOnly
        } else {
            Self::Open
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// The stage of P-6 that it amounts to. Nothing is purged for a full disk: a store's file does not shrink by it.
    pub(crate) fn stage(self) -> Stage {
        match self {
            Self::Open => Stage::Open,
            Self::LiveOnly => Stage::LiveOnly,
            Self::Shedding | Self::Full => Stage::Shedding,
        }
    }
}

/// The bytes that are free where the data is.
pub(crate) fn free_bytes(disk: &Disk) -> std::io::Result<u64> {
    let stat = rustix::fs::statvfs(&disk.path)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_begins_below_its_mark() {
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
        assert!(free_bytes(&disk).unwrap() > 0);
    }
}
