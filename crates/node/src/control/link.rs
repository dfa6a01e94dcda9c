//! A command's way to the node: the one that runs, or none, and then the command does it itself.

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow, bail};
use kukuri_relay::Relay;
use kukuri_store::Store;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

use super::{Reply, Request, Running, answer, server};
use crate::{
    config::{Settings, StorePlace},
    wiring::{self, searching::Searching, stores},
};

/// The way to the node.
pub(crate) enum Link {
    /// A node runs.
    Running(BufReader<OwnedReadHalf>, OwnedWriteHalf),
    /// None does, or the store has room for several: this process has it.
    Here(Running, JoinHandle<()>),
}

impl Link {
    /// Finds the node of these settings.
    pub(crate) async fn open(settings: &Settings) -> anyhow::Result<Self> {
        match Self::open_store(settings).await? {
            Some(store) => Self::here(settings, store, None).await,
            None => Self::connect(&settings.data).await,
        }
    }

    /// The same for whoever needs its index too.
    pub(crate) async fn open_searching(settings: &Settings) -> anyhow::Result<Self> {
        if let Some(link) = Self::to_running(settings).await? {
            return Ok(link);
        }
        match Self::open_store(settings).await? {
            Some(store) => {
                let searching = Searching::start(settings, &store).await?;
                Self::here(settings, store, searching).await
            }
            None => Self::connect(&settings.data).await,
        }
    }

    /// The node that runs in the data directory, if one does.
    pub(crate) async fn to_running(settings: &Settings) -> anyhow::Result<Option<Self>> {
        if let StorePlace::Postgres(_) = settings.store_place() {
            return Ok(Self::connect(&settings.data).await.ok());
        }
        match Self::open_store(settings).await? {
            Some(_) => Ok(None),
            None => Self::connect(&settings.data).await.map(Some),
        }
    }

    /// The node that runs in the data directory, whatever its store is: for what only a running node can tell.
    pub(crate) async fn to_node(settings: &Settings) -> anyhow::Result<Self> {
        let connected = Self::connect(&settings.data).await;
        connected.map_err(|_| anyhow!("no node runs in {}; start it first", settings.data.display()))
    }

    /// `None`: a node has it.
    async fn open_store(settings: &Settings) -> anyhow::Result<Option<Arc<dyn Store>>> {
        match stores::for_changing(settings).await {
            Err(error) if stores::is_locked(&error) => Ok(None),
            opened => opened.map(Some),
        }
    }

    async fn here(settings: &Settings, store: Arc<dyn Store>, searching: Option<Searching>) -> anyhow::Result<Self> {
        let public_url = wiring::public_url(settings, settings.listen);
        let config = wiring::relay_config(settings, &public_url, None)?;
        let (relay, writer) = Relay::start(store, None, config).await?;
        Ok(Self::Here(Running { relay, searching: searching.map(Arc::new), bridge: None }, writer))
    }

    async fn connect(data: &Path) -> anyhow::Result<Self> {
        let (path, _directory) = server::path(data)?;
        let stream = UnixStream::connect(&path)
            .await
            .with_context(|| format!("the store is in use, and the node in {} does not answer", data.display()))?;
        let (reading, writing) = stream.into_split();
        Ok(Self::Running(BufReader::new(reading), writing))
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&mut self, request: Request) -> anyhow::Result<Reply> {
        let reply = match self {
            Self::Here(running, _) => answer(running, request).await,
            Self::Running(reading, writing) => {
                let mut text = serde_json::to_string(&request)?;
                text.push('\n');
                writing.write_all(text.as_bytes()).await.context("the node has stopped")?;
                let mut line = String::new();
                if reading.read_line(&mut line).await? == 0 {
                    bail!("the node has stopped");
                }
                serde_json::from_str(&line).context("the node answers what this program does not understand")?
            }
        };
        match reply {
            Reply::Failed(message) => bail!(message),
            reply => Ok(reply),
        }
    }

    /// Ends: what was done here is written.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Self::Here(running, writer) = self {
            if let Some(searching) = &running.searching {
                searching.stop().await;
            }
            drop(running);
            writer.await?;
        }
        Ok(())
    }
}
