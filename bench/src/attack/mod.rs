//! Attacks on a node with its default configuration, and how well a well-behaved client is served meanwhile.
//! `cargo xtask attack` is the way to run it.
//!
//! # Layout
//!
//! - [`options`]: the command line.
//! - [`scripts`]: the attacks, one file per part of the node that they aim at. [`attacker`]: a client at an address of its own.
//! - [`prepared`]: the stored events that every attack starts from, and the node on a copy of them.
//! - [`well_behaved`]: the client whose waiting times count.
//! - [`outcome`]: the figures of one attack, the bounds, the table.

mod attacker;
mod options;
mod outcome;
mod prepared;
mod scripts;
mod well_behaved;

use std::{
    ffi::OsString,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Parser;
use tokio::{
    runtime::Builder,
    task::JoinSet,
    time::{sleep, timeout},
};

use self::{
    attacker::{Attacker, Counts},
    options::Options,
    outcome::{MAX_GROWTH, Outcome},
    prepared::{Prepared, Running},
    scripts::Script,
    well_behaved::Served,
};
use crate::say;

/// An attack is stopped when the node has taken this much memory: it has succeeded, and the machine is needed.
const MAX_MEMORY: u64 = 4 << 30;
const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
/// How long a node may take to serve as before once the attackers have left.
const MAX_RECOVERY: Duration = Duration::from_secs(60);
/// A health check that is answered within this time is as before.
const PROMPT: Duration = Duration::from_millis(250);

/// Runs the attacks that the arguments name. Fails if the node did not serve its well-behaved client within bounds.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let options = Options::try_parse_from(arguments).unwrap_or_else(|error| error.exit());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(attack_all(&options))
}

async fn attack_all(options: &Options) -> anyhow::Result<()> {
    std::fs::create_dir_all(&options.dir).with_context(|| options.dir.display().to_string())?;
    let prepared = Prepared::new(options).await?;
    let mut outcomes = Vec::new();
    for script in scripts::chosen(&options.names)? {
        let outcome = attack(options, &prepared, script).await.with_context(|| script.name.to_owned())?;
        say(format_args!("{}", outcome.line()));
        outcomes.push(outcome);
    }
    let table = outcome::table(&outcomes);
    std::fs::write(options.dir.join("attacks.md"), &table)?;
    say(format_args!("\n{table}"));
    let bounds = options.bounds();
    let broken: Vec<String> = outcomes.iter().flat_map(|outcome| outcome.broken(bounds)).collect();
    match broken.as_slice() {
        [] => Ok(()),
        broken => bail!("out of bounds:\n{}", broken.join("\n")),
    }
}

/// Runs one attack on a new copy of the prepared events.
async fn attack(options: &Options, prepared: &Prepared, script: &'static Script) -> anyhow::Result<Outcome> {
    let (mut node, usual_start) = prepared.start(script.name).await?;
    let address = node.process.address;
    let before = well_behaved::serve(address, options.baseline()).await;
    node.process.wait_until_idle().await?;
    let (memory_before, cpu_before) = (node.process.private_memory(), node.process.cpu()?);

    let counts = Arc::new(Counts::default());
    let begun = Instant::now();
    let (during, memory_peak) = {
        let mut attackers = JoinSet::new();
        for number in 0..options.addresses {
            let attacker = Attacker {
                ip: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2 + number)),
                number,
                node: address,
                program: prepared.program.clone(),
                data: node.process.directory().to_owned(),
                counts: Arc::clone(&counts),
            };
            attackers.spawn((script.run)(attacker));
        }
        watch(&node, well_behaved::serve(address, options.attack_time())).await
        // The attackers leave here, all at once.
    };
    let took = begun.elapsed();
    let cpu = node.process.cpu().map_or(Duration::ZERO, |cpu| cpu.saturating_sub(cpu_before));
    let recovery = recover(&node, memory_before).await;
    let memory_after = node.process.private_memory();
    let stop = node.process.stop(MAX_RECOVERY).await?;
    let start = node.start_again().await?;
    Ok(Outcome {
        name: script.name,
        about: script.about,
        before,
        during,
        memory_before,
        memory_peak,
        memory_after,
        cpu: cpu.as_secs_f64() / took.as_secs_f64(),
        recovery,
        stop,
        usual_start,
        start,
        counts: counts.summary(),
    })
}

/// Serves the well-behaved client, and returns the most memory that the node had meanwhile.
async fn watch(node: &Running, serving: impl Future<Output = Served>) -> (Served, u64) {
    let mut serving = Box::pin(serving);
    let mut peak = 0;
    loop {
        if let Ok(served) = timeout(MEMORY_INTERVAL, &mut serving).await {
            return (served, peak);
        }
        peak = peak.max(node.process.private_memory());
        if peak > MAX_MEMORY {
            return (Served::failed("the node had taken over 4 GiB of memory"), peak);
        }
    }
}

/// Waits until the node answers health checks as before and has given back its memory. Returns how long that took;
/// `None`: it did not within [`MAX_RECOVERY`].
async fn recover(node: &Running, memory_before: u64) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < MAX_RECOVERY {
        let asked = Instant::now();
        let is_well = well_behaved::is_healthy(node.process.address, MAX_RECOVERY).await;
        let is_prompt = is_well && asked.elapsed() < PROMPT;
        if is_prompt && node.process.private_memory() < memory_before + MAX_GROWTH {
            return Some(begun.elapsed());
        }
        sleep(MEMORY_INTERVAL).await;
    }
    None
}
