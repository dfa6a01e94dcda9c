//! Situations that are hard for convergence.

use kukuri_domain::{Event, Millis, sharing};

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

/// The situations in which a request that may not be shared can hide one that may (G-7), from the events of one node in
/// order of arrival.
pub(super) fn of_requests(arrived: &[&Event]) -> [(&'static str, bool); 6] {
    let vanishes = |request: &Event, x: &Event| x.kind.0 != 62 && oracle::vanishes(request, x);
    let found =
        |covers: &dyn Fn(&Event, &Event) -> bool, is_late: bool| hides_a_shared_request(arrived, covers, is_late);
    [
        ("vanished from one relay, then from all", found(&vanishes, false)),
        ("vanished from one relay and from all, then a late event", found(&vanishes, true)),
        ("a protected deletion, then a plain one", found(&oracle::deletes, false)),
        ("a protected deletion and a plain one, then a late event", found(&oracle::deletes, true)),
        (
            "deleted by a protected request, then vanished from all",
            found(
                &|request, x| if is_shared(request) { vanishes(request, x) } else { oracle::deletes(request, x) },
                false,
            ),
        ),
        (
            "vanished from one relay, then deleted",
            found(
                &|request, x| if is_shared(request) { oracle::deletes(request, x) } else { vanishes(request, x) },
                false,
            ),
        ),
    ]
}

fn is_shared(request: &Event) -> bool {
    sharing::may_pass_on(request)
}

/// A request that may not be shared arrives before one that may, and both cover an event that arrives before the second
/// or, if late, after it. The second one is stored.
fn hides_a_shared_request(arrived: &[&Event], covers: &dyn Fn(&Event, &Event) -> bool, is_late: bool) -> bool {
    arrived.iter().enumerate().any(|(index, shared)| {
        let (before, after) = (&arrived[..index], &arrived[index + 1..]);
        let targets = if is_late { after } else { before };
        let hides = |x: &Event| before.iter().any(|hiding| !is_shared(hiding) && covers(hiding, x));
        is_shared(shared)
            && !oracle::vanished(shared, arrived)
            && targets.iter().any(|x| x.kind.0 != 5 && covers(shared, x) && hides(x))
    })
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
