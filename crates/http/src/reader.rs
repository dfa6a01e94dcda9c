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
    /// Admits a request that reads history. Counts it (W-4).
    pub fn admit_reader(&self, request: &Parts) -> Result<(), ReaderRefused> {
        Ok(self.engine().reads().check(&self.allowed_client(request)?, ReadKind::History, &[])?)
    }

    /// Admits a request for a static document, which never requires authentication. Counts it like a REQ (U-3).
    pub fn admit_static(&self, request: &Parts) -> Result<(), ReaderRefused> {
        Ok(self.engine().count_request(&self.allowed_client(request)?)?)
    }

    fn allowed_client(&self, request: &Parts) -> Result<Client, ReaderRefused> {
        let connection = request.extensions.get::<Connection>().ok_or(ReaderRefused::Denied)?;
        let ip = match self.proxy_at(connection.peer) {
            None => connection.peer,
            Some(proxy) => proxy.client_of(&request.headers).ok_or(ReaderRefused::Denied)?,
        };
        if self.engine().config().deny.covers_ip(ip) {
            return Err(ReaderRefused::Denied);
        }
        Ok(Client { ip, keys: Arc::default(), connected_at: clock::now() })
    }
}
