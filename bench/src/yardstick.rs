//! What the machine can do at best, measured in the same run as everything else.

use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

use kukuri_domain::{Event, EventId, Kind, PublicKey, Signature, Tags, Timestamp, Verified};
use secp256k1::{Keypair, SecretKey, schnorr};

use crate::timing::Timings;

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

/// How long the disk takes to make a small write durable.
pub(crate) fn sync_time(dir: &Path) -> anyhow::Result<Duration> {
    let mut file = File::create(dir.join("yardstick"))?;
    let mut timings = Timings::default();
    for _ in 0..100 {
        let start = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        timings.add(start);
    }
    Ok(timings.percentile(50))
}
