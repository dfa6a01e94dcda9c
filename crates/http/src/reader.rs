//! Access control for readers over HTTP: the same addresses and rates as on WebSocket (W-4). Whom the node serves, the API decides when it
//! knows the caller.

use std::{ops::RangeInclusive, sync::Arc};

use axum::http::request::Parts;
use kukuri_domain::PublicKey;
use kukuri_engine::{Client, ReadKind, TooFast, clock};
use kukuri_store::Budget;

use crate::{front::HttpFront, held_answer::ReservedMemory, listener::Connection, streams::AdmittedStream};

/// Why a reader over HTTP is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReaderRefused {
    /// Its address, or its key, asks too often.
    #[error(transparent)]
    TooFast(#[from] TooFast),
    /// Its address is denied, or its proxy named none.
    #[error("this address is denied")]
    Denied,
    /// Answers that wait to be read fill the memory of its address, or of the node (Y-2).
    #[error("too many answers wait to be read")]
    Busy,
    /// Its address, or the node, has as many streams as it may have (Y-1).
    #[error("too many streams")]
    TooManyStreams,
}

impl HttpFront {
    /// Admits a request that reads history. Counts it (W-4), and reserves memory for its answer: as much of this range as there
    /// is, see [`Self::answer_bytes`].
    pub async fn admit_reader(&self, request: &Parts, bytes: RangeInclusive<usize>) -> Result<(), ReaderRefused> {
        let client = self.allowed_client(request)?;
        self.engine().count_page(&client)?;
        self.reserve_answer(request, &client, bytes).await
    }

    /// Admits a request for a short list, which the relay's authentication does not concern. Counts it like a REQ (U-3), and reserves
    /// memory for its answer.
    pub async fn admit_list_reader(&self, request: &Parts, bytes: usize) -> Result<(), ReaderRefused> {
        let client = self.allowed_client(request)?;
        self.engine().count_request(&client, 0)?;
        self.reserve_answer(request, &client, bytes..=bytes).await
    }

    async fn reserve_answer(
        &self,
        request: &Parts,
        client: &Client,
        bytes: RangeInclusive<usize>,
    ) -> Result<(), ReaderRefused> {
        let reserved = self.engine().wait_to_reserve_answer(client.ip, bytes).await;
        let memory = reserved.map_err(|_| ReaderRefused::Busy)?;
        if let Some(reserved) = request.extensions.get::<ReservedMemory>() {
            reserved.set(memory);
        }
        Ok(())
    }

    /// The bytes that the answer to an admitted request may have: an answer that is larger may find no memory (Y-2).
    pub fn answer_bytes(&self, request: &Parts) -> usize {
        request.extensions.get::<ReservedMemory>().map_or(0, ReservedMemory::amount)
    }

    /// Admits a stream of an admitted request.
    pub fn admit_stream(&self, request: &Parts) -> Result<AdmittedStream, ReaderRefused> {
        let client = self.allowed_client(request)?;
        let has_rates = self.engine().config().rates.is_some();
        self.streams.open(client.ip, has_rates).map_err(|_| ReaderRefused::TooManyStreams)
    }

    /// Admits a request that costs little, and that the relay's authentication does not concern. Counts it like a REQ (U-3).
    pub fn admit_static(&self, request: &Parts) -> Result<(), ReaderRefused> {
        Ok(self.engine().count_request(&self.allowed_client(request)?, 0)?)
    }

    /// Admits an attempt to sign in, which never requires authentication. It has the strictest rate (U-3).
    pub fn admit_sign_in(&self, request: &Parts) -> Result<(), ReaderRefused> {
        Ok(self.engine().count_sign_in(&self.allowed_client(request)?)?)
    }

    /// Counts an admitted request by the key that made it (U-3).
    pub fn admit_key(&self, key: &PublicKey, kind: ReadKind) -> Result<(), ReaderRefused> {
        Ok(self.engine().count_key(key, kind)?)
    }

    /// What reading the answer to an admitted request may cost (Y-2).
    pub fn read_budget(&self, request: &Parts) -> Budget {
        self.allowed_client(request).map_or_else(|_| Budget::default(), |client| self.engine().read_budget(client.ip))
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use axum::http::Request;
    use kukuri_engine::{Engine, EngineConfig, EngineParts, config::Rates};
    use kukuri_relay::{Info, Relay};
    use kukuri_store::{StoreRules, model::ModelStore};

    use super::*;
    use crate::Exporter;

    const MIB: usize = 1 << 20;

    async fn front() -> HttpFront {
        let exporter = Exporter::new();
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config: EngineConfig { rates: Some(Rates::default()), ..EngineConfig::default() },
            policies: Vec::new(),
            recorder: exporter.recorder(),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        HttpFront::new(Arc::new(Relay::new(engine, Info::default())), exporter, None)
    }

    impl HttpFront {
        fn request_of(&self, number: u8) -> Parts {
            let permit = self.connections.acquire(usize::MAX).unwrap();
            let connection = Connection::new(IpAddr::from([192, 0, 2, number]), permit);
            let request = Request::get("/").extension(connection).extension(ReservedMemory::default());
            request.body(()).unwrap().into_parts().0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_gets_less_memory_while_slow_readers_hold_most_of_it() {
        // Y-1, Y-2
        let front = front().await;
        let mut held = Vec::new();
        for number in 1..=10 {
            let before = held.len();
            for _ in 0..4 {
                let request = front.request_of(number);
                if front.admit_reader(&request, MIB / 4..=8 * MIB).await.is_ok() {
                    assert!((MIB / 4..=8 * MIB).contains(&front.answer_bytes(&request)));
                    held.push(request);
                }
            }
            assert!(held.len() > before, "address {number}");
        }
        let all: usize = held.iter().map(|request| front.answer_bytes(request)).sum();
        assert!(all > 100 * MIB, "{all}");
        let next = front.request_of(99);
        assert_eq!(front.admit_reader(&next, 8 * MIB..=8 * MIB).await, Err(ReaderRefused::Busy));
        assert_eq!(front.admit_reader(&next, MIB / 4..=8 * MIB).await, Ok(()), "less than it may need");
    }

    #[tokio::test]
    async fn one_address_has_a_part_of_the_streams() {
        // Y-1
        let front = front().await;
        let (request, other) = (front.request_of(1), front.request_of(2));
        let mut open = Vec::new();
        let refused = loop {
            match front.admit_stream(&request) {
                Ok(stream) => open.push(stream),
                Err(refused) => break refused,
            }
        };
        assert_eq!((refused, (40..=64).contains(&open.len())), (ReaderRefused::TooManyStreams, true), "{}", open.len());
        assert!(front.admit_stream(&other).is_ok(), "another address");
    }
}
