//! Requests to vanish (NIP-62): everything an author has, up to a moment (D-12).

use url::Url;

use crate::{
    event::Event,
    id::{EventId, PublicKey},
    kind::Kind,
    refusal::Refusal,
    time::Timestamp,
};

const ALL_RELAYS: &str = "ALL_RELAYS";

/// The addresses this relay is known by, to tell whether a request is meant for it.
#[derive(Clone, Debug, Default)]
pub struct RelayUrls(Vec<String>);

impl RelayUrls {
    /// The public URLs of this relay.
    pub fn new(urls: &[impl AsRef<str>]) -> Self {
        Self(urls.iter().map(|url| normalize(url.as_ref())).collect())
    }

    /// Whether this is one of them, however it is spelled.
    pub fn contains(&self, url: &str) -> bool {
        self.0.contains(&normalize(url))
    }

    /// Whether a vanish request is for this relay. One that names no relay at all is malformed.
    pub(crate) fn are_named_by(&self, request: &Event) -> Result<bool, Refusal> {
        let mut relays = request.tags.values("relay").peekable();
        relays.peek().ok_or(Refusal::MissingRelay)?;
        Ok(relays.any(|relay| relay == ALL_RELAYS || self.contains(relay)))
    }
}

/// Whether a vanish request is for every relay there is.
pub(crate) fn is_for_all_relays(request: &Event) -> bool {
    request.tags.values("relay").any(|relay| relay == ALL_RELAYS)
}

/// Scheme and host in lower case, no default port, no slash at the end. What is no URL stays as it is.
fn normalize(url: &str) -> String {
    match Url::parse(url.trim()) {
        Ok(parsed) => parsed.as_str().trim_end_matches('/').to_owned(),
        Err(_) => url.trim().to_owned(),
    }
}

/// The memory of a vanish request; it outlives the request (D-12). The latest per author counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VanishMark {
    /// Who vanished.
    pub pubkey: PublicKey,
    /// Everything made up to this time is gone and stays out.
    pub until: Timestamp,
    /// The request.
    pub request_id: EventId,
}

impl VanishMark {
    /// Whether it takes this event away.
    pub fn covers(&self, event: &Event) -> bool {
        event.kind != Kind::VANISH && event.created_at <= self.until && event.is_owned_by(&self.pubkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_compared_without_case_of_host_default_port_or_slash() {
        let ours = RelayUrls::new(&["wss://Relay.Example.com:443/"]);
        for (url, same) in [
            ("wss://relay.example.com", true),
            ("WSS://relay.example.com/", true),
            ("wss://relay.example.com/nostr", false),
            ("ws://relay.example.com", false),
            ("relay.example.com", false),
        ] {
            assert_eq!(ours.contains(url), same, "{url}");
        }
    }
}
