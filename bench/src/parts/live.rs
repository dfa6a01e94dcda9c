//! Live events out: many subscribers of one topic, each of which must receive every event once.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::future::{try_join, try_join_all};
use kukuri_testing::{Connection, connection::excerpt, frames::text_frame};
use serde_json::json;
use tokio::time::timeout;

use super::{Bench, Stopwatch};
use crate::{
    client::{Message, Pace, publish_all, request},
    corpus::{SignedEvent, topic_id},
    relay::Relay,
    report::Measurement,
    timings::Timings,
};

/// The topic of the subscribers.
const TOPIC: u64 = 0;
const EVENTS_PER_SECOND: u32 = 200;
const WARM_UP: usize = 64;
/// A subscriber that receives nothing for so long has missed the rest. The first event may take longer.
const MAX_SILENCE: Duration = Duration::from_secs(10);

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let (count, pace) = (bench.options.live_events(), Pace::PerSecond(EVENTS_PER_SECOND));
    let process = bench.start(relay).await?;
    let events = bench.corpus.signed_in(TOPIC, WARM_UP + 2 * count);
    let (warm_up, events) = events.split_at(WARM_UP);
    let (unheard, heard) = events.split_at(count);
    publish_all(process.address, warm_up, 1, Pace::InFlight(1)).await?;

    let watch = Stopwatch::start(&process)?;
    let unheard = watch.stop(publish_all(process.address, unheard, 1, pace).await?)?;

    let by_id: HashMap<&[u8], usize> =
        heard.iter().enumerate().map(|(n, event)| (event.id_hex.as_bytes(), n)).collect();
    let mut receiving = Vec::new();
    for _ in 0..bench.options.subscribers {
        receiving.push(receive_all(subscribe(process.address).await?, heard, &by_id));
    }
    let watch = Stopwatch::start(&process)?;
    let (_, received) = try_join(publish_all(process.address, heard, 1, pace), try_join_all(receiving)).await?;
    let repeated: usize = received.iter().map(|(_, repeated)| repeated).sum();
    let deliveries = Timings(received.into_iter().flat_map(|(timings, _)| timings.0).collect());
    let missed = count * bench.options.subscribers - deliveries.len();
    let fan_out = watch.stop(deliveries)?;

    let cpu = fan_out.cpu.saturating_sub(unheard.cpu);
    bench.report.measurement("no subscribers", unheard);
    bench.report.measurement("fan-out", Measurement { cpu, ..fan_out });
    bench.report.number("fan-out", "subscribers", "", bench.options.subscribers as f64);
    bench.report.number("fan-out", "missed", "", missed as f64);
    bench.report.number("fan-out", "twice", "", repeated as f64);
    if missed + repeated > 0 {
        bench.report.fault(format!("{missed} live events were not delivered, {repeated} came twice"));
    }
    Ok(())
}

/// A client that has subscribed to the topic's live events.
pub(super) async fn subscribe(address: SocketAddr) -> anyhow::Result<Connection> {
    let mut client = Connection::open(address).await?;
    let open = json!(["REQ", "live", { "#t": [topic_id(TOPIC)], "limit": 0 }]);
    request(&mut client, ("live", &text_frame(open.to_string().as_bytes())), |_| {}).await?;
    Ok(client)
}

/// Receives events until all have come, or nothing comes any more. Returns how long each took from its publisher, and how
/// many came again.
async fn receive_all(
    mut client: Connection,
    events: &[SignedEvent],
    by_id: &HashMap<&[u8], usize>,
) -> anyhow::Result<(Timings, usize)> {
    let (mut timings, mut repeated) = (Timings::default(), 0);
    let mut seen = vec![false; events.len()];
    while timings.len() < events.len() {
        let silence = if timings.len() == 0 { MAX_SILENCE * 6 } else { MAX_SILENCE };
        let Ok(filled) = timeout(silence, client.fill()).await else { break };
        filled.with_context(|| format!("after {} of {} events", timings.len(), events.len()))?;
        let now = Instant::now();
        while let Some(text) = client.next_buffered()? {
            let Message::Event { id } = Message::read(text) else { continue };
            let sent = by_id.get(id).and_then(|n| Some((*n, *events[*n].sent.get()?)));
            let (n, sent) = sent.with_context(|| format!("an event that was not sent: {}", excerpt(text)))?;
            if std::mem::replace(&mut seen[n], true) {
                repeated += 1;
            } else {
                timings.push(now - sent);
            }
        }
    }
    Ok((timings, repeated))
}
