//! `GET /v1/me`: the caller's account, plan and use of it.

use std::sync::Arc;

use axum::{Json, extract::State};
use kukuri_control::{
    Refused, account,
    metric::{Metric, Window},
    plan::Plan,
    subscription, usage,
};
use kukuri_domain::{PublicKey, nip19::npub};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{ApiState, credentials::Caller, error::Error};

#[derive(Serialize, ToSchema)]
pub(crate) struct OwnAccount {
    #[schema(value_type = String)]
    pubkey: PublicKey,
    npub: String,
    /// `active`
    status: &'static str,
    plan: OwnPlan,
    usage: Vec<Usage>,
    /// When the account was made.
    created_at: u64,
}

#[derive(Serialize, ToSchema)]
struct OwnPlan {
    plan_id: String,
    name: String,
    /// What is not listed is unlimited.
    limits: Vec<PlanLimit>,
}

#[derive(Serialize, ToSchema)]
struct PlanLimit {
    metric: &'static str,
    /// `day`: counted in a UTC day. `level`: what there is at a time.
    window: &'static str,
    limit: u64,
}

#[derive(Serialize, ToSchema)]
struct Usage {
    metric: &'static str,
    count: u64,
    /// None: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// When counting starts again at 0; none for a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_at: Option<u64>,
}

impl From<&Plan> for OwnPlan {
    fn from(plan: &Plan) -> Self {
        let limit = |(metric, limit): (&Metric, &u64)| PlanLimit {
            metric: metric.name(),
            window: metric.window().name(),
            limit: *limit,
        };
        Self { plan_id: plan.id.clone(), name: plan.name.clone(), limits: plan.limits.iter().map(limit).collect() }
    }
}

/// The caller's account, its plan, and what was used of it today.
#[utoipa::path(get, path = "/v1/me", responses((status = 200, description = "The account.", body = OwnAccount)))]
pub(crate) async fn read_account(
    State(api): State<Arc<ApiState>>,
    Caller(pubkey): Caller,
) -> Result<Json<OwnAccount>, Error> {
    let (database, now) = (api.control.database(), api.now());
    let account = account::find(database, &pubkey).await?.ok_or(Refused::UnknownAccount)?;
    let plan = api.control.people().plan(&pubkey).ok_or(Error::Internal)?;
    let used = usage::of_day(database, &pubkey, now).await?;
    let subscriptions = subscription::list(database, &pubkey).await?;
    let topics = subscriptions.iter().filter(|subscription| subscription.ended_at.is_none()).count();
    let usage = Metric::ALL.into_iter().map(|metric| {
        let is_level = metric.window() == Window::Level;
        Usage {
            metric: metric.name(),
            count: if is_level { topics as u64 } else { used.get(&metric).copied().unwrap_or_default() },
            limit: plan.limits.get(&metric).copied(),
            reset_at: (!is_level).then(|| usage::reset_at(now).0),
        }
    });
    Ok(Json(OwnAccount {
        pubkey,
        npub: npub(&pubkey),
        status: account.status.name(),
        plan: OwnPlan::from(&plan),
        usage: usage.collect(),
        created_at: account.created_at.0,
    }))
}
