//! Requests for topics: approved and rejected.

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    request::{self, RequestLimits, RequestStatus, TopicRequest},
};

/// Approves a pending request: the person subscribes to the topic.
#[derive(Clone, Debug)]
pub struct ApproveRequest {
    /// The request's id.
    pub id: String,
    /// What the person is told.
    pub note: Option<String>,
    /// How much the node may take in.
    pub limits: RequestLimits,
}

impl Action for ApproveRequest {
    type Done = TopicRequest;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<TopicRequest, Refused> {
        let Self { id, note, limits } = self;
        let reviewer = acting.actor.written(transaction, acting.secrets).await?;
        let (note, now) = (note.as_deref(), acting.now);
        let request = request::approve(transaction, acting.secrets, id, note, &reviewer, *limits, now).await?;
        record(transaction, acting, decision("request.approve", &request)).await?;
        Ok(request)
    }
}

/// Rejects a pending request.
#[derive(Clone, Debug)]
pub struct RejectRequest {
    /// The request's id.
    pub id: String,
    /// What the person is told.
    pub note: Option<String>,
}

impl Action for RejectRequest {
    type Done = TopicRequest;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<TopicRequest, Refused> {
        let reviewer = acting.actor.written(transaction, acting.secrets).await?;
        let request = request::reject(transaction, &self.id, self.note.as_deref(), &reviewer, acting.now).await?;
        record(transaction, acting, decision("request.reject", &request)).await?;
        Ok(request)
    }
}

fn decision(action: &'static str, request: &TopicRequest) -> Entry {
    Entry::new(action, Target::Thing("request", request.id.clone()))
        .field("status", RequestStatus::Pending.name(), request.status.name())
        .public_reason(request.review_note.as_deref())
}
