//! What the machine can do at best, measured in the same run as everything else.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use kukuri_domain::{Event, EventId, Kind, PublicKey, Signature, Tags, Timestamp, Verified};
use secp256k1::{Keypair, SecretKey, schnorr};

use crate::timing::Timings;

/// The priority that gives way to everybody.
const LOWEST: i32 = 19;

/// Events verified per second on one core: hash and Schnorr signature.
pub(crate) fn verifications_per_second() -> anyhow::Result<f64> {
    let keypair = Keypair::from_secret_key(&SecretKey::from_secret_bytes([7; 32])?);
    let (pubkey, _) = keypair.x_only_public_key();
    let mut events = Vec::new();
    for n in 0..256 {
        let mut event = Event {
            id: EventId::from_bytes([0; 32]),
            pubkey: PublicKey::from_bytes(pubkey.to_byte_array()),
            created_at: Timestamp(1_760_000_000 + n),
            kind: Kind(1),
            tags: [["t", "kukuri:global"]].into_iter().collect::<Tags>(),
            content: "a post of the usual length, ".repeat(16),
            sig: Signature::from_bytes([0; 64]),
        };
        event.id = event.true_id();
        let signature = schnorr::sign_no_aux_rand(event.id.as_bytes(), &keypair);
        event.sig = Signature::from_bytes(*signature.as_byte_array());
        events.push(event);
    }
    let mut best = 0.0_f64;
    for _ in 0..8 {
        let start = Instant::now();
        for event in &events {
            Verified::check(event.clone())?;
        }
        best = best.max(events.len() as f64 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// How long the disk takes at best to make a small write durable: the median of the best round.
///
/// A process that waits may be woken only at the next tick of the clock. On a virtual machine 4 ms were seen for 0.15, from
/// one second to the next, by what else ran; against such a yardstick every relay looks fast.
pub(crate) fn sync_time(dir: &Path) -> anyhow::Result<Duration> {
    let _awake = Awake::new();
    let mut file = File::create(dir.join("yardstick"))?;
    let mut best = Duration::MAX;
    for _ in 0..8 {
        let mut timings = Timings::default();
        for _ in 0..50 {
            let start = Instant::now();
            file.write_all(&[0; 4096])?;
            file.sync_data()?;
            timings.add(start);
        }
        best = best.min(timings.percentile(50));
    }
    Ok(best)
}

/// Keeps all cores from sleeping, at the lowest priority, for as long as it is held.
struct Awake(Arc<AtomicBool>);

impl Awake {
    fn new() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                // Of this thread alone. One that can't give way must not get in the way.
                if rustix::process::setpriority_process(None, LOWEST).is_ok() {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        Self(is_over)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
