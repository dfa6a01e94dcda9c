//! Refuses events while the disk is short of free space (P-6) or the outbox consumers are behind (O-9). The capacity of the
//! store itself is checked by the store, and the authors of requests by `intake`: policies read no database.

use std::sync::Arc;

use kukuri_domain::{
    Refusal,
    admission::Screened,
    capacity::{self, Load, Stage},
};

use super::{Client, Context, Policy};
use crate::{
    backlog::Backlog,
    disk::{DiskLevel, DiskWatch},
    refused::PublishRefused,
    topics::Topics,
};

pub(super) struct CapacityPolicy {
    pub(super) topics: Arc<Topics>,
    pub(super) disk: Arc<DiskWatch>,
    pub(super) backlog: Arc<Backlog>,
}

impl Policy for CapacityPolicy {
    fn check_new_event(&self, _: &Context<'_>, screened: &Screened, _: Option<&Client>) -> Result<(), PublishRefused> {
        let (disk, lag) = (self.disk.level(), self.backlog.level());
        let stage = disk.stage().max(lag.stage());
        let node = Load { stage, is_disk_full: disk == DiskLevel::Full, ..Load::default() };
        if node == Load::default() {
            return Ok(());
        }
        let loads: Vec<_> = screened.topics().iter().map(|topic| self.topics.load(topic)).collect();
        match capacity::refuse(screened.event().kind, screened.source(), node, &loads) {
            None => Ok(()),
            Some(Refusal::LiveOnly) if disk.stage() == Stage::Open => Err(PublishRefused::Behind),
            Some(refusal) => Err(refusal.into()),
        }
    }
}
