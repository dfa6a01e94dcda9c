//! The stored events that every attack starts from, made once, and the node on a copy of them.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use kukuri_domain::Event;
use kukuri_postgres::Session;
use kukuri_testing::{Connection, connection::excerpt, draft, events::now, frames::text_frame};
use tempfile::TempDir;

use super::{
    attacker::{TOPIC, publication},
    options::Options,
};
use crate::{
    client::Message,
    relay::{Relay, RelayProcess},
};

const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Events on their way at a time while they are loaded.
const WINDOW: usize = 256;
/// The secret key of the author of many versions of one profile.
pub(crate) const AUTHOR_OF_VERSIONS: [u8; 32] = [66; 32];
/// The word that is in every post.
pub(crate) const COMMON_WORD: &str = "weather";

/// How many events are stored.
pub(crate) struct Sizes {
    /// Short posts with the same word.
    pub(crate) posts: usize,
    /// Posts of 90 KiB.
    pub(crate) large_posts: usize,
    /// Versions of one profile, all but one of them replaced.
    pub(crate) versions: usize,
}

/// A store with events, of which each attack gets a copy.
pub(crate) struct Prepared {
    pub(crate) program: PathBuf,
    dir: TempDir,
    /// The Postgres server, if events are there.
    server: Option<String>,
}

/// A node that is attacked.
pub(crate) struct Running {
    relay: Relay,
    pub(crate) process: RelayProcess,
}

impl Running {
    /// Starts the node again after it was stopped. Returns how long that took.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.process.restart(&self.relay, START_TIMEOUT).await?;
        Ok(begun.elapsed())
    }
}

impl Prepared {
    /// Stores the events through a node without rate limits.
    pub(crate) async fn new(options: &Options) -> anyhow::Result<Self> {
        let program = match &options.node {
            Some(program) => program.canonicalize()?,
            None => std::env::current_exe()?.with_file_name("kukuri-node"),
        };
        let server = match options.store.as_str() {
            "postgres" => Some(options.url.clone().context("--url names no Postgres server")?),
            _ => None,
        };
        let dir = tempfile::tempdir_in(options.dir.canonicalize()?)?;
        let prepared = Self { program, dir, server };
        prepared.create_database("prepared", None).await?;
        let relay = prepared.relay("prepared", &["--rate-limits", "off"])?;
        let mut process = relay.start_on(tempfile::tempdir_in(prepared.dir.path())?, START_TIMEOUT).await?;
        load(&process, options.sizes()).await.context("loading events")?;
        process.wait_until_idle().await?;
        process.stop(STOP_TIMEOUT).await?;
        std::fs::rename(process.directory(), prepared.data())?;
        Ok(prepared)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("prepared")
    }

    /// Starts a node on a copy. Returns how long the start took.
    pub(crate) async fn start(&self, name: &str) -> anyhow::Result<(Running, Duration)> {
        self.create_database(name, Some("prepared")).await?;
        let copy = tempfile::tempdir_in(self.dir.path())?;
        copy_files(&self.data(), copy.path())?;
        let relay = self.relay(name, &[])?;
        let begun = Instant::now();
        let process = relay.start_on(copy, START_TIMEOUT).await?;
        Ok((Running { relay, process }, begun.elapsed()))
    }

    fn relay(&self, database: &str, more: &[&str]) -> anyhow::Result<Relay> {
        let program = self.program.to_str().context("the path of the node is not UTF-8")?;
        let mut words = vec![program, "--listen", "127.0.0.1:{port}", "--data", "{dir}"];
        let url = self.server.as_ref().map(|server| database_url(server, database));
        if let Some(url) = &url {
            words.extend(["--store", url]);
        }
        words.extend(more);
        format!("kukuri={}", shlex::try_join(words)?).parse()
    }

    /// Creates a database, as a copy of another one, in place of one of an earlier run.
    async fn create_database(&self, name: &str, template: Option<&str>) -> anyhow::Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let session = Session::connect(server).await?;
        let template = template.map_or(String::new(), |template| format!("TEMPLATE \"{}\"", database_name(template)));
        let name = database_name(name);
        for statement in [
            format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"),
            format!("CREATE DATABASE \"{name}\" {template}"),
        ] {
            session.run(statement).await?;
        }
        Ok(())
    }
}

fn database_name(name: &str) -> String {
    format!("attack-{name}")
}

/// The URL of another database of the same server.
fn database_url(server: &str, name: &str) -> String {
    let (head, options) = server.split_once('?').map_or((server, None), |(head, options)| (head, Some(options)));
    let head = head.rsplit_once('/').map_or(head, |(head, _)| head);
    let options = options.map_or(String::new(), |options| format!("?{options}"));
    format!("{head}/{}{options}", database_name(name))
}

fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    // The store's file has holes.
    let status = Command::new("cp").args(["-a", "--sparse=always"]).arg(from.join(".")).arg(to).status()?;
    ensure!(status.success(), "cp ended with {status}");
    Ok(())
}

async fn load(node: &RelayProcess, sizes: Sizes) -> anyhow::Result<()> {
    let start = now() - 100_000;
    let post = |n: usize| {
        let content = format!("the {COMMON_WORD} of hour {n} is as it was in hour {}", n / 2);
        draft((n % 50) as u8 + 1, 1).at(start + n as u64).tag(["t", TOPIC]).content(&content).sign()
    };
    publish(node, (0..sizes.posts).map(post)).await?;
    let text = format!("{COMMON_WORD} report, long form. ").repeat(90 * 1024 / 27);
    let large = |n: usize| {
        let content = format!("{n} {text}");
        draft((n % 50) as u8 + 1, 1).at(start + n as u64).tag(["t", TOPIC]).content(&content).sign()
    };
    publish(node, (0..sizes.large_posts).map(large)).await?;
    let version = |n: usize| {
        let content = format!(r#"{{"name":"author {n}"}}"#);
        draft(1, 0).by(AUTHOR_OF_VERSIONS).at(start + n as u64).tag(["t", TOPIC]).content(&content).sign()
    };
    publish(node, (0..sizes.versions).map(version)).await
}

/// Publishes events in their order.
async fn publish(node: &RelayProcess, events: impl Iterator<Item = Event>) -> anyhow::Result<()> {
    let mut connection = Connection::open(node.address).await?;
    let mut events = events.peekable();
    while events.peek().is_some() {
        let frames: Vec<Vec<u8>> =
            events.by_ref().take(WINDOW).map(|event| text_frame(publication(&event).as_bytes())).collect();
        let mut waiting = frames.len();
        connection.send(&frames.concat()).await?;
        while waiting > 0 {
            let text = connection.receive().await?;
            match Message::read(text) {
                Message::Ok { is_accepted: true, .. } => waiting -= 1,
                Message::Ok { .. } => bail!("an event is refused: {}", excerpt(text)),
                _ => {}
            }
        }
    }
    Ok(())
}
