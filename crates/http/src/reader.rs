//! Access control for readers over HTTP: the same addresses, rates and authentication as on WebSocket (W-4, W-7).

use std::sync::Arc;

use axum::http::request::Parts;
use kukuri_engine::{Client, ReadKind, ReadRefused, clock};

use crate::{front::HttpFront, listener::Connection};

/// Why a reader over HTTP is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderRefused {
    /// A policy refuses it.
    #[error(transparent)]
    Policy(#[from] ReadRefused),
    /// Its address is denied, or its proxy named none.
    #[error("this address is denied")]
    Denied,
}

impl HttpFront {
    /// The client of a request; `None` if a proxy named no address.
    pub fn client_of(&self, request: &Parts) -> Option<Client> {
        let connection = request.extensions.get::<Connection>()?;
        let config = self.config();
        let proxy = config.proxy.as_ref().filter(|proxy| proxy.is_at(connection.peer));
        let ip = match proxy {
            None => connection.peer,
            Some(proxy) => proxy.client_of(&request.headers)?,
        };
        Some(Client { ip, keys: Arc::default(), connected_at: clock::now() })
    }

    /// Whether a request that reads history may be answered. Counts it (W-4).
    pub fn admit_reader(&self, request: &Parts) -> Result<Client, ReaderRefused> {
        let client = self.client_of(request).ok_or(ReaderRefused::Denied)?;
        if self.engine().config().deny.covers_ip(client.ip) {
            return Err(ReaderRefused::Denied);
        }
        self.engine().reads().check(&client, ReadKind::History, &[])?;
        Ok(client)
    }
}
