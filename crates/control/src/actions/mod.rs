//! Everything that an operator can change, one file for each kind of thing. A new action is a struct with its [`Action`].
//!
//! The functions of the modules beside this one do the work; an action adds who did it, in the same transaction.

mod account;
mod admission;
mod configuration;
mod invites;
mod jobs;
mod plans;
mod policies;
mod requests;
mod secrets;

pub use account::{Ban, LiftBan, SetAccountStatus};
pub use admission::{SetAdmission, SetAllowed};
pub use configuration::Configure;
pub use invites::{CreateInvite, RevokeInvite};
pub use jobs::{CancelJob, RetryJob};
pub use plans::{AssignPlan, SetPlanLimit};
pub use policies::{DraftPolicy, PublishPolicy};
pub use requests::{ApproveRequest, RejectRequest};
pub use secrets::ReplaceTokenSecret;

use crate::{
    Refused, Transaction,
    audit::{self, Entry},
    control::Acting,
};

/// Writes the audit row of an action.
async fn record(transaction: &mut Transaction, acting: &Acting<'_>, entry: Entry) -> Result<(), Refused> {
    Ok(audit::record(transaction, acting.secrets, acting.actor, entry, acting.now).await?)
}
