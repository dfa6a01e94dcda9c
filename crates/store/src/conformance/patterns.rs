//! Situations that are hard for convergence.

use kukuri_domain::{Event, Millis};

use super::oracle;

/// The situations that a case hits, derived from its events in order of first arrival.
pub(super) fn of(arrived: &[&Event], now: Millis) -> [(&'static str, bool); 5] {
    [
        ("a blocked version above a current one", blocks_a_version_above_a_current_one(arrived, now)),
        ("a vanish over a kind 5", vanishes_a_deletion(arrived)),
        ("a deletion of an unseen deletion", deletes_an_unseen_deletion(arrived)),
        ("a tie at the floor", ties_at_the_floor(arrived)),
        ("two tombstones of one target by different requesters", buries_twice(arrived)),
    ]
}

/// A version is kept out while a lower version of its key is effective: the lower one must be removed (D-9).
fn blocks_a_version_above_a_current_one(arrived: &[&Event], now: Millis) -> bool {
    arrived.iter().enumerate().any(|(index, version)| {
        let before = &arrived[..index];
        let is_current_below = |other: &&Event| {
            oracle::is_same_key(other, version)
                && oracle::ranks_higher(version, other)
                && oracle::is_effective(other, before, now)
        };
        oracle::is_keyed(version)
            && (oracle::deleted(version, before) || oracle::vanished(version, before))
            && before.iter().any(is_current_below)
    })
}

/// An event is deleted only by deletion requests that vanished themselves: they must still count (D-10).
fn vanishes_a_deletion(arrived: &[&Event]) -> bool {
    arrived.iter().any(|x| {
        let mut requests = arrived.iter().filter(|request| oracle::deletes(request, x)).peekable();
        requests.peek().is_some()
            && requests.all(|request| oracle::vanished(request, arrived))
            && !oracle::vanished(x, arrived)
            && !oracle::superseded(x, arrived)
    })
}

/// A deletion request names another one of the same author, which arrives later and must stay (D-5).
fn deletes_an_unseen_deletion(arrived: &[&Event]) -> bool {
    arrived.iter().enumerate().any(|(index, request)| {
        let is_named =
            |later: &&Event| later.kind.0 == 5 && later.pubkey == request.pubkey && oracle::names_id(request, later);
        request.kind.0 == 5 && arrived[index..].iter().any(|later| is_named(later) && !oracle::vanished(later, arrived))
    })
}

/// The two highest versions of a key have the same `created_at` (E-3).
fn ties_at_the_floor(arrived: &[&Event]) -> bool {
    arrived.iter().any(|top| {
        let is_tied = |other: &&Event| {
            other.id != top.id && other.created_at == top.created_at && oracle::is_same_key(top, other)
        };
        oracle::is_keyed(top) && !oracle::superseded(top, arrived) && arrived.iter().any(is_tied)
    })
}

/// Two requesters, one of them an owner, name an event before it arrives: neither tombstone may hide the other (D-6).
fn buries_twice(arrived: &[&Event]) -> bool {
    arrived.iter().enumerate().any(|(index, target)| {
        let requests: Vec<_> = arrived[..index]
            .iter()
            .filter(|request| request.kind.0 == 5 && oracle::names_id(request, target))
            .collect();
        requests.iter().any(|request| oracle::deletes(request, target))
            && requests.iter().any(|request| request.pubkey != requests[0].pubkey)
    })
}
