//! Events into our relay on Postgres, near and far: a commit costs round trips.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use kukuri_postgres::Session;
use kukuri_testing::delay::DelayingProxy;

use super::{Bench, Stopwatch, within};
use crate::{
    client::{Pace, publish_all},
    relay::Relay,
};

/// Connections, events in flight on each, and the part of the events that are sent.
const FLOWS: [(usize, usize, u64); 2] = [(1, 1, 40), (8, 64, 2)];
/// The first events open their topics: all topics are in them.
const WARM_UP: u64 = 100;
/// Delays of the network, each way.
const DELAYS_MS: [u64; 2] = [1, 5];
const DATABASE: &str = "kukuri_bench";

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let Some(server) = bench.options.database()?.map(str::to_owned) else { return Ok(()) };
    let session = Session::connect(&server).await?;
    let setting = async |name: &str| -> anyhow::Result<String> {
        Ok(kukuri_postgres::query("SELECT current_setting($1)").bind(name).fetch_value(&session).await?)
    };
    let (sockets, port) = (setting("unix_socket_directories").await?, setting("port").await?.parse::<u16>()?);
    let user: String = kukuri_postgres::query("SELECT current_user::text").fetch_value(&session).await?;
    let sockets = sockets.split(',').next().unwrap_or_default().trim();
    let by_socket = format!("postgres://{user}@localhost:{port}/{DATABASE}?host={sockets}");
    measure_at(bench, relay, "socket", &session, &by_socket).await?;
    let by_tcp = |port: u16| format!("postgres://{user}@127.0.0.1:{port}/{DATABASE}?sslmode=disable");
    measure_at(bench, relay, "TCP", &session, &by_tcp(port)).await?;
    for delay in DELAYS_MS {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let proxy = on_own_thread(address, Duration::from_millis(delay))?;
        measure_at(bench, relay, &format!("TCP and {delay} ms"), &session, &by_tcp(proxy.port())).await?;
    }
    Ok(())
}

/// A proxy on a thread of its own, so that the clients do not delay it. It runs until the program ends.
fn on_own_thread(server: SocketAddr, delay: Duration) -> anyhow::Result<SocketAddr> {
    let (address, started) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let proxy = DelayingProxy::start(server, delay).await;
            let _ = address.send(proxy.address);
            std::future::pending::<()>().await;
        });
    });
    started.recv().context("the proxy did not start")
}

async fn measure_at(bench: &mut Bench, relay: &Relay, place: &str, session: &Session, url: &str) -> anyhow::Result<()> {
    for (connections, in_flight, part) in FLOWS {
        session.run(format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")).await?;
        session.run(format!("CREATE DATABASE {DATABASE}")).await?;
        let count = (bench.options.events / part).max(1);
        let row = format!("{place}, {connections} x {in_flight} in flight");
        let relay = relay.with(&["--store", url]);
        let flow = async {
            let process = bench.start(&relay).await?;
            publish_all(process.address, &bench.corpus.signed(0..WARM_UP), 1, Pace::InFlight(1)).await?;
            let events = bench.corpus.signed(WARM_UP..WARM_UP + count);
            let watch = Stopwatch::start(&process)?;
            let timings = publish_all(process.address, &events, connections, Pace::InFlight(in_flight)).await?;
            watch.stop(timings)
        };
        let measured = within(bench.timeout(), flow).await?;
        bench.report.measurement(&row, measured);
    }
    Ok(())
}
