//! Client authentication (NIP-42): a challenge, and an event of kind 22242 that answers it.

use kukuri_domain::{Event, Kind, Millis, PublicKey, hex, vanish::RelayUrls};

/// Seconds that an answer may be old, or ahead.
const MAX_CLOCK_DIFFERENCE: u64 = 600;

/// A challenge for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Challenge(String);

/// Why an answer to a challenge is refused. Its `Display` is the message of `OK false`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid: {0}")]
pub(crate) struct Rejected(&'static str);

impl Challenge {
    pub(crate) fn new() -> Self {
        let mut random = [0; 16];
        // Can't fail once the system has started. A challenge that stayed zero would still not prove a key.
        let filled = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        debug_assert_eq!(filled, Ok(random.len()));
        Self(hex::encode(&random))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The key that the event proves its sender to own.
    pub(crate) fn check(&self, event: Event, relay: &RelayUrls, now: Millis) -> Result<PublicKey, Rejected> {
        if event.kind != Kind::AUTHENTICATION {
            return Err(Rejected("an authentication is of kind 22242"));
        }
        if event.created_at.0.abs_diff(now.seconds().0) > MAX_CLOCK_DIFFERENCE {
            return Err(Rejected("this authentication is too old, or ahead of time"));
        }
        if event.tags.values("challenge").next() != Some(self.as_str()) {
            return Err(Rejected("this is not the challenge of this connection"));
        }
        let names_us = event.tags.values("relay").next().is_some_and(|url| relay.contains(url));
        if !names_us {
            return Err(Rejected("this authentication is for another relay"));
        }
        event.verify().map_err(|_| Rejected("the signature is not right"))?;
        Ok(event.pubkey)
    }
}
