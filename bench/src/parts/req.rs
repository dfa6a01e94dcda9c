//! Stored events out: about fifty, asked for in several ways. Then bytes on the disk, and whether everything is still there
//! after SIGKILL.

use std::{collections::HashSet, ops::Range, time::Duration};

use futures_util::future::try_join_all;
use kukuri_domain::EventId;
use kukuri_testing::Connection;

use super::{Bench, Stopwatch, within};
use crate::{
    client::{Pace, publish_all, request},
    corpus::{Corpus, Facts},
    oracle::{Oracle, Verdict},
    relay::{Relay, RelayProcess},
    report::{Measurement, Report},
    requests::{Request, SHAPES, requests},
    timings::Timings,
};

const CONNECTIONS: usize = 8;
/// A measurement ends after this time, however few requests were answered.
const MAX_MEASURING: Duration = Duration::from_secs(10);
/// Requests of one measurement for each ten events stored.
const REQUESTS_PER_TEN_EVENTS: u64 = 6;
/// Events that are generated and sent at a time, so that a large corpus need not be in memory.
const CHUNK: u64 = 10_000;
/// Ids that are asked for in one request.
const IDS_PER_REQUEST: usize = 50;

pub(super) async fn measure(bench: &mut Bench, relay: &Relay) -> anyhow::Result<()> {
    let limit = bench.timeout();
    let mut process = bench.start(relay).await?;
    let mut loaded = Loaded::default();
    within(limit, loaded.load(&process, &bench.corpus, 0..bench.options.events)).await?;
    process.wait_until_idle().await?;
    let exam = Exam::new(&bench.corpus, &loaded.facts);

    within(limit, exam.check(bench, "answers", &process)).await?;
    for (shape, name) in SHAPES.iter().enumerate() {
        let measured = within(limit, exam.measure(bench, &process, |request| request.shape == shape)).await?;
        bench.report.measurement(name, measured);
    }
    let measured = within(limit, exam.measure(bench, &process, |_| true)).await?;
    bench.report.measurement("mix", measured);
    let disk = process.disk_bytes()? as f64;
    bench.report.number("disk", "in all", "MB", disk / 1e6);
    bench.report.number("disk", "disk / JSON", "", disk / loaded.json_bytes);
    within(limit, restart(bench, relay, &mut process, &exam)).await
}

async fn restart(bench: &mut Bench, relay: &Relay, process: &mut RelayProcess, exam: &Exam) -> anyhow::Result<()> {
    let started = process.restart(relay, bench.timeout()).await?;
    let mut client = Connection::open(process.address).await?;
    request(&mut client, exam.requests[0].nth(0), |_| {}).await?;
    bench.report.number("kill -9", "first answer", "ms", started.elapsed().as_secs_f64() * 1e3);

    let (mut turn, mut found) = (1, HashSet::new());
    for topic in exam.oracle.topics() {
        let ids: Vec<EventId> = exam.oracle.topic(topic).iter().map(|facts| facts.id).collect();
        for some in ids.chunks(IDS_PER_REQUEST) {
            request(&mut client, Request::by_ids(topic, some).nth(turn), |id| found.extend(EventId::from_hex(id)))
                .await?;
            turn += 1;
        }
    }
    let lost = exam.oracle.len().saturating_sub(found.len());
    bench.report.number("kill -9", "lost", "", lost as f64);
    if lost > 0 {
        bench.report.fault(format!("{lost} acknowledged events are lost after kill -9"));
    }
    exam.check(bench, "answers after kill -9", process).await
}

/// The events that a relay was filled with.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) facts: Vec<Facts>,
    json_bytes: f64,
}

impl Loaded {
    /// Fills a relay. Returns the measurement of the last chunk.
    pub(super) async fn load(
        &mut self,
        process: &RelayProcess,
        corpus: &Corpus,
        range: Range<u64>,
    ) -> anyhow::Result<Option<Measurement>> {
        let mut last = None;
        for first in range.clone().step_by(CHUNK as usize) {
            let events = corpus.signed(first..range.end.min(first + CHUNK));
            let watch = Stopwatch::start(process)?;
            let timings = publish_all(process.address, &events, CONNECTIONS, Pace::InFlight(64)).await?;
            last = Some(watch.stop(timings)?);
            self.json_bytes += events.iter().map(|event| event.json_len as f64).sum::<f64>();
            self.facts.extend(events.into_iter().map(|event| event.facts));
        }
        Ok(last)
    }
}

/// The requests for a filled relay, and the right answers.
pub(super) struct Exam {
    pub(super) oracle: Oracle,
    pub(super) requests: Vec<Request>,
}

impl Exam {
    pub(super) fn new(corpus: &Corpus, facts: &[Facts]) -> Self {
        let oracle = Oracle::new(facts);
        Self { requests: requests(corpus, &oracle, facts.len() as u64), oracle }
    }

    /// Sends every request once and compares the answer, event by event. This also warms the relay up.
    pub(super) async fn check(&self, bench: &mut Bench, row: &str, process: &RelayProcess) -> anyhow::Result<()> {
        let mut client = Connection::open(process.address).await?;
        let mut answers = Vec::new();
        for (turn, asked) in self.requests.iter().enumerate() {
            let mut found = Vec::new();
            request(&mut client, asked.nth(turn), |id| found.extend(EventId::from_hex(id))).await?;
            answers.push(found);
        }
        self.judge(&mut bench.report, row, &answers);
        Ok(())
    }

    /// Reports how many of these answers, one for each request, are wrong. Those of our own code are faults.
    pub(super) fn judge(&self, report: &mut Report, row: &str, answers: &[Vec<EventId>]) {
        let (mut ties, mut wrong, mut first_wrong) = (0, 0, String::new());
        for (request, found) in self.requests.iter().zip(answers) {
            match self.oracle.judge(&request.expected, found) {
                Verdict::Right => continue,
                Verdict::Ties => ties += 1,
                Verdict::Wrong => wrong += 1,
            }
            let is_worth_telling = wrong > 0 || report.subject.is_ours;
            if is_worth_telling && first_wrong.is_empty() {
                let (shape, expected) = (SHAPES[request.shape], request.expected.len());
                first_wrong = format!("{shape}: {} events, expected {expected}", found.len());
            }
        }
        report.number(row, "questions", "", answers.len() as f64);
        report.number(row, "wrong", "", f64::from(wrong));
        report.number(row, "ties", "", f64::from(ties));
        if !first_wrong.is_empty() {
            report.failure(row, &first_wrong);
            report.fault(format!("{} wrong answers of {}: {first_wrong}", wrong + ties, answers.len()));
        }
    }

    /// Sends some of the requests over and over on several connections.
    pub(super) async fn measure(
        &self,
        bench: &Bench,
        process: &RelayProcess,
        is_wanted: impl Fn(&Request) -> bool,
    ) -> anyhow::Result<Measurement> {
        let wanted: Vec<&Request> = self.requests.iter().filter(|request| is_wanted(request)).collect();
        let count = (bench.options.events * REQUESTS_PER_TEN_EVENTS / 10) as usize;
        let clients = try_join_all((0..CONNECTIONS).map(|_| Connection::open(process.address))).await?;
        let watch = Stopwatch::start(process)?;
        let asking = clients.into_iter().enumerate().map(async |(first, mut client)| {
            let mut timings = Timings::default();
            for (turn, n) in (first..count).step_by(CONNECTIONS).enumerate() {
                timings.time(request(&mut client, wanted[n % wanted.len()].nth(turn), |_| {})).await?;
                if watch.at.elapsed() > MAX_MEASURING {
                    break;
                }
            }
            anyhow::Ok(timings)
        });
        watch.stop(Timings(try_join_all(asking).await?.into_iter().flat_map(|timings| timings.0).collect()))
    }
}
