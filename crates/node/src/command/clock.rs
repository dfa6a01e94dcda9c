//! `clock`: whether purges and sweeps wait because the system clock may be wrong, and an operator's confirmation (P-5).

use std::time::Duration;

use clap::Subcommand;
use kukuri_domain::{
    Millis,
    clock::{Clock, ClockRules},
};

use super::table::moment;
use crate::{
    admin_socket::{AdminRequest, client::AdminClient},
    config::Settings,
    output,
};

#[derive(Subcommand)]
pub(crate) enum ClockCommand {
    /// Prints the trusted time, and whether the clock is held.
    Status,
    /// Confirms that the system clock is right: purges and sweeps continue, by this time.
    Confirm,
}

pub(crate) async fn run(settings: &Settings, command: &ClockCommand) -> anyhow::Result<()> {
    let mut client = AdminClient::open(settings, None).await?;
    let request = match command {
        ClockCommand::Status => AdminRequest::Clock,
        ClockCommand::Confirm => AdminRequest::ConfirmClock,
    };
    let clock: Clock = client.ask(request).await?;
    client.close().await?;
    output::print(&status(&clock, &settings.clock.rules()))
}

fn status(clock: &Clock, rules: &ClockRules) -> String {
    let time = |at: Millis| moment(at.seconds());
    let times = format!("system clock  {}\ntrusted time  {}\n", time(clock.last), time(clock.latest));
    let Some(since) = clock.held_since else { return format!("{times}The clock is trusted.\n") };
    let steady = Duration::from_millis(clock.latest.0.saturating_sub(since.0));
    let left = rules.confirm_after.saturating_sub(steady).as_secs().div_ceil(3_600);
    format!(
        "{times}The clock is held: nothing is purged or swept because of its age.\n\
         If the system clock is right, run `kukuri-node clock confirm`. If it is wrong, correct it: the hold then ends by \
         itself.\nWithout either, the clock is trusted after {left} more hours of steady running.\n"
    )
}
