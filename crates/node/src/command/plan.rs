//! `plan`: what people may use.

use anyhow::{anyhow, bail};
use clap::Subcommand;
use kukuri_control::{
    Control,
    actions::{AssignPlan, SetPlanLimit},
    metric::Metric,
    plan::{self, Plan},
};
use kukuri_domain::nip19::npub;
use serde_json::json;

use super::{
    people::{Lines, as_lines, named, perform, public_key},
    table::table,
};
use crate::{config::Settings, output, wiring};

const UNLIMITED: &str = "unlimited";

#[derive(Subcommand)]
pub(crate) enum PlanCommand {
    /// Lists all plans and their limits.
    List(Lines),
    /// Sets a limit of a plan. A plan that does not exist is made, without other limits.
    Set {
        /// The plan, such as free.
        plan: String,
        /// The metric to limit, such as max_topics; `plan list` names all.
        metric: String,
        /// Over what it is counted: day, or level for what there is at a time.
        window: String,
        /// A number, or unlimited.
        limit: String,
    },
    /// Assigns a plan to a person who has an account.
    Assign {
        /// The person: 64 hex digits or npub.
        key: String,
        /// The plan; free takes any other away.
        plan: String,
    },
}

pub(crate) async fn run(settings: &Settings, command: PlanCommand) -> anyhow::Result<()> {
    let open = || wiring::control::for_command(settings);
    match command {
        PlanCommand::List(lines) => list(&*open().await?, &lines).await,
        PlanCommand::Set { plan, metric, window, limit } => {
            let metric = metric_over(&metric, &window)?;
            let limit = read_limit(&limit)?;
            let before = perform(&*open().await?, SetPlanLimit { plan: plan.clone(), metric, limit }).await?;
            let (before, limit) = (written(before), written(limit));
            output::print(&format!("plan {plan}: {metric} per {window} is {limit}, was {before}\n"))
        }
        PlanCommand::Assign { key, plan } => {
            let person = public_key(&key)?;
            let before = perform(&*open().await?, AssignPlan { person, plan: plan.clone() }).await?;
            output::print(&format!("{} has the plan {plan}, had {before}\n", npub(&person)))
        }
    }
}

/// The metric, if it is counted over this window.
fn metric_over(metric: &str, window: &str) -> anyhow::Result<Metric> {
    let metric = named("METRIC", metric, Metric::ALL, Metric::name)?;
    let right = metric.window().name();
    if window != right {
        bail!("WINDOW {window}: must be {right} for {metric}");
    }
    Ok(metric)
}

fn read_limit(text: &str) -> anyhow::Result<Option<u64>> {
    if text == UNLIMITED {
        return Ok(None);
    }
    // The database has signed numbers.
    let number = text.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
    number.map(Some).ok_or_else(|| anyhow!("LIMIT {text}: must be a whole number or {UNLIMITED}"))
}

fn written(limit: Option<u64>) -> String {
    limit.map_or_else(|| UNLIMITED.to_owned(), |limit| limit.to_string())
}

async fn list(control: &Control, lines: &Lines) -> anyhow::Result<()> {
    let plans = plan::list(control.database()).await?;
    if lines.json {
        return output::print(&as_lines(plans.iter().map(as_value)));
    }
    let rows = plans.iter().flat_map(|plan| Metric::ALL.map(|metric| row(plan, metric)));
    output::print(&table(["plan", "metric", "window", "limit"], rows))
}

fn row(plan: &Plan, metric: Metric) -> [String; 4] {
    let limit = written(plan.limits.get(&metric).copied());
    [plan.id.clone(), metric.to_string(), metric.window().name().to_owned(), limit]
}

fn as_value(plan: &Plan) -> serde_json::Value {
    let limits = plan
        .limits
        .iter()
        .map(|(metric, limit)| json!({ "metric": metric.name(), "window": metric.window().name(), "limit": limit }));
    json!({
        "plan_id": plan.id,
        "name": plan.name,
        "is_active": plan.is_active,
        "limits": limits.collect::<Vec<_>>(),
    })
}
