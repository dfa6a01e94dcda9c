//! `usage`: what people have used.

use anyhow::Context;
use clap::Subcommand;
use kukuri_control::{
    Control, Refused, account,
    metric::Metric,
    usage::{self, DailyCount},
};
use kukuri_domain::PublicKey;
use serde_json::json;

use super::{
    people::{Lines, as_lines, now, public_key},
    table::{day, table},
};
use crate::{config::Settings, output, wiring};

#[derive(Subcommand)]
pub(crate) enum UsageCommand {
    /// Prints what a person has used on the last days (UTC), the newest first.
    Show {
        /// The person: 64 hex digits or npub.
        key: String,
        /// How many days, with today.
        #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
        days: u32,
        #[command(flatten)]
        lines: Lines,
    },
}

pub(crate) async fn run(settings: &Settings, command: UsageCommand) -> anyhow::Result<()> {
    let UsageCommand::Show { key, days, lines } = command;
    let person = public_key(&key)?;
    let control = wiring::control::for_command(settings).await?;
    show(&control, &person, days, &lines).await
}

async fn show(control: &Control, person: &PublicKey, days: u32, lines: &Lines) -> anyhow::Result<()> {
    account::find(control.database(), person).await?.context(Refused::UnknownAccount)?;
    let counts = usage::of_days(control.database(), person, days.into(), now()).await?;
    let limit = |count: &DailyCount| control.people().limit(person, Metric::of_name(&count.metric)?);
    if lines.json {
        return output::print(&as_lines(counts.iter().map(|count| {
            let DailyCount { metric, day: number, count: used } = count;
            json!({ "day": day(*number), "metric": metric, "count": used, "limit": limit(count) })
        })));
    }
    let rows = counts.iter().map(|count| {
        let limit = limit(count).map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
        [day(count.day), count.metric.clone(), count.count.to_string(), limit]
    });
    output::print(&table(["day", "metric", "count", "limit now"], rows))
}
