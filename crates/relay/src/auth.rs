//! Client authentication (NIP-42): a challenge, and an event of kind 22242 that answers it.

use kukuri_domain::{
    Event, Millis, PublicKey, RelayUrls,
    authentication::{self, ProofRefused},
    hex,
};
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

/// A challenge for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Challenge(String);

/// Why an answer to a challenge is refused. Its `Display` is the message of `OK false`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid: {0}")]
pub(crate) struct Rejected(#[from] ProofRefused);

impl Challenge {
    /// Fails if the system gives no random bytes (seccomp, an old kernel): a known challenge would let an answer be replayed.
    pub(crate) fn new() -> Result<Self, Errno> {
        Self::from_source(|buffer| getrandom(buffer, GetRandomFlags::empty()))
    }

    fn from_source(mut fill: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Self, Errno> {
        let mut random = [0; 16];
        let mut filled = 0;
        while filled < random.len() {
            match fill(&mut random[filled..]) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(hex::encode(&random)))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The key that the event proves its sender to own.
    pub(crate) fn check(&self, event: &Event, relay: &RelayUrls, now: Millis) -> Result<PublicKey, Rejected> {
        let answer = authentication::check_answer(event, relay, now, |challenge| challenge == self.as_str())?;
        Ok(answer.pubkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_random_bytes_there_is_no_challenge() {
        assert!(Challenge::new().is_ok_and(|challenge| challenge.as_str() != "0".repeat(32)));
        assert_eq!(Challenge::from_source(|_| Err(Errno::NOSYS)).err(), Some(Errno::NOSYS));
        assert_eq!(Challenge::from_source(|_| Ok(0)).err(), Some(Errno::IO));
        let mut calls = 0;
        let in_parts = |buffer: &mut [u8]| {
            calls += 1;
            if calls == 2 {
                return Err(Errno::INTR);
            }
            let count = buffer.len().min(5);
            buffer[..count].fill(0xab);
            Ok(count)
        };
        assert_eq!(Challenge::from_source(in_parts).unwrap().as_str(), "ab".repeat(16));
    }
}
