//! Stored events out: about fifty, asked for in several ways.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::bail;
use kukuri_domain::EventId;
use kukuri_testing::Connection;

use super::{Begun, Bench, place};
use crate::{
    oracle::{Oracle, Verdict},
    questions::{Question, SHAPES, SUBSCRIPTIONS},
    relay::{Relay, message::Message, process::Running},
    report::{Operation, Place},
    timing::Timings,
};

const CONNECTIONS: usize = 8;
/// A measurement ends after this, however few were answered.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
const CHECKED_FOR: Duration = Duration::from_secs(60);

/// Everything that is asked, and the right answers.
pub(super) struct Exam {
    pub(super) oracle: Oracle,
    pub(super) questions: Arc<Vec<Question>>,
}

pub(super) async fn measure(bench: &mut Bench, relay: &Relay, running: &Running, exam: &Exam) -> anyhow::Result<()> {
    check(bench, relay, place("req", relay, "answers"), running, exam).await?;
    for (shape, name) in SHAPES.iter().enumerate() {
        let mine: Vec<usize> = (0..exam.questions.len()).filter(|n| exam.questions[*n].shape == shape).collect();
        one(bench, place("req", relay, name), running, exam, mine).await?;
    }
    mix(bench, place("req", relay, "mix"), running, exam).await
}

/// All shapes in turns.
pub(super) async fn mix(bench: &mut Bench, place: Place<'_>, running: &Running, exam: &Exam) -> anyhow::Result<()> {
    one(bench, place, running, exam, (0..exam.questions.len()).collect()).await
}

async fn one(
    bench: &mut Bench,
    place: Place<'_>,
    running: &Running,
    exam: &Exam,
    which: Vec<usize>,
) -> anyhow::Result<()> {
    let (operation, events) = ask(running, &exam.questions, which, bench.options.load.requests).await?;
    let mean = events as f64 / operation.count.max(1) as f64;
    bench.report.operation(place, "REQ", operation);
    bench.report.figure(place, "events in an answer", "", mean);
    Ok(())
}

/// Asks every question once and compares the answer, event by event. This also warms up.
pub(super) async fn check(
    bench: &mut Bench,
    relay: &Relay,
    place: Place<'_>,
    running: &Running,
    exam: &Exam,
) -> anyhow::Result<()> {
    let mut client = Connection::open(running.address).await?;
    let (mut asked, mut ties, mut wrong, start) = (0, 0, Vec::new(), Instant::now());
    let mut found = Vec::new();
    for (turn, question) in exam.questions.iter().enumerate() {
        if start.elapsed() > CHECKED_FOR {
            break;
        }
        answer(&mut client, question, turn, |id| found.push(id.to_vec())).await?;
        let ids: Vec<EventId> = found.drain(..).filter_map(|id| EventId::from_hex(id).ok()).collect();
        match exam.oracle.judge(&question.expected, &ids) {
            Verdict::Right => {}
            Verdict::Ties => ties += 1,
            Verdict::Wrong => wrong.push((question.shape, ids.len(), question.expected.len())),
        }
        asked += 1;
    }
    bench.report.figure(place, "questions", "", asked as f64);
    bench.report.figure(place, "wrong", "", wrong.len() as f64);
    bench.report.figure(place, "ties", "", ties as f64);
    let example =
        wrong.first().map(|(shape, found, expected)| format!("{}: {found} events for {expected}", SHAPES[*shape]));
    bench.report.words(place, "the first wrong one", example.clone().unwrap_or_default());
    if relay.is_ours && (ties > 0 || !wrong.is_empty()) {
        let example = example.unwrap_or_else(|| "the order within a second".to_owned());
        bench.report.fault(format!("{} wrong answers of {asked} in {}: {example}", wrong.len() + ties, place.part));
    }
    Ok(())
}

/// Asks these questions over and over on several connections. Returns also how many events came.
async fn ask(
    running: &Running,
    questions: &Arc<Vec<Question>>,
    which: Vec<usize>,
    requests: usize,
) -> anyhow::Result<(Operation, usize)> {
    let which = Arc::new(which);
    let mut clients = Vec::new();
    for first in 0..CONNECTIONS {
        clients.push((first, Connection::open(running.address).await?));
    }
    let begun = Begun::now(running)?;
    let mut working = Vec::new();
    for (first, mut client) in clients {
        let (questions, which) = (Arc::clone(questions), Arc::clone(&which));
        working.push(tokio::spawn(async move {
            let (mut latency, mut events, began) = (Timings::default(), 0, Instant::now());
            for (turn, n) in (first..requests).step_by(CONNECTIONS).enumerate() {
                let start = Instant::now();
                events += answer(&mut client, &questions[which[n % which.len()]], turn, |_| {}).await?;
                latency.add(start);
                if began.elapsed() > LONG_ENOUGH {
                    break;
                }
            }
            anyhow::Ok((latency, events))
        }));
    }
    let (mut all, mut events) = (Timings::default(), 0);
    for work in working {
        let (latency, count) = work.await??;
        all.merge(latency);
        events += count;
    }
    Ok((begun.done(running, all.len(), all)?, events))
}

/// Asks one question, the nth of this connection, and hears the answer out. Returns how many events it has.
pub(super) async fn answer(
    client: &mut Connection,
    question: &Question,
    turn: usize,
    mut hear: impl FnMut(&[u8]),
) -> anyhow::Result<usize> {
    client.send(question.frames(turn)).await?;
    let mut found = 0;
    loop {
        let place = client.receiver.receive().await?;
        match Message::read(client.receiver.text(&place)) {
            Message::Event { id } => {
                hear(id);
                found += 1;
            }
            Message::Eose => return Ok(found),
            // Some relays send it for the subscription that was closed, too.
            Message::Closed { subscription } if subscription == SUBSCRIPTIONS[turn % 2].as_bytes() => {
                bail!("a request is refused: {}", client.receiver.excerpt(&place));
            }
            Message::Closed { .. } | Message::Ok { .. } | Message::Other => {}
        }
    }
}

/// Asks a relay that has just been started.
pub(super) async fn first_answer(address: SocketAddr, question: &Question) -> anyhow::Result<usize> {
    let mut client = Connection::open(address).await?;
    answer(&mut client, question, 0, |_| {}).await
}
