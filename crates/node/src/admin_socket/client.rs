//! The command's end of the admin socket. Without a running node the command opens the store and answers itself.

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow, bail};
use kukuri_engine::{Engine, EngineParts};
use kukuri_http::Exporter;
use kukuri_outbox::Services;
use serde::de::DeserializeOwned;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    task::JoinHandle,
};

use super::{AdminContext, AdminReply, AdminRequest, answer, server};
use crate::{
    config::{Settings, StorePlace},
    wiring::{
        self,
        services::{self, Registration},
        stores,
    },
};

const UNREADABLE_REPLY: &str = "unreadable reply from the node: are node and command of the same version?";

/// Sends requests to the running node, or answers them in this process.
pub(crate) enum AdminClient {
    /// Connected to the socket of a running node.
    Connected(BufReader<UnixStream>),
    /// This process has opened the store: no node runs, or the store takes several processes.
    InProcess(AdminContext, JoinHandle<()>),
}

impl AdminClient {
    /// Connects to the node that runs in the data directory. `None`: no node runs.
    pub(crate) async fn running_node(settings: &Settings) -> anyhow::Result<Option<Self>> {
        if let StorePlace::Postgres(_) = settings.store_place() {
            return Ok(Self::connect(&settings.data).await.ok());
        }
        match stores::for_changing(settings).await {
            Err(error) if stores::is_locked(&error) => Self::connect(&settings.data).await.map(Some),
            opened => opened.map(|_| None),
        }
    }

    /// Connects for a command that only a running node can answer.
    pub(crate) async fn require_running_node(settings: &Settings) -> anyhow::Result<Self> {
        let connected = Self::connect(&settings.data).await;
        connected.map_err(|_| anyhow!("no node runs in {}; start it first", settings.data.display()))
    }

    /// Opens the store in this process, or connects to the node that has locked it. `service`: has to run for this
    /// command, so a node that runs it is preferred on Postgres too.
    pub(crate) async fn open(settings: &Settings, service: Option<&Registration>) -> anyhow::Result<Self> {
        if service.is_some()
            && let Some(client) = Self::running_node(settings).await?
        {
            return Ok(client);
        }
        let store = match stores::for_changing(settings).await {
            Err(error) if stores::is_locked(&error) => return Self::connect(&settings.data).await,
            opened => opened?,
        };
        let services = match service {
            Some(service) => services::start_one(service, settings, &store).await?,
            None => Services::default(),
        };
        let config = wiring::engine_config(settings, &wiring::public_url(settings, settings.listen))?;
        let recorder = Exporter::new().recorder();
        let parts = EngineParts { store, finder: None, config, policies: Vec::new(), recorder };
        let (engine, writer) = Engine::start(parts).await?;
        let services = Arc::new(services);
        Ok(Self::InProcess(AdminContext { engine, services, bridge: None }, writer))
    }

    pub(super) async fn connect(data: &Path) -> anyhow::Result<Self> {
        let (path, _directory) = server::path(data)?;
        let stream = UnixStream::connect(&path)
            .await
            .with_context(|| format!("the store is in use, and the node in {} does not answer", data.display()))?;
        Ok(Self::Connected(BufReader::new(stream)))
    }

    /// Sends a request and waits for the reply, of the type that this request has.
    pub(crate) async fn ask<R: DeserializeOwned>(&mut self, request: AdminRequest) -> anyhow::Result<R> {
        let reply = match self {
            Self::InProcess(context, _) => answer(context, request).await?,
            Self::Connected(stream) => {
                let mut text = serde_json::to_string(&request)?;
                text.push('\n');
                stream.write_all(text.as_bytes()).await.context("the node has stopped")?;
                let mut line = String::new();
                if stream.read_line(&mut line).await? == 0 {
                    bail!("the node has stopped");
                }
                let reply: AdminReply = serde_json::from_str(&line).context(UNREADABLE_REPLY)?;
                reply.map_err(anyhow::Error::msg)?
            }
        };
        serde_json::from_value(reply).context(UNREADABLE_REPLY)
    }

    /// Waits until all writes of this process are durable.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Self::InProcess(context, writer) = self {
            context.services.stop().await;
            drop(context);
            writer.await?;
        }
        Ok(())
    }
}
