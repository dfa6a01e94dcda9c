//! The client that does nothing unusual: it publishes eight events a second, asks four times a second, and checks the node's
//! health every second. A time counts from the moment at which the message was due, whether it could be sent then or not.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use kukuri_testing::{Connection, connection::excerpt, draft};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};

use super::attacker::{TOPIC, publication};
use crate::{
    client::{Message, request},
    timings::Timings,
};

const PUBLISH_INTERVAL: Duration = Duration::from_millis(125);
const REQUEST_INTERVAL: Duration = Duration::from_millis(250);
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// An answer that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// How the client was served.
#[derive(Clone, Default)]
pub(crate) struct Served {
    pub(crate) ok: Timings,
    pub(crate) req: Timings,
    pub(crate) health: Timings,
    pub(crate) errors: Vec<String>,
}

impl Served {
    pub(crate) fn failed(error: &str) -> Self {
        Self { errors: vec![error.to_owned()], ..Self::default() }
    }
}

/// Uses a node for this long.
pub(crate) async fn serve(node: SocketAddr, time: Duration) -> Served {
    let until = Instant::now() + time;
    let ((ok, published), (req, asked), (health, checked)) = tokio::join!(
        repeat(PUBLISH_INTERVAL, until, async || Publisher::connect(node).await),
        repeat(REQUEST_INTERVAL, until, async || Reader::connect(node).await),
        repeat(HEALTH_INTERVAL, until, async || Ok(Checker(node))),
    );
    Served { ok, req, health, errors: [published, asked, checked].concat() }
}

/// Something that a client does again and again.
trait Act {
    async fn act(&mut self) -> anyhow::Result<()>;
}

/// Acts at each interval. After an error it connects again.
async fn repeat<A: Act>(
    every: Duration,
    until: Instant,
    connect: impl AsyncFn() -> anyhow::Result<A>,
) -> (Timings, Vec<String>) {
    let (mut timings, mut errors, mut acting) = (Timings::default(), Vec::new(), None);
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        let due = ticks.tick().await.into_std();
        if due >= until {
            return (timings, errors);
        }
        if until.elapsed() > PATIENCE {
            errors.push("the node is too far behind to wait for".to_owned());
            return (timings, errors);
        }
        let act = async {
            let mut ready = match acting.take() {
                Some(ready) => ready,
                None => connect().await?,
            };
            ready.act().await?;
            anyhow::Ok(ready)
        };
        match timeout(PATIENCE, act).await.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within 20 s"))) {
            Ok(ready) => acting = Some(ready),
            Err(error) => errors.push(format!("{error:#}")),
        }
        timings.push(due.elapsed());
    }
}

struct Publisher {
    connection: Connection,
    sent: u64,
}

impl Publisher {
    async fn connect(node: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { connection: Connection::open(node).await?, sent: 0 })
    }
}

impl Act for Publisher {
    async fn act(&mut self) -> anyhow::Result<()> {
        self.sent += 1;
        let content = format!("the weather of hour {}, {:?}", self.sent, Instant::now());
        let event = draft(200, 1).tag(["t", TOPIC]).content(&content).sign();
        self.connection.send_text(&publication(&event)).await?;
        loop {
            let text = self.connection.receive().await?;
            match Message::read(text) {
                Message::Ok { is_accepted: true, .. } => return Ok(()),
                Message::Ok { .. } => bail!("an event is refused: {}", excerpt(text)),
                _ => {}
            }
        }
    }
}

struct Reader(Connection);

impl Reader {
    async fn connect(node: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self(Connection::open(node).await?))
    }
}

impl Act for Reader {
    async fn act(&mut self) -> anyhow::Result<()> {
        let message = format!(r##"["REQ","latest",{{"#t":["{TOPIC}"],"kinds":[1],"limit":20}}]"##);
        let frames = kukuri_testing::frames::text_frame(message.as_bytes());
        let found = request(&mut self.0, ("latest", &frames), |_| {}).await?;
        self.0.send_text(r#"["CLOSE","latest"]"#).await?;
        if found == 0 {
            bail!("a request found nothing");
        }
        Ok(())
    }
}

struct Checker(SocketAddr);

impl Act for Checker {
    async fn act(&mut self) -> anyhow::Result<()> {
        check_health(self.0).await
    }
}

/// Whether the node answers a health check within this time, and is well.
pub(crate) async fn is_healthy(node: SocketAddr, within: Duration) -> bool {
    matches!(timeout(within, check_health(node)).await, Ok(Ok(())))
}

async fn check_health(node: SocketAddr) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(node).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.lines().next().context("an empty answer")?;
    if !status.contains(" 200 ") {
        bail!("unhealthy: {status}");
    }
    Ok(())
}
