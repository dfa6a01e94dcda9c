//! Events that prove to own a key: the answer to a challenge (NIP-42, over WebSocket and HTTP alike), and a signed HTTP request
//! (NIP-98). Cheap checks come before the signature.

use crate::{event::Event, id::PublicKey, kind::Kind, relay_urls::RelayUrls, time::Millis};

/// How far the time of an answer to a challenge may be from the node's, in seconds.
pub const MAX_ANSWER_DIFFERENCE: u64 = 600;
/// How far the time of a signed HTTP request may be from the node's, in seconds.
pub const MAX_REQUEST_DIFFERENCE: u64 = 60;

/// Why an event proves nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofRefused {
    /// It is of another kind.
    #[error("an authentication is of kind {0}")]
    WrongKind(Kind),
    /// It is too old, or ahead.
    #[error("this authentication is too old, or ahead of time")]
    WrongTime,
    /// It answers no challenge, or another one.
    #[error("this is not the challenge of this connection")]
    WrongChallenge,
    /// It is for another relay.
    #[error("this authentication is for another relay")]
    WrongRelay,
    /// It is for a request with another URL.
    #[error("this authentication is for another URL")]
    WrongUrl,
    /// It is for a request with another method.
    #[error("this authentication is for another method")]
    WrongMethod,
    /// It does not name the body of the request.
    #[error("the payload of this authentication is not the SHA-256 of the body")]
    WrongPayload,
    /// Its id or its signature is not right.
    #[error("the signature is not right")]
    WrongSignature,
}

/// An answer to a challenge, which the caller compares with the one that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'e> {
    /// The key that the event proves its sender to own, if the challenge is right.
    pub pubkey: PublicKey,
    /// The challenge it answers.
    pub challenge: &'e str,
}

/// Checks an answer to a challenge: `is_right` says whether the challenge may be right, before the signature is looked at.
pub fn check_answer<'e>(
    event: &'e Event,
    relay: &RelayUrls,
    now: Millis,
    is_right: impl FnOnce(&str) -> bool,
) -> Result<Answer<'e>, ProofRefused> {
    check_kind_and_time(event, Kind::AUTHENTICATION, MAX_ANSWER_DIFFERENCE, now)?;
    let challenge = event.tags.values("challenge").next().ok_or(ProofRefused::WrongChallenge)?;
    if !is_right(challenge) {
        return Err(ProofRefused::WrongChallenge);
    }
    if !event.tags.values("relay").next().is_some_and(|url| relay.contains(url)) {
        return Err(ProofRefused::WrongRelay);
    }
    event.verify().map_err(|_| ProofRefused::WrongSignature)?;
    Ok(Answer { pubkey: event.pubkey, challenge })
}

/// An HTTP request, as a proof has to name it.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'r> {
    /// Its method.
    pub method: &'r str,
    /// Its path and query.
    pub path_and_query: &'r str,
    /// The SHA-256 of its body in hex, if it has one.
    pub payload: Option<&'r str>,
}

/// Checks a signed HTTP request. Returns the key it proves its sender to own.
pub fn check_request(
    event: &Event,
    request: &SignedRequest<'_>,
    relay: &RelayUrls,
    now: Millis,
) -> Result<PublicKey, ProofRefused> {
    check_kind_and_time(event, Kind::HTTP_AUTHENTICATION, MAX_REQUEST_DIFFERENCE, now)?;
    let value = |name| event.tags.values(name).next();
    if !value("method").is_some_and(|method| method.eq_ignore_ascii_case(request.method)) {
        return Err(ProofRefused::WrongMethod);
    }
    if !value("u").is_some_and(|url| relay.contains_request(url, request.path_and_query)) {
        return Err(ProofRefused::WrongUrl);
    }
    if request.payload.is_some_and(|payload| value("payload") != Some(payload)) {
        return Err(ProofRefused::WrongPayload);
    }
    event.verify().map_err(|_| ProofRefused::WrongSignature)?;
    Ok(event.pubkey)
}

fn check_kind_and_time(event: &Event, kind: Kind, max_difference: u64, now: Millis) -> Result<(), ProofRefused> {
    if event.kind != kind {
        return Err(ProofRefused::WrongKind(kind));
    }
    let is_timely = event.created_at.0.abs_diff(now.seconds().0) <= max_difference;
    if is_timely { Ok(()) } else { Err(ProofRefused::WrongTime) }
}

#[cfg(test)]
mod tests {
    use kukuri_testing::{Draft, draft};

    use super::*;

    const NOW: u64 = 1_700_000_000;
    const RELAY: &str = "wss://node.example/relay";

    fn event(kind: u16, at: u64, tags: &[[&str; 2]]) -> Event {
        let signed = tags.iter().fold(draft(1, kind).at(at), |draft: Draft, tag| draft.tag(*tag)).sign();
        // Of the same crate, built for its users.
        Event::from_json(signed.to_json()).unwrap()
    }

    #[test]
    fn answer_to_a_challenge_is_checked() {
        // A-2, W-6
        let relay = RelayUrls::new(&[RELAY]);
        let [challenge, url] = [["challenge", "c"], ["relay", RELAY]];
        let check = |event: Event| {
            check_answer(&event, &relay, Millis::from_secs(NOW), |challenge| challenge == "c")
                .map(|answer| answer.pubkey)
        };
        for (why, event, expected) in [
            ("right", event(22242, NOW, &[challenge, url]), None),
            ("by HTTP", event(22242, NOW, &[challenge, ["relay", "https://NODE.example/relay/"]]), None),
            ("just old enough", event(22242, NOW - 600, &[challenge, url]), None),
            ("too old", event(22242, NOW - 601, &[challenge, url]), Some(ProofRefused::WrongTime)),
            ("ahead", event(22242, NOW + 601, &[challenge, url]), Some(ProofRefused::WrongTime)),
            ("another kind", event(1, NOW, &[challenge, url]), Some(ProofRefused::WrongKind(Kind(22242)))),
            ("no challenge", event(22242, NOW, &[url]), Some(ProofRefused::WrongChallenge)),
            ("another one", event(22242, NOW, &[["challenge", "d"], url]), Some(ProofRefused::WrongChallenge)),
            ("no relay", event(22242, NOW, &[challenge]), Some(ProofRefused::WrongRelay)),
            (
                "not encrypted",
                event(22242, NOW, &[challenge, ["relay", "ws://node.example/relay"]]),
                Some(ProofRefused::WrongRelay),
            ),
        ] {
            assert_eq!(check(event).err(), expected, "{why}");
        }
        let mut forged = event(22242, NOW, &[challenge, url]);
        forged.pubkey = PublicKey::from_bytes([2; 32]);
        assert_eq!(check(forged).err(), Some(ProofRefused::WrongSignature));
    }

    #[test]
    fn signed_request_is_checked() {
        //
        let relay = RelayUrls::new(&["wss://node.example"]);
        let [url, method, payload] = [["u", "https://node.example/v1/me?a=b"], ["method", "POST"], ["payload", "abc"]];
        let request = SignedRequest { method: "POST", path_and_query: "/v1/me?a=b", payload: Some("abc") };
        let check = |event: Event, request| check_request(&event, &request, &relay, Millis::from_secs(NOW)).err();
        let with = |url: &str| event(27235, NOW, &[["u", url], method, payload]);
        for (why, event, expected) in [
            ("right", event(27235, NOW, &[url, method, payload]), None),
            ("as a WebSocket", with("wss://node.example/v1/me?a=b"), None),
            ("a slash at the end", with("https://node.example/v1/me/?a=b"), None),
            ("the default port", with("https://node.example:443/v1/me?a=b"), None),
            ("another query", with("https://node.example/v1/me?a=c"), Some(ProofRefused::WrongUrl)),
            ("no query", with("https://node.example/v1/me"), Some(ProofRefused::WrongUrl)),
            ("another path", with("https://node.example/v1/you?a=b"), Some(ProofRefused::WrongUrl)),
            ("another host", with("https://other.example/v1/me?a=b"), Some(ProofRefused::WrongUrl)),
            ("a path alone", with("/v1/me?a=b"), Some(ProofRefused::WrongUrl)),
            ("late", event(27235, NOW + 61, &[url, method, payload]), Some(ProofRefused::WrongTime)),
            ("another method", event(27235, NOW, &[url, ["method", "GET"], payload]), Some(ProofRefused::WrongMethod)),
            ("no payload", event(27235, NOW, &[url, method]), Some(ProofRefused::WrongPayload)),
            ("another body", event(27235, NOW, &[url, method, ["payload", "abd"]]), Some(ProofRefused::WrongPayload)),
            (
                "an answer to a challenge",
                event(22242, NOW, &[url, method, payload]),
                Some(ProofRefused::WrongKind(Kind(27235))),
            ),
        ] {
            assert_eq!(check(event, request), expected, "{why}");
        }
        let bodiless = SignedRequest { payload: None, ..request };
        assert_eq!(check(event(27235, NOW, &[url, method]), bodiless), None);
    }
}
