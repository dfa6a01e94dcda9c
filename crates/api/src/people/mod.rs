//! The API of people: how they sign in, what they agreed to, what they asked for. Everything here is about the caller alone.
//!
//! - [`sign_in`]: challenge, answer, the end of a session. [`invites`]: an account by an invite.
//! - [`me`]: the account, its plan and what was used of it.
//! - [`personal_data`]: an export of everything, the deletion of the account.
//! - [`policies`]: texts to read. [`consents`]: which of them were accepted.
//! - [`topic_requests`]: asking for a topic. [`topic_subscriptions`]: the topics that were granted.

pub(crate) mod consents;
pub(crate) mod invites;
pub(crate) mod me;
pub(crate) mod personal_data;
pub(crate) mod policies;
pub(crate) mod sign_in;
pub(crate) mod topic_requests;
pub(crate) mod topic_subscriptions;

use kukuri_control::request::Service;
use serde::Serialize;
use utoipa::ToSchema;

/// That something has ended.
#[derive(Serialize, ToSchema)]
pub(crate) struct Ended {
    status: EndedStatus,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum EndedStatus {
    Ended,
}

impl Ended {
    const NOW: Self = Self { status: EndedStatus::Ended };
}

fn names_of(services: &[Service]) -> Vec<&'static str> {
    services.iter().map(|service| service.name()).collect()
}
