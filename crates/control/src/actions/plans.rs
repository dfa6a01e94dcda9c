//! Plans: their limits, and who has which.

use kukuri_domain::PublicKey;

use super::record;
use crate::{
    Refused, Transaction,
    audit::{Entry, Target},
    control::{Acting, Action},
    metric::Metric,
    plan,
};

/// Sets a limit of a plan, which is made if there is none. Answers with the limit before.
#[derive(Clone, Debug)]
pub struct SetPlanLimit {
    /// The plan's id.
    pub plan: String,
    /// The metric to limit.
    pub metric: Metric,
    /// The limit. `None`: unlimited.
    pub limit: Option<u64>,
}

impl Action for SetPlanLimit {
    type Done = Option<u64>;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<Option<u64>, Refused> {
        let Self { plan, metric, limit } = self;
        let before = plan::set_limit(transaction, plan, *metric, *limit, acting.now).await?;
        let entry = Entry::new("plan.limit", Target::Thing("plan", plan.clone())).field(metric.name(), before, *limit);
        record(transaction, acting, entry).await?;
        Ok(before)
    }
}

/// Assigns a plan to a person. Answers with the plan before.
#[derive(Clone, Debug)]
pub struct AssignPlan {
    /// The person.
    pub person: PublicKey,
    /// The plan's id.
    pub plan: String,
}

impl Action for AssignPlan {
    type Done = String;

    async fn apply(&self, transaction: &mut Transaction, acting: &Acting<'_>) -> Result<String, Refused> {
        let before = plan::assign(transaction, &self.person, &self.plan, acting.now).await?;
        let entry = Entry::new("plan.assign", Target::Person(self.person));
        record(transaction, acting, entry.field("plan", before.as_str(), self.plan.as_str())).await?;
        Ok(before)
    }
}
