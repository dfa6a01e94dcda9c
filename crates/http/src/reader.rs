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
    fn client_of(&self, request: &Parts) -> Option<Client> {
        let connection = request.extensions.get::<Connection>()?;
        let ip = match self.proxy_at(connection.peer) {
            None => connection.peer,
            Some(proxy) => proxy.client_of(&request.headers)?,
        };
        Some(Client { ip, keys: Arc::default(), connected_at: clock::now() })
    }

    /// Admits a request that reads history. Counts it (W-4).
    pub fn admit_reader(&self, request: &Parts) -> Result<(), ReaderRefused> {
        Ok(self.engine().reads().check(&self.allowed_client(request)?, ReadKind::History, &[])?)
    }

    /// Admits a request for a static document, which never requires authentication. Counts it like a REQ (U-3).
    pub fn admit_static(&self, request: &Parts) -> Result<(), ReaderRefused> {
        let counted = self.engine().count_request(&self.allowed_client(request)?);
        Ok(counted.map_err(ReadRefused::from)?)
    }

    fn allowed_client(&self, request: &Parts) -> Result<Client, ReaderRefused> {
        let client = self.client_of(request).ok_or(ReaderRefused::Denied)?;
        let is_denied = self.engine().config().deny.covers_ip(client.ip);
        if is_denied { Err(ReaderRefused::Denied) } else { Ok(client) }
    }
}
