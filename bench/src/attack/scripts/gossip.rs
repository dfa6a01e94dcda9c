//! A peer that floods. It is a node of its own, without limits, that passes on whatever its clients publish.

use std::{net::SocketAddr, process::Stdio};

use anyhow::Context;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::publishing::request_in_unknown_topics;
use crate::attack::attacker::{Attacker, publication};

/// Topics without end, over an open peer.
pub(super) async fn topics(attacker: Attacker) {
    if attacker.number > 0 {
        // One peer says all there is to say.
        return std::future::pending().await;
    }
    // A peer that can't be started shows as an attack in which nothing was sent.
    if let Ok((_peer, address)) = start_peer(&attacker).await {
        let through_peer = Attacker { node: address, ..attacker };
        through_peer.flood(4, 64, |n| publication(&request_in_unknown_topics(n))).await;
    }
}

/// Starts a node that knows the attacked one.
async fn start_peer(attacker: &Attacker) -> anyhow::Result<(Child, SocketAddr)> {
    let ticket = Command::new(&attacker.program).arg("--data").arg(&attacker.data).args(["gossip", "ticket"]).output();
    let ticket = String::from_utf8(ticket.await?.stdout)?;
    let known = ticket.lines().next().context("the node has no ticket")?;
    let dir = attacker.data.join("peer");
    std::fs::create_dir_all(&dir)?;
    let config = dir.join("peer.toml");
    std::fs::write(&config, format!("gossip.known = [{known:?}]\n[topics]\nmax = 100000000\n"))?;
    let mut command = Command::new(&attacker.program);
    command.args(["--listen", "127.0.0.1:0", "--rate-limits", "off", "--config"]).arg(&config);
    command
        .arg("--data")
        .arg(dir.join("data"))
        .env("KUKURI_LOG", "error")
        .env("KUKURI_BOOTSTRAP_PUBLISH", "off")
        .kill_on_drop(true);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let first = lines.next_line().await?.context("the peer did not start")?;
    let address = first.rsplit("ws://").next().unwrap_or_default().parse()?;
    // Read on, so that its writes do not fail.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, address))
}
