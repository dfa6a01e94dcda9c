//! Memory of answers and live events that wait to be read (Y-2): one budget for all clients, over WebSocket and HTTP, of which each
//! address has a part. A client that reads slowly holds its own part, and no more.

use std::{net::IpAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    config::EngineConfig,
    engine::Engine,
    networks::{AddressLimit, Share, ShareLimits, ShareRefused, Shares},
};

/// An address may hold the free bytes divided by this: however many addresses take their part, the next one finds something.
const ADDRESS_PARTS: usize = 4;
/// How long a request waits for all the memory it may need: answers in preparation take what they may need, and soon give most of
/// it back.
const WAIT_FOR_ALL: Duration = Duration::from_millis(500);
/// How long it waits for the least that it can work with.
const MAX_WAIT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Bytes of answers that clients hold.
#[derive(Default)]
pub(crate) struct AnswerMemory(Arc<Shares>);

impl AnswerMemory {
    pub(crate) fn reserve(
        &self,
        config: &EngineConfig,
        ip: IpAddr,
        bytes: RangeInclusive<usize>,
    ) -> Result<Share, ShareRefused> {
        let limits = ShareLimits {
            address: match config.rates {
                Some(_) => AddressLimit::PartOfFree(ADDRESS_PARTS),
                None => AddressLimit::Unlimited,
            },
            total: config.requests.answer_memory,
        };
        self.0.acquire(ip, bytes, limits)
    }

    /// The bytes that all clients hold.
    pub(crate) fn total(&self) -> usize {
        self.0.total()
    }
}

impl Engine {
    /// Reserves memory for an answer, if there is some now.
    pub fn reserve_answer(&self, ip: IpAddr, bytes: RangeInclusive<usize>) -> Result<Share, ShareRefused> {
        self.shared.answers.reserve(&self.config(), ip, bytes)
    }

    /// Reserves memory for an answer before it is prepared. Waits shortly for the end of the range, then for anything within it.
    pub async fn wait_to_reserve_answer(
        &self,
        ip: IpAddr,
        bytes: RangeInclusive<usize>,
    ) -> Result<Share, ShareRefused> {
        let (least, all) = bytes.into_inner();
        // An address never gets more: it would wait in vain.
        let most = self.config().requests.answer_memory / ADDRESS_PARTS;
        let all = all.min(most.max(least));
        let began = Instant::now();
        loop {
            let accepted = if began.elapsed() < WAIT_FOR_ALL { all } else { least };
            match self.reserve_answer(ip, accepted..=all) {
                Err(_) if began.elapsed() < MAX_WAIT => sleep(RETRY_INTERVAL).await,
                reserved => return reserved,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kukuri_store::{StoreRules, conformance::faulty::FaultyStore, model::ModelStore};

    use super::*;
    use crate::{cached::StoreUnavailable, config::Rates, engine::EngineParts};

    const MIB: usize = 1 << 20;

    async fn engine() -> Arc<Engine> {
        let mut config = EngineConfig { rates: Some(Rates::default()), ..EngineConfig::default() };
        config.requests.answer_memory = 128 * MIB;
        let parts = EngineParts {
            store: Arc::new(ModelStore::new(StoreRules::default())),
            finder: None,
            config,
            policies: Vec::new(),
            recorder: Arc::new(metrics::NoopRecorder),
        };
        Engine::start(parts).await.unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn ten_addresses_that_hold_all_they_get_leave_memory_for_the_next() {
        // Y-1, Y-2
        let engine = engine().await;
        let mut held = Vec::new();
        for number in 0..10 {
            let ip = IpAddr::from([192, 0, 2, number]);
            let before = held.len();
            while let Ok(share) = engine.wait_to_reserve_answer(ip, MIB..=8 * MIB).await {
                held.push(share);
            }
            assert!(held.len() > before, "address {number}");
        }
        assert!(engine.shared.answers.total() <= 128 * MIB);
        let next = engine.wait_to_reserve_answer(IpAddr::from([192, 0, 2, 99]), MIB..=8 * MIB).await;
        assert!(next.unwrap().amount() >= MIB);
        held.clear();
        assert_eq!(engine.shared.answers.total(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_others_to_give_memory_back() {
        let engine = engine().await;
        let ip = IpAddr::from([192, 0, 2, 1]);
        let first = engine.wait_to_reserve_answer(ip, MIB..=25 * MIB).await.unwrap();
        assert_eq!(first.amount(), 25 * MIB);
        let began = Instant::now();
        let (second, ()) = tokio::join!(engine.wait_to_reserve_answer(ip, MIB..=8 * MIB), async {
            sleep(Duration::from_millis(100)).await;
            drop(first);
        });
        assert_eq!(second.unwrap().amount(), 8 * MIB);
        assert!(began.elapsed() < WAIT_FOR_ALL);
    }

    #[tokio::test(start_paused = true)]
    async fn statistics_are_read_once_a_second_by_one_caller_for_all() {
        // Y-4
        let store = Arc::new(FaultyStore::new(Arc::new(ModelStore::new(StoreRules::default()))));
        let parts = EngineParts {
            store: Arc::clone(&store) as _,
            finder: None,
            config: EngineConfig::default(),
            policies: Vec::new(),
            recorder: Arc::new(metrics::NoopRecorder),
        };
        let (engine, _writer) = Engine::start(parts).await.unwrap();
        let before = store.calls("stats");
        for _ in 0..10 {
            let (one, other) = tokio::join!(engine.health(), engine.health());
            assert!(one.is_ok() && other.is_ok());
        }
        assert_eq!(store.calls("stats"), before + 1);
        store.set_away(true);
        sleep(Duration::from_secs(1)).await;
        for _ in 0..10 {
            assert_eq!(engine.health().await.err(), Some(StoreUnavailable));
        }
        assert_eq!(store.calls("stats"), before + 2, "a failure is remembered for as long");
        store.set_away(false);
        sleep(Duration::from_secs(1)).await;
        assert!(engine.health().await.is_ok());
    }
}
