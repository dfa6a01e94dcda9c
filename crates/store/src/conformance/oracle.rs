//! D-10 literally: computes which events of a set are effective, from the set alone.
//!
//! The oracle uses only the plain fields of events, never the decision function or its parts, so that it can't repeat
//! their bugs.

use std::collections::BTreeSet;

use kukuri_domain::{Event, EventId, Millis, PublicKey};

use super::build::RELAY;

/// "Effective = every x of a stored class that is none of these and not expired."
pub(super) fn effective(set: &[&Event], now: Millis) -> BTreeSet<EventId> {
    set.iter().filter(|x| is_effective(x, set, now)).map(|x| x.id).collect()
}

pub(super) fn is_effective(x: &Event, set: &[&Event], now: Millis) -> bool {
    is_stored(x) && !vanished(x, set) && !deleted(x, set) && !superseded(x, set) && !expired(x, now)
}

/// "x is not kind 62 and S holds a kind 62 for this relay by an owner of x, with x.created_at ≤ its created_at"
pub(super) fn vanished(x: &Event, set: &[&Event]) -> bool {
    x.kind.0 != 62 && set.iter().any(|request| vanishes(request, x))
}

pub(super) fn vanishes(request: &Event, x: &Event) -> bool {
    request.kind.0 == 62
        && is_for_this_relay(request)
        && is_owner(request.pubkey, x)
        && x.created_at <= request.created_at
}

/// "x is no request and S holds a kind 5 by an owner of x naming x by `e`, or x's address by `a` with x.created_at ≤
/// its created_at; such a kind 5 counts even when it is itself vanished"
pub(super) fn deleted(x: &Event, set: &[&Event]) -> bool {
    set.iter().any(|request| deletes(request, x))
}

pub(super) fn deletes(request: &Event, x: &Event) -> bool {
    request.kind.0 == 5
        && !is_request(x)
        && is_owner(request.pubkey, x)
        && (names_id(request, x) || (names_address(request, x) && x.created_at <= request.created_at))
}

/// "S holds a version of x's key that ranks higher (E-3), whatever became of that version"
pub(super) fn superseded(x: &Event, set: &[&Event]) -> bool {
    set.iter().any(|version| ranks_higher(version, x) && is_same_key(version, x))
}

/// "within a key the newest `created_at` ranks highest, on a tie the lexicographically lower id"
pub(super) fn ranks_higher(version: &Event, x: &Event) -> bool {
    version.created_at > x.created_at || (version.created_at == x.created_at && version.id < x.id)
}

/// NIP-40; "ignored on requests".
fn expired(x: &Event, now: Millis) -> bool {
    let end = x.tags.values("expiration").next().and_then(|value| value.parse::<u64>().ok());
    !is_request(x) && end.is_some_and(|end| end <= now.0 / 1_000)
}

/// "its pubkey, and for kind 1059 also each pubkey in its `p` tags"
fn is_owner(pubkey: PublicKey, x: &Event) -> bool {
    pubkey == x.pubkey || (x.kind.0 == 1059 && x.tags.values("p").any(|value| value == pubkey.to_string()))
}

fn is_request(x: &Event) -> bool {
    matches!(x.kind.0, 5 | 62)
}

fn is_stored(x: &Event) -> bool {
    !(20_000..30_000).contains(&x.kind.0)
}

fn is_for_this_relay(request: &Event) -> bool {
    request.tags.values("relay").any(|relay| relay == RELAY || relay == "ALL_RELAYS")
}

pub(super) fn names_id(request: &Event, x: &Event) -> bool {
    let id = x.id.to_string();
    request.tags.values("e").any(|value| value == id)
}

fn names_address(request: &Event, x: &Event) -> bool {
    address(x).is_some_and(|address| request.tags.values("a").any(|value| value == address))
}

/// "(pubkey, kind) of a replaceable, (kind, pubkey, d) of an addressable event"
pub(super) fn is_same_key(one: &Event, other: &Event) -> bool {
    one.kind == other.kind && one.pubkey == other.pubkey && is_keyed(one) && identifier(one) == identifier(other)
}

pub(super) fn is_keyed(x: &Event) -> bool {
    matches!(x.kind.0, 0 | 3 | 10_000..20_000 | 30_000..40_000)
}

/// `kind:pubkey:d`, "empty for replaceable".
fn address(x: &Event) -> Option<String> {
    is_keyed(x).then(|| format!("{}:{}:{}", x.kind.0, x.pubkey, identifier(x)))
}

/// "The first `d` counts."
fn identifier(x: &Event) -> &str {
    match x.kind.0 {
        30_000..40_000 => x.tags.values("d").next().unwrap_or_default(),
        _ => "",
    }
}
